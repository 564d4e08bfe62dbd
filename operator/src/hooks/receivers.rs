//! The receivers: files `<name>.<sender>` of one folder, each with its secrets, one a line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ramen_redact::Secret;

use super::sender::Sender;

/// How old what was read may be. A mounted Secret takes a minute to arrive anyway.
const FRESH: Duration = Duration::from_secs(2);
/// Largest file.
const MAX_FILE: u64 = 64 * 1024;
/// Files that are read.
const MAX_FILES: usize = 1000;
/// Secrets that are valid at once.
const MAX_SECRETS: usize = 8;
/// Shorter ones are no secrets.
const MIN_SECRET: usize = 8;

/// One receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receiver {
    pub(super) sender: Sender,
    /// Without any it is not ready, and never lets all in.
    pub(super) secrets: Vec<Secret>,
}

/// All of them, read anew when they are old.
#[derive(Debug)]
pub(super) struct Receivers {
    dir: PathBuf,
    read: Option<Instant>,
    known: BTreeMap<String, Receiver>,
}

impl Receivers {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            read: None,
            known: BTreeMap::new(),
        }
    }

    /// The receiver of a name.
    pub(super) fn get(&mut self, name: &str, now: Instant) -> Option<Receiver> {
        let fresh = |at: Instant| now.saturating_duration_since(at) < FRESH;
        if !self.read.is_some_and(fresh) {
            self.read = Some(now);
            match load(&self.dir) {
                Ok(known) => self.known = known,
                Err(error) => {
                    // What was known stays: a Secret that is being replaced is gone for a moment.
                    tracing::warn!(dir = %self.dir.display(), %error, "the receivers cannot be read");
                }
            }
        }
        self.known.get(name).cloned()
    }

    /// Whether there is a receiver of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }
}

fn load(dir: &Path) -> std::io::Result<BTreeMap<String, Receiver>> {
    let mut known = BTreeMap::new();
    for entry in std::fs::read_dir(dir)?.take(MAX_FILES) {
        let entry = entry?;
        let file = entry.file_name();
        let Some((name, ending)) = file.to_str().and_then(|file| file.rsplit_once('.')) else {
            continue;
        };
        if name.is_empty() || name.starts_with('.') {
            continue;
        }
        let Some(sender) = Sender::ALL
            .into_iter()
            .find(|sender| sender.as_str() == ending)
        else {
            tracing::warn!(file = ?file, "a receiver's file ends with no known sender");
            continue;
        };
        let secrets = secrets(&entry.path())?;
        if secrets.is_empty() {
            tracing::warn!(
                receiver = name,
                "a receiver has no secret of 8 characters or more"
            );
        }
        known.insert(name.to_owned(), Receiver { sender, secrets });
    }
    Ok(known)
}

fn secrets(path: &Path) -> std::io::Result<Vec<Secret>> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_FILE)
        .read_to_string(&mut text)?;
    let lines = text.lines().map(str::trim);
    let secrets = lines.filter(|line| line.len() >= MIN_SECRET && !line.starts_with('#'));
    Ok(secrets.take(MAX_SECRETS).map(Secret::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_receivers_and_lines_are_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("acme.github", "first-secret\n# old:\nsecond-secret\n");
        write("lab.v2.gitlab", "only-secret");
        write("empty.gitea", "\n\nshort\n");
        write("odd.svn", "long-enough");
        write("noending", "long-enough");
        write("..data", "long-enough");
        let mut receivers = Receivers::new(dir.path().to_owned());
        let now = Instant::now();
        let acme = receivers.get("acme", now).unwrap();
        assert_eq!((acme.sender, acme.secrets.len()), (Sender::GitHub, 2));
        assert_eq!(receivers.get("lab.v2", now).unwrap().sender, Sender::GitLab);
        assert!(receivers.get("empty", now).unwrap().secrets.is_empty());
        for none in ["odd", "noending", "", ".", "acme.github"] {
            assert_eq!(receivers.get(none, now), None, "{none}");
        }
        // Two seconds later what changed counts.
        write("acme.github", "third-secret");
        assert_eq!(receivers.get("acme", now).unwrap().secrets.len(), 2);
        let later = now + FRESH;
        let acme = receivers.get("acme", later).unwrap();
        assert_eq!(acme.secrets, [Secret::from("third-secret")]);
        // While the folder is gone, what was known stays.
        drop(dir);
        assert!(receivers.get("acme", later + FRESH).is_some());
        assert!(!format!("{receivers:?}").contains("third-secret"));
    }
}
