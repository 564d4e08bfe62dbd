//! The folders of a cache: leases, counting, and removing in one step.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use super::TEMP_PREFIX;
use crate::{
    layer::{STAMP_FILE, Unpacked},
    lock::LOCK_FILE,
};

/// A shared lock on a layer's stamp: whoever removes unpacked layers leaves this one alone.
#[derive(Debug)]
pub(super) struct Lease(fs::File);

impl Lease {
    /// Takes a lease on what is in `dir` now; absent when nothing usable is there.
    pub(super) fn take(dir: &Path) -> io::Result<Option<Self>> {
        let file = match fs::File::open(dir.join(STAMP_FILE)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        // Waits for one that is being removed. A file system without locks has no protection.
        let _ = file.lock_shared();
        let lease = Self(file);
        Ok(lease.holds(dir).then_some(lease))
    }

    /// Whether the stamp is still the one in `dir`: the folder may have been removed meanwhile.
    pub(super) fn holds(&self, dir: &Path) -> bool {
        match (self.0.metadata(), fs::metadata(dir.join(STAMP_FILE))) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }
}

pub(super) fn stamped(dir: &Path) -> Option<Unpacked> {
    serde_json::from_slice(&fs::read(dir.join(STAMP_FILE)).ok()?).ok()
}

/// Counts what is in a folder, but for `__pycache__`, where Python may add files.
pub(super) fn count(dir: &Path) -> io::Result<Unpacked> {
    let mut found = Unpacked::default();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if entry.file_name() != "__pycache__" {
                    folders.push(entry.path());
                }
            } else if entry.file_name() != STAMP_FILE {
                found.files += 1;
                found.bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(found)
}

/// Counts everything in a folder; absent when there is anything but files and folders in it.
pub(super) fn count_all(dir: &Path) -> io::Result<Option<Unpacked>> {
    let mut found = Unpacked::default();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.files += 1;
                found.bytes += entry.metadata()?.len();
            } else {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

/// Moves a folder out of sight, then removes it: nobody sees half of it.
pub(super) fn discard(root: &Path, dir: &Path) -> io::Result<()> {
    let temp = tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .tempdir_in(root)?;
    match fs::rename(dir, temp.path().join("gone")) {
        Ok(()) => temp.close(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

pub(super) fn sweep(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    debug_assert!(dir.join(LOCK_FILE).exists());
    Ok(())
}
