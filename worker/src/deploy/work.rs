//! The scratch folder of one run, inside the output folder.

use std::path::{Path, PathBuf};

/// Removed when dropped. What a killed run left is removed by the next one.
#[derive(Debug)]
pub(crate) struct Work(PathBuf);

impl Work {
    /// Makes `<out>/work-<pid>`.
    pub(crate) fn open(out: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(out)?;
        let out = out.canonicalize()?;
        for entry in std::fs::read_dir(&out)?.flatten() {
            let name = entry.file_name();
            let pid = name
                .to_str()
                .and_then(|name| name.strip_prefix("work-")?.parse::<u32>().ok());
            if pid.is_some_and(|pid| !is_running(pid)) {
                remove(&entry.path());
            }
        }
        let dir = out.join(format!("work-{}", std::process::id()));
        remove(&dir);
        std::fs::create_dir(&dir)?;
        Ok(Self(dir))
    }

    /// A folder in it.
    pub(crate) fn dir(&self, name: &str) -> std::io::Result<PathBuf> {
        let dir = self.0.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn is_running(pid: u32) -> bool {
    pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists()
}

fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a scratch folder");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_by_the_next() {
        let out = tempfile::tempdir().unwrap();
        // No process has an id this large.
        let stale = out.path().join("work-4294967295");
        std::fs::create_dir_all(stale.join("target")).unwrap();
        let work = Work::open(out.path()).unwrap();
        assert!(!stale.exists());
        let dir = work.dir("scratch").unwrap();
        assert!(dir.is_dir());
        drop(work);
        assert!(!dir.exists());
    }
}
