//! Key files, read again when they change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_redact::KeySet;
use tokio::sync::Notify;

use super::Gate;

/// How often the files are looked at. A mounted Secret takes a minute to arrive anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Largest key file that is read.
const MAX_FILE: u64 = 1024 * 1024;

/// Where keys come from.
#[derive(Debug, Clone, Default)]
pub struct KeyFiles {
    /// A folder, each regular file of which holds keys.
    pub dir: Option<PathBuf>,
    /// A single file.
    pub file: Option<PathBuf>,
}

/// What changes when a file does: its name, identity, length and time.
type Fingerprint = Vec<(PathBuf, u64, u64, i64, i64)>;

impl KeyFiles {
    fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.file.iter().cloned().collect();
        match self.dir.as_deref().map(fs::read_dir) {
            Some(Ok(entries)) => paths.extend(
                entries
                    .flatten()
                    .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
                    .map(|entry| entry.path()),
            ),
            Some(Err(error)) => tracing::warn!(%error, "cannot read the folder of keys"),
            None => {}
        }
        paths.sort();
        paths
    }

    fn fingerprint(&self) -> Fingerprint {
        self.paths()
            .into_iter()
            .filter_map(|path| {
                let meta = fs::metadata(&path).ok()?;
                Some((
                    path,
                    meta.ino(),
                    meta.len(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                ))
            })
            .collect()
    }

    /// The keys that are valid now. A file that cannot be read gives none.
    pub fn read(&self) -> KeySet {
        let mut keys = KeySet::empty();
        for path in self.paths() {
            match read_file(&path) {
                Ok(Some(text)) => keys.add_lines(&text),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot read a key file; its keys are not valid");
                }
            }
        }
        keys
    }
}

fn read_file(path: &Path) -> std::io::Result<Option<String>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.len() > MAX_FILE {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    fs::read_to_string(path).map(Some)
}

/// Keeps the keys of both doors as the files say; `look` makes it look at once.
pub async fn watch(gate: Arc<Gate>, mcp: KeyFiles, admin: KeyFiles, look: Arc<Notify>) {
    let mut seen = (Fingerprint::new(), Fingerprint::new());
    let mut first = true;
    loop {
        let now = (mcp.fingerprint(), admin.fingerprint());
        if first || now != seen {
            let keys = mcp.read();
            if keys.is_empty() {
                tracing::warn!("no keys: every call is refused");
            } else {
                tracing::info!(keys = keys.len(), "keys read");
            }
            gate.mcp.set_keys(keys);
            gate.admin.set_keys(admin.read());
            seen = now;
            first = false;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = look.notified() => seen.0.clear(),
        }
    }
}
