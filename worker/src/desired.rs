//! The desired-state file (`RAMEN_DESIRED`): what it names is served, whenever it changes.
//!
//! `Admin/Reload` says the same sooner, and the file comes after it. What a reload took the place of
//! is not loaded again because the file still names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::DesiredState;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::generation::Manager;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The first pause before a revision that did not load for a passing reason is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The longest such pause.
const MAX_RETRY: Duration = Duration::from_mins(1);

/// Inode, bytes and time of a file: when these are the same, so is its text.
type Stamp = (u64, u64, i64, i64);

/// Serves what a file names.
pub struct Follower {
    manager: Arc<Manager>,
    file: PathBuf,
    seen: Option<Vec<u8>>,
    stamp: Option<Stamp>,
    pause: Duration,
    retry_at: Option<Instant>,
}

impl Follower {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(manager: Arc<Manager>, file: PathBuf) -> Self {
        Self {
            manager,
            file,
            seen: None,
            stamp: None,
            pause: RETRY,
            retry_at: None,
        }
    }

    /// Looks again and again, and at once when told; then whatever the file names counts.
    pub(crate) async fn run(mut self, now: Arc<Notify>) {
        loop {
            self.look().await;
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = now.notified() => {
                    self.manager.overtake_nothing();
                    self.stamp = None;
                    self.seen = None;
                }
            }
        }
    }

    /// Loads what the file names when it has changed, or when it is time to try again.
    pub async fn look(&mut self) {
        let now = stamp(&self.file);
        let again = self.retry_at.is_some_and(|at| at <= Instant::now());
        if now.is_none() || (self.stamp == now && !again) {
            return;
        }
        match fs::read(&self.file) {
            Ok(text) if again || self.seen.as_ref() != Some(&text) => {
                if !again {
                    self.pause = RETRY;
                }
                self.retry_at = None;
                if !self.apply(&text).await {
                    self.retry_at = Some(Instant::now() + self.pause);
                    self.pause = (self.pause * 2).min(MAX_RETRY);
                }
                self.seen = Some(text);
                self.stamp = now;
            }
            Ok(_) => self.stamp = now,
            Err(error) => tracing::warn!(%error, "cannot read the desired state"),
        }
    }

    /// False when another try may help.
    async fn apply(&self, text: &[u8]) -> bool {
        match serde_json::from_slice::<DesiredState>(text) {
            Ok(desired) => match self.manager.follow(desired).await {
                Ok(_) => true,
                Err(refused) => !refused.error.may_pass(),
            },
            Err(error) => {
                tracing::error!(%error, "the desired state is not readable");
                true
            }
        }
    }
}

/// What the file names now, if it can be told.
pub(crate) fn read(file: &Path) -> Option<DesiredState> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn stamp(file: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = fs::metadata(file).ok()?;
    Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}
