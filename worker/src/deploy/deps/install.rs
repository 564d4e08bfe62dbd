//! From a lock to a packed folder.

use std::path::Path;
use std::time::Instant;

use ramen_group::Reason;
use ramen_redact::chain;
use ramen_source::layer::{PackOptions, pack_dir};

use super::super::progress::Phase;
use super::super::requirements::Plan;
use super::super::uv::{UvFault, Watch};
use super::lock::split_lock;
use super::{Installer, args, io_fault, write};

impl Installer<'_> {
    /// Installs a lock of `count` packages into `target`.
    pub(super) async fn install(
        &self,
        plan: &Plan,
        lock: &str,
        target: &Path,
        count: u64,
    ) -> Result<(), UvFault> {
        let (hashed, unhashed) = split_lock(lock);
        let progress = self.progress;
        let report = move |packages: u64, bytes: u64| {
            progress.step(
                Phase::Install,
                packages.min(count),
                Some(count),
                Some(bytes),
                "installing",
            );
        };
        progress.step(Phase::Install, 0, Some(count), None, "installing");
        for (file, text, hashes) in [
            ("lock.txt", hashed, true),
            ("lock-vcs.txt", unhashed, false),
        ] {
            if text.is_empty() {
                continue;
            }
            write(&self.uv.scratch.join(file), &text)?;
            let mut args = args([
                "pip",
                "install",
                "--no-deps",
                "--link-mode",
                "copy",
                "--python",
            ]);
            args.push(self.uv.python.clone().into());
            args.push("--target".into());
            args.push(target.into());
            if hashes {
                args.push("--require-hashes".into());
            }
            self.source_args(plan, &mut args);
            args.extend(["-r".into(), file.into()]);
            let find_links = self.find_links(plan);
            let env: Vec<_> = find_links
                .iter()
                .map(|all| ("UV_FIND_LINKS", all.as_str()))
                .collect();
            let watch = Watch {
                dir: target,
                limit: self.max_bytes,
                progress: &report,
            };
            self.uv.run(&args, &env, Some(watch)).await?;
        }
        // A lock that resolves to nothing on this platform installs nothing.
        std::fs::create_dir_all(target).map_err(|error| io_fault("making the target", &error))?;
        let _ = std::fs::remove_file(target.join(".lock"));
        Ok(())
    }

    /// Packs what was installed.
    pub(super) async fn pack(&self, target: &Path) -> Result<ramen_source::Layer, UvFault> {
        let (target, scratch, progress) =
            (target.to_owned(), self.uv.scratch.clone(), self.progress);
        let packed = tokio::task::spawn_blocking(move || {
            let mut last = Instant::now();
            pack_dir(&target, &scratch, PackOptions::DEPS, &mut |at| {
                if last.elapsed().as_millis() >= 200 {
                    last = Instant::now();
                    progress.step(
                        Phase::Pack,
                        at.files,
                        at.total_files,
                        Some(at.bytes),
                        "packing",
                    );
                }
            })
        });
        match packed.await {
            Ok(Ok(layer)) => {
                self.progress.step(
                    Phase::Pack,
                    layer.files,
                    Some(layer.files),
                    Some(layer.size),
                    "packed",
                );
                Ok(layer)
            }
            Ok(Err(error)) => {
                let full = error.reason() == Reason::DiskFull;
                let reason = if full {
                    Reason::DiskFull
                } else {
                    Reason::InstallFailed
                };
                Err(UvFault::new(
                    reason,
                    format!("the installed files cannot be packed: {}", chain(&error)),
                ))
            }
            Err(error) => Err(UvFault::new(Reason::Internal, error.to_string())),
        }
    }
}
