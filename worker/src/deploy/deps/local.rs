//! Packages that are built here: folders and archives of the repo.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ramen_group::Reason;

use super::super::progress::Phase;
use super::super::requirements::{Plan, wheel_name};
use super::super::sha256_hex;
use super::super::uv::{UvFault, Watch};
use super::{Installer, args, discard, io_fault};

impl Installer<'_> {
    /// Builds folders and archives of the repo into wheels; from then on they are like any other.
    pub(super) async fn build_local(&self, plan: &mut Plan) -> Result<(), UvFault> {
        if plan.local.is_empty() {
            return Ok(());
        }
        let total = plan.local.len() as u64;
        let progress = self.progress;
        // What builds write elsewhere by the way is to count as well.
        let temporary = self.uv.scratch.join("tmp");
        std::fs::create_dir_all(&temporary)
            .map_err(|error| io_fault("making a folder for builds", &error))?;
        let temporary = temporary.display().to_string();
        for (number, source) in plan.local.clone().into_iter().enumerate() {
            let shown = source
                .path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let building = format!("building {shown}");
            let report = |_packages: u64, bytes: u64| {
                let bytes = (bytes > 0).then_some(bytes);
                progress.step(Phase::Resolve, number as u64, Some(total), bytes, &building);
            };
            report(0, 0);
            let out = self.uv.scratch.join(format!("built-{number}"));
            // The repo itself stays as it is: builds write beside their sources.
            let mut from = source.path.clone();
            if from.is_dir() {
                from = self.uv.scratch.join(format!("source-{number}"));
                discard(&from);
                copy_tree(&source.path, &from)
                    .map_err(|error| io_fault("copying a local source", &error))?;
            }
            let mut args = args(["build", "--wheel", "--quiet", "--python"]);
            args.push(self.uv.python.clone().into());
            args.push("--out-dir".into());
            args.push(out.clone().into());
            args.extend(self.uv.config.flags.iter().map(OsString::from));
            args.push(from.into());
            // What a build writes beside the copy of its sources, and its wheel.
            let watch = Watch {
                dir: &self.uv.scratch,
                limit: self.max_bytes,
                progress: &report,
            };
            self.uv
                .run(&args, &[("TMPDIR", temporary.as_str())], Some(watch))
                .await
                .map_err(|fault| UvFault {
                    message: format!("{building}: {}", fault.message),
                    ..fault
                })?;
            let wheel = first_wheel(&out).ok_or_else(|| {
                UvFault::new(Reason::InstallFailed, format!("{building} made no wheel"))
            })?;
            let file = wheel
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (name, version) = wheel_name(&file).ok_or_else(|| {
                UvFault::new(
                    Reason::InstallFailed,
                    format!("`{file}` is not the name of a wheel"),
                )
            })?;
            let bytes =
                std::fs::read(&wheel).map_err(|error| io_fault("reading a wheel", &error))?;
            let hash = format!("sha256:{}", sha256_hex(&bytes));
            plan.hashes.insert(name.clone(), BTreeSet::from([hash]));
            plan.wheel_dirs.insert(out);
            plan.push(
                format!("{name}{}=={version}{}", source.extras, source.marker),
                source.place,
            );
        }
        Ok(())
    }
}

fn first_wheel(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// A hash of a file, or of all files of a folder with their names.
pub(super) fn tree_hash(path: &Path) -> String {
    let mut files = BTreeMap::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        if let Ok(entries) = std::fs::read_dir(&folder) {
            folders.extend(entries.flatten().map(|entry| entry.path()));
        } else {
            let bytes = std::fs::read(&folder).unwrap_or_default();
            files.insert(folder, sha256_hex(&bytes));
        }
    }
    sha256_hex(
        format!("{files:?}")
            .replace(&path.display().to_string(), "")
            .as_bytes(),
    )
}
