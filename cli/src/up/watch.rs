//! Files that were saved: one signal for each burst of changes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long a burst must be quiet: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(50);

/// Changes under a folder, or of a file.
pub(super) struct Changes {
    events: mpsc::UnboundedReceiver<()>,
    /// When the burst that began will have been quiet for long enough.
    quiet_at: Option<Instant>,
    watcher: RecommendedWatcher,
    /// A folder that is watched with all that is in it, whenever it is there; and whether it is watched now.
    inner: Option<(PathBuf, bool)>,
}

impl Changes {
    /// Watches a group: the folder itself, and `mcp/` with all that is in it.
    pub(super) fn of_group(dir: &Path) -> notify::Result<Self> {
        let mcp = if dir.ends_with("mcp") {
            dir.to_owned()
        } else {
            dir.join("mcp")
        };
        let mut changes = Self::watch(dir, |path| !is_noise(path))?;
        changes.inner = Some((mcp, false));
        changes.follow_inner();
        Ok(changes)
    }

    /// Watches the inner folder when it has come, and forgets it when it is gone.
    fn follow_inner(&mut self) {
        let Some((dir, watched)) = &mut self.inner else {
            return;
        };
        *watched =
            dir.is_dir() && (*watched || self.watcher.watch(dir, RecursiveMode::Recursive).is_ok());
    }

    /// Watches a file through its folder, so that a replaced file is noticed too.
    pub(super) fn of_file(file: &Path) -> notify::Result<Self> {
        let name: OsString = file.file_name().unwrap_or_default().to_owned();
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Self::watch(&folder, move |path| path.file_name() == Some(&name))
    }

    fn watch(path: &Path, wanted: impl Fn(&Path) -> bool + Send + 'static) -> notify::Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                let relevant = match &event {
                    Ok(event) => {
                        !matches!(event.kind, EventKind::Access(_))
                            && (event.paths.is_empty()
                                || event.paths.iter().any(|path| wanted(path)))
                    }
                    // Events were lost: look anyway.
                    Err(_) => true,
                };
                if relevant {
                    // The receiver is gone only when nobody cares any more.
                    let _ = sender.send(());
                }
            })?;
        watcher.watch(path, RecursiveMode::NonRecursive)?;
        Ok(Self {
            events,
            quiet_at: None,
            watcher,
            inner: None,
        })
    }

    /// Resolves when something changed and the burst is over. May be dropped at any point and called again.
    pub(super) async fn next(&mut self) {
        loop {
            let event = match self.quiet_at {
                None => Some(self.events.recv().await),
                Some(at) => tokio::time::timeout_at(at, self.events.recv()).await.ok(),
            };
            match event {
                Some(Some(())) => self.quiet_at = Some(Instant::now() + QUIET),
                Some(None) => std::future::pending().await,
                None => {
                    self.quiet_at = None;
                    self.follow_inner();
                    return;
                }
            }
        }
    }
}

fn ends(name: &str, extension: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Files that editors and interpreters write beside the real ones.
fn is_noise(path: &Path) -> bool {
    let noisy = |part: &str| {
        matches!(
            part,
            "__pycache__"
                | ".git"
                | ".pytest_cache"
                | ".mypy_cache"
                | ".ruff_cache"
                | ".venv"
                | ".DS_Store"
        ) || ends(part, "pyc")
            || part.ends_with('~')
            || (part.starts_with('.') && ends(part, "swp"))
    };
    path.components()
        .filter_map(|part| part.as_os_str().to_str())
        .any(noisy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_save_is_noticed_and_noise_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("__pycache__")).unwrap();
        let mut changes = Changes::of_group(&dir).unwrap();
        std::fs::write(dir.join("__pycache__/a.pyc"), "1").unwrap();
        std::fs::write(dir.join("a.py"), "1").unwrap();
        tokio::time::timeout(PATIENCE, changes.next())
            .await
            .unwrap();
        assert!(changes.events.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_folder_that_comes_later_is_watched_too() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let mut changes = Changes::of_group(&dir).unwrap();
        for _ in 0..2 {
            std::fs::create_dir_all(dir.join("mcp/tools/a")).unwrap();
            tokio::time::timeout(PATIENCE, changes.next())
                .await
                .unwrap();
            std::fs::write(dir.join("mcp/tools/a/a.py"), "1").unwrap();
            tokio::time::timeout(PATIENCE, changes.next())
                .await
                .unwrap();
            std::fs::remove_dir_all(dir.join("mcp")).unwrap();
            tokio::time::timeout(PATIENCE, changes.next())
                .await
                .unwrap();
        }
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_no_change() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let mut changes = Changes::of_group(&dir).unwrap();
        std::fs::write(dir.join("a.py"), "1").unwrap();
        // Given up again and again, at every point of the burst.
        let given_up = async {
            while tokio::time::timeout(Duration::from_millis(1), changes.next())
                .await
                .is_err()
            {}
        };
        tokio::time::timeout(PATIENCE, given_up).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        let file = dir.join("group.yaml");
        std::fs::write(&file, "1").unwrap();
        let mut changes = Changes::of_file(&file).unwrap();
        for text in ["2", "3"] {
            std::fs::write(dir.join("other"), text).unwrap();
            std::fs::rename(dir.join("other"), &file).unwrap();
            tokio::time::timeout(PATIENCE, changes.next())
                .await
                .unwrap();
        }
    }
}
