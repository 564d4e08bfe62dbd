//! A folder used by several processes: everyone holds a shared lock while they use it; whoever
//! finds itself alone at start may sweep what a crash left behind.

use std::{fs::File, io, path::Path};

pub(crate) const LOCK_FILE: &str = ".lock";

/// The shared lock; dropped with the last user of the folder in this process.
#[derive(Debug)]
pub(crate) struct SharedDir {
    _lock: File,
}

impl SharedDir {
    /// Opens the folder for shared use. `sweep` runs only when nobody else uses it.
    pub(crate) fn open(
        dir: &Path,
        sweep: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(LOCK_FILE);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        if lock.try_lock().is_ok() {
            let swept = sweep(dir);
            lock.unlock()?;
            swept?;
        }
        lock.lock_shared()?;
        Ok(Self { _lock: lock })
    }
}
