//! One pass over the tree under `mcp/`: what is there, and what must not be.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::{Finding, PackageKind, Reason, strays};

/// Files and folders under `mcp/`.
const MAX_ENTRIES: usize = 20_000;
/// Folders within folders.
const MAX_DEPTH: usize = 32;

/// Something that must not be.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// From `mcp/`.
    pub(super) path: String,
}

impl Fault {
    pub(super) fn mcp_path(&self) -> String {
        format!("mcp/{}", self.path)
    }
}

/// A regular file.
#[derive(Debug, Clone)]
struct File {
    /// From `mcp/`, with `/`.
    path: String,
}

/// Everything under `mcp/` that is not litter.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: Vec<File>,
    /// Folders directly under `tools`, `resources`, `prompts` that hold anything.
    faults: Vec<Fault>,
    ignored: Vec<(String, String)>,
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// `tools/calc` of `tools/calc/utils/x.py`.
fn package_of(path: &str) -> Option<(PackageKind, &str)> {
    let mut parts = path.split('/');
    let kind = parts.next()?;
    let kind = PackageKind::ALL
        .into_iter()
        .find(|known| known.folder() == kind)?;
    Some((kind, parts.next()?))
}

impl Tree {
    /// Reads the tree; a tree that is too large, or a folder that cannot be read, is a finding.
    pub(super) fn read(root: &Path) -> Result<Self, Finding> {
        let mut tree = Self::default();
        let mut left = MAX_ENTRIES;
        tree.folder(root, "", 0, &mut left)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.faults.sort_by(|a, b| a.path.cmp(&b.path));
        tree.ignored.sort();
        Ok(tree)
    }

    fn fault(&mut self, reason: Reason, path: &str, message: impl Into<String>) {
        self.faults.push(Fault {
            reason,
            message: message.into(),
            path: path.to_owned(),
        });
    }

    fn folder(
        &mut self,
        dir: &Path,
        path: &str,
        depth: usize,
        left: &mut usize,
    ) -> Result<(), Finding> {
        let too_large = |message: String| {
            Finding::group(Reason::TreeTooLarge, message).at_path(format!("mcp/{path}"))
        };
        if depth > MAX_DEPTH {
            return Err(too_large(format!("folders nest deeper than {MAX_DEPTH}")));
        }
        let unreadable = |error: std::io::Error| {
            Finding::group(Reason::PathRefused, format!("cannot be read: {error}"))
                .at_path(format!("mcp/{path}"))
        };
        for entry in fs::read_dir(dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            *left = left
                .checked_sub(1)
                .ok_or_else(|| too_large(format!("more than {MAX_ENTRIES} files and folders")))?;
            let os_name = entry.file_name();
            let name = os_name.to_string_lossy();
            let inner = if path.is_empty() {
                name.to_string()
            } else {
                format!("{path}/{name}")
            };
            let kind = entry.file_type().map_err(unreadable)?;
            if &*name == ".git" && depth > 0 {
                self.fault(Reason::SubmoduleRefused, path, "a git submodule lies here");
                continue;
            }
            if strays::is_litter(name.as_bytes()) {
                continue;
            }
            if kind.is_symlink() {
                let target = fs::read_link(entry.path()).unwrap_or_default();
                let target: String = target.display().to_string().chars().take(100).collect();
                let message =
                    format!("a symbolic link to `{target}`; links are not supported under mcp/");
                self.fault(Reason::SymlinkRefused, &inner, message);
            } else if os_name.to_str().is_none()
                || name.contains(['\\', '\0'])
                || name.chars().any(char::is_control)
            {
                let message =
                    "the name is not UTF-8, or has a backslash or control character in it";
                self.fault(Reason::PathRefused, &inner, message);
            } else if kind.is_dir() {
                self.strange_folder(&name, depth);
                self.folder(&entry.path(), &inner, depth + 1, left)?;
            } else if kind.is_file() {
                if is_lfs_pointer(&entry.path()) {
                    self.fault(Reason::LfsPointer, &inner, strays::LFS_MESSAGE);
                }
                self.stray_file(&name, &inner, depth);
                self.files.push(File { path: inner });
            } else {
                self.fault(Reason::PathRefused, &inner, "neither a file nor a folder");
            }
        }
        Ok(())
    }

    /// `mcp/tool/` and the like: probably a slip.
    fn strange_folder(&mut self, name: &str, depth: usize) {
        let slip = |kind: &PackageKind| {
            name != kind.folder()
                && (name.eq_ignore_ascii_case(kind.folder())
                    || name.eq_ignore_ascii_case(kind.as_str()))
        };
        if depth == 0
            && let Some(kind) = PackageKind::ALL.iter().find(|kind| slip(kind))
        {
            let message = format!(
                "ignored; packages of this kind lie under {}/",
                kind.folder()
            );
            self.ignored.push((name.to_owned(), message));
        }
    }

    /// Files where package folders or the known files are expected.
    fn stray_file(&mut self, name: &str, path: &str, depth: usize) {
        let among_packages = depth == 1 && package_of(path).is_some();
        if among_packages && (has_extension(name, "py") || has_extension(name, "json")) {
            if name != "__init__.py" {
                let message = "ignored; a package is a folder with this file in it";
                self.ignored.push((path.to_owned(), message.to_owned()));
            }
        } else if depth == 0 && matches!(name, "env.yml" | "tests.yml" | "guardrails.yml") {
            let message = "ignored; the name ends in .yaml";
            self.ignored.push((path.to_owned(), message.to_owned()));
        }
    }

    /// Names of the package folders of one kind: those that hold anything, or something refused.
    pub(super) fn packages(&self, kind: PackageKind) -> Vec<&str> {
        let files = self.files.iter().map(|file| &*file.path);
        let faults = self.faults.iter().map(|fault| &*fault.path);
        let mut names: Vec<&str> = files
            // `tools/x.py` is no package, `tools/x/y` is.
            .filter(|path| path.matches('/').count() >= 2)
            .chain(faults)
            .filter_map(package_of)
            .filter(|(found, _)| *found == kind)
            .map(|(_, name)| name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Files of one package, as paths from its folder.
    pub(super) fn files_of(&self, dir: &str) -> impl Iterator<Item = &str> {
        self.files
            .iter()
            .filter_map(move |file| file.path.strip_prefix(dir)?.strip_prefix('/'))
    }

    /// Whether a path from `mcp/` is a regular file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .is_ok()
    }

    /// What must not be within one package.
    pub(super) fn faults_of(&self, dir: &str) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| {
            fault
                .path
                .strip_prefix(dir)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// What must not be outside the packages.
    pub(super) fn loose_faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults
            .iter()
            .filter(|fault| package_of(&fault.path).is_none())
    }

    /// Paths that nobody reads although they look as if somebody should.
    pub(super) fn ignored(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ignored
            .iter()
            .map(|(path, message)| (&**path, &**message))
    }
}

fn is_lfs_pointer(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else {
        return false;
    };
    let limit = strays::LFS_POINTER_MAX;
    let mut head = Vec::with_capacity(limit);
    let read = file.take(limit as u64).read_to_end(&mut head);
    read.is_ok() && strays::is_lfs_pointer(&head)
}
