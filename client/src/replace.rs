//! A small file of one owner that several processes change: one after the other, and each time as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long a writer waits for others. Each of them has a disk to wait for, and the lock goes to any of those who wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// For its owner alone.
const MODE: u32 = 0o600;

/// The right to change one file, while it lives.
pub(crate) struct Change<'p> {
    path: &'p Path,
    _lock: File,
}

impl<'p> Change<'p> {
    /// Waits until nobody else changes the file; makes its folder when there is none.
    pub(crate) fn begin(path: &'p Path) -> io::Result<Self> {
        // The file itself is replaced, so it cannot carry the lock.
        let lock = lock_file(path, ".lock")?;
        let started = Instant::now();
        while !taken(&lock)? {
            if started.elapsed() > PATIENCE {
                return Err(rustix::io::Errno::WOULDBLOCK.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { path, _lock: lock })
    }

    /// Puts what `write` writes in the place of the file, at once: a reader sees the old or the new one.
    pub(crate) fn replace(
        self,
        write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> io::Result<()> {
        // One name, which only the holder of the lock writes to: what a writer that was killed left is taken away by
        // the next one.
        let new = beside(self.path, ".new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(MODE)
            .open(&new)?;
        let written = (|| {
            let mut out = BufWriter::new(&file);
            write(&mut out)?;
            out.flush()?;
            drop(out);
            file.sync_all()?;
            std::fs::rename(&new, self.path)
        })();
        if written.is_err() {
            // The next writer takes it away when this does not go.
            let _ = std::fs::remove_file(&new);
        }
        written
    }
}

/// A turn at something slow that goes with the file, for one process after the other, while the result lives. `None`: it
/// did not come in time, or there can be none.
pub(crate) async fn turn(path: &Path, patience: Duration) -> Option<File> {
    let lock = lock_file(path, ".turn").ok()?;
    let started = tokio::time::Instant::now();
    loop {
        match taken(&lock) {
            Ok(true) => return Some(lock),
            Ok(false) if started.elapsed() < patience => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => return None,
        }
    }
}

/// The file beside that carries a lock, in a folder that is made when there is none.
fn lock_file(path: &Path, ending: &str) -> io::Result<File> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The file is its owner's alone, and the folder may be one where others keep what is secret, too.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(MODE)
        .open(beside(path, ending))
}

/// Takes the lock, unless somebody else has it.
fn taken(lock: &File) -> io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file of this name with an ending more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_dead_writer_left_is_taken_away_and_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("f"), dir.path().join("elsewhere"));
        std::fs::write(&elsewhere, "untouched").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.path().join("f.new")).unwrap();
        let change = Change::begin(&path).unwrap();
        change.replace(|out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "untouched");
        assert_eq!(files(dir.path()), ["elsewhere", "f", "f.lock"]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "old").unwrap();
        let change = Change::begin(&path).unwrap();
        let failed = change.replace(|out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no room"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no room");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(files(dir.path()), ["f", "f.lock"]);
    }
}
