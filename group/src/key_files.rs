//! Key files: where the keys of a door come from, and whether they changed.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ramen_redact::KeySet;

/// Largest key file that is read.
const MAX_FILE: u64 = 1024 * 1024;

/// Where keys come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFiles {
    /// A folder, each regular file of which holds keys.
    pub dir: Option<PathBuf>,
    /// A single file.
    pub file: Option<PathBuf>,
}

/// What changes when a file does: its name, identity, length and time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPrint(Vec<(PathBuf, u64, u64, i64, i64)>);

/// A file or folder that gives no keys although it was named.
#[derive(Debug)]
pub struct KeyFault {
    /// Which one.
    pub path: PathBuf,
    /// Why.
    pub error: std::io::Error,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl KeyFiles {
    fn paths(&self, faults: &mut Vec<KeyFault>) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.file.iter().cloned().collect();
        if let Some(dir) = &self.dir {
            match fs::read_dir(dir) {
                Ok(entries) => paths.extend(
                    entries
                        .flatten()
                        .filter(|entry| !is_hidden(entry.file_name().as_encoded_bytes()))
                        .map(|entry| entry.path()),
                ),
                Err(error) => faults.push(KeyFault {
                    path: dir.clone(),
                    error,
                }),
            }
        }
        paths.sort();
        paths
    }

    /// How the files look now: another print means that they are to be read again.
    pub fn print(&self) -> KeyPrint {
        let found = self.paths(&mut Vec::new()).into_iter();
        let prints = found.filter_map(|path| {
            let meta = fs::metadata(&path).ok()?;
            Some((
                path,
                meta.ino(),
                meta.len(),
                meta.mtime(),
                meta.mtime_nsec(),
            ))
        });
        KeyPrint(prints.collect())
    }

    /// The keys that are valid now, and what could not be read. A file that cannot be read gives none.
    pub fn read(&self) -> (KeySet, Vec<KeyFault>) {
        let (mut keys, mut faults) = (KeySet::empty(), Vec::new());
        for path in self.paths(&mut faults) {
            match read_small(&path) {
                Ok(Some(text)) => {
                    let name = path.file_name().and_then(|name| name.to_str());
                    keys.add_named(name, &text);
                }
                Ok(None) => {}
                Err(error) => faults.push(KeyFault { path, error }),
            }
        }
        (keys, faults)
    }
}

/// The keys in entries that would be the files of a folder: what a worker reads of a Secret that is mounted.
pub fn keys_of_entries<'e>(entries: impl IntoIterator<Item = (&'e str, &'e [u8])>) -> KeySet {
    let mut keys = KeySet::empty();
    for (name, value) in entries {
        if !is_hidden(name.as_bytes())
            && value.len() as u64 <= MAX_FILE
            && let Ok(text) = std::str::from_utf8(value)
        {
            keys.add_named(Some(name), text);
        }
    }
    keys
}

fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

/// The text of a regular file of at most 1 MiB; `None`: it is none, such as a folder.
pub fn read_small(path: &Path) -> std::io::Result<Option<String>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Ok(None);
    }
    if meta.len() > MAX_FILE {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    fs::read_to_string(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_a_folder_gives_keys_and_what_cannot_be_read_is_told() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("a"), "rmk_a\n").unwrap();
        fs::write(temp.path().join(".hidden"), "rmk_hidden\n").unwrap();
        fs::create_dir(temp.path().join("folder")).unwrap();
        fs::write(temp.path().join("bytes"), [0xff, 0xfe]).unwrap();
        let files = KeyFiles {
            dir: Some(temp.path().to_owned()),
            file: Some(temp.path().join("missing")),
        };
        let (keys, faults) = files.read();
        assert!(keys.len() == 1 && keys.admits("rmk_a"));
        let digest = ramen_redact::KeyDigest::of("rmk_a");
        assert_eq!(keys.name_of(&digest), Some("a"), "by its file");
        let entries: [(&str, &[u8]); 3] = [
            ("a", b"rmk_a\n"),
            (".hidden", b"rmk_hidden\n"),
            ("bytes", &[0xff, 0xfe]),
        ];
        assert_eq!(keys_of_entries(entries), keys);
        let told: Vec<_> = faults.iter().map(|fault| fault.path.clone()).collect();
        assert_eq!(
            told,
            [temp.path().join("bytes"), temp.path().join("missing")]
        );
    }

    #[test]
    fn another_key_is_another_print() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("keys");
        fs::write(&file, "rmk_a").unwrap();
        let files = KeyFiles {
            dir: None,
            file: Some(file.clone()),
        };
        let before = files.print();
        assert_eq!(files.print(), before);
        fs::write(&file, "rmk_ab").unwrap();
        assert_ne!(files.print(), before);
        fs::remove_file(&file).unwrap();
        assert_eq!(files.print(), KeyPrint::default());
    }
}
