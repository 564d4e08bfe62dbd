//! Reading archives. Nothing in them is trusted, not even when the digest fits.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{LayerError, Limits, shown, unsafe_part};
use crate::{Digest, digest::Hashing};

/// What came out of an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Unpacks an archive into `dir`, which must exist and be empty.
///
/// With `expected`, the digest of the whole archive is checked after the last byte: what is in
/// `dir` counts only when this returns `Ok`. The caller throws the folder away otherwise.
pub fn unpack(
    archive: impl Read,
    expected: Option<Digest>,
    dir: &Path,
    limits: Limits,
) -> Result<Unpacked, LayerError> {
    let mut hashing = Hashing::new(archive);
    let unpacked = read_archive(&mut hashing, dir, limits);
    if let Some(expected) = expected {
        // A wrong digest explains any other fault, so it is judged first, over all bytes.
        let drained = io::copy(&mut hashing, &mut io::sink());
        let (_, found, _) = hashing.finish();
        let ours = matches!(
            unpacked,
            Err(LayerError::DiskFull { .. } | LayerError::Write { .. } | LayerError::Read { .. })
        );
        if !ours {
            drained.map_err(|e| LayerError::Malformed(e.to_string()))?;
            if found != expected {
                return Err(LayerError::DigestMismatch { expected, found });
            }
        }
    }
    unpacked
}

fn malformed(error: &io::Error) -> LayerError {
    LayerError::Malformed(error.to_string())
}

fn read_archive(archive: impl Read, dir: &Path, limits: Limits) -> Result<Unpacked, LayerError> {
    let mut decoder = zstd::Decoder::new(archive).map_err(|e| malformed(&e))?;
    // 128 MiB of window: more than any level of ours asks for.
    decoder.window_log_max(27).map_err(|e| malformed(&e))?;
    let mut tar = tar::Archive::new(decoder);
    let mut done = Unpacked::default();
    let mut entries = 0;
    let mut seen = HashSet::new();
    let mut long_name: Option<Vec<u8>> = None;
    // Raw entries: the extensions of tar (links, sparse files, pax headers) are not interpreted
    // behind our back, and a "long name" of gigabytes is not read into memory.
    for entry in tar.entries().map_err(|e| malformed(&e))?.raw(true) {
        let mut entry = entry.map_err(|e| malformed(&e))?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() && long_name.is_none() {
            if entry.size() > limits.path_bytes + 1 {
                let name = entry.header().path_bytes();
                return Err(LayerError::UnsafePath {
                    path: shown(&name),
                    what: "too long",
                });
            }
            long_name = Some(read_long_name(&mut entry)?);
            continue;
        }
        let name = match long_name.take() {
            Some(name) => name,
            None => entry.header().path_bytes().into_owned(),
        };
        let path = safe_path(&name, limits)?;
        entries += 1;
        if entries > limits.entries {
            let (path, limit) = (shown(&name), limits.entries);
            return Err(LayerError::TooLarge {
                path,
                limit,
                unit: "entries",
            });
        }
        if !seen.insert(path.to_owned()) {
            return Err(LayerError::Duplicate { path: shown(&name) });
        }
        if kind.is_dir() {
            if entry.size() != 0 {
                return Err(LayerError::Malformed("a folder with content".to_owned()));
            }
            make_dirs(dir, path)?;
        } else if kind.is_file() {
            let size = entry.size();
            check_size(&name, size, done, limits)?;
            if let Some((parent, _)) = path.rsplit_once('/') {
                make_dirs(dir, parent)?;
            }
            let executable = entry.header().mode().map_err(|e| malformed(&e))? & 0o111 != 0;
            write_file(&mut entry, &dir.join(path), size, executable)?;
            done.files += 1;
            done.bytes += size;
        } else {
            return Err(LayerError::NotAFile {
                path: shown(&name),
                what: kind_name(kind),
            });
        }
    }
    Ok(done)
}

fn kind_name(kind: tar::EntryType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_hard_link() {
        "a hard link"
    } else if kind.is_character_special() || kind.is_block_special() {
        "a device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "an entry of another kind"
    }
}

fn read_long_name(entry: &mut impl Read) -> Result<Vec<u8>, LayerError> {
    let mut name = Vec::new();
    entry.read_to_end(&mut name).map_err(|e| malformed(&e))?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn safe_path(name: &[u8], limits: Limits) -> Result<&str, LayerError> {
    let refuse = |what| LayerError::UnsafePath {
        path: shown(name),
        what,
    };
    if name.len() as u64 > limits.path_bytes {
        return Err(refuse("too long"));
    }
    let path = std::str::from_utf8(name).map_err(|_| refuse("not UTF-8"))?;
    let path = path.strip_suffix('/').unwrap_or(path);
    match unsafe_part(path) {
        Some(what) => Err(refuse(what)),
        None => Ok(path),
    }
}

fn check_size(name: &[u8], size: u64, done: Unpacked, limits: Limits) -> Result<(), LayerError> {
    let path = || shown(name);
    if size > limits.file_bytes {
        return Err(LayerError::TooLarge {
            path: path(),
            limit: limits.file_bytes,
            unit: "bytes in one file",
        });
    }
    if done.bytes.saturating_add(size) > limits.total_bytes {
        let limit = limits.total_bytes;
        return Err(LayerError::TooLarge {
            path: path(),
            limit,
            unit: "bytes",
        });
    }
    Ok(())
}

/// Makes the folders of a checked relative path. None of them can be a link, since the folder was
/// empty and only files and folders are ever made in it.
fn make_dirs(dir: &Path, path: &str) -> Result<(), LayerError> {
    let full = dir.join(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&full)
        .map_err(|source| conflict(path, &full, source))
}

fn conflict(path: &str, full: &Path, source: io::Error) -> LayerError {
    match source.kind() {
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory => LayerError::Duplicate {
            path: shown(path.as_bytes()),
        },
        _ => LayerError::write(full, source),
    }
}

fn write_file(
    entry: &mut impl Read,
    full: &Path,
    size: u64,
    executable: bool,
) -> Result<(), LayerError> {
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(full)
        .map_err(|source| conflict(&full.to_string_lossy(), full, source))?;
    let mut buffer = vec![0; 1 << 16];
    let mut left = size;
    while left > 0 {
        let n = entry.read(&mut buffer).map_err(|e| malformed(&e))?;
        if n == 0 {
            return Err(LayerError::Malformed(
                "it ends in the middle of a file".to_owned(),
            ));
        }
        io::Write::write_all(&mut file, &buffer[..n])
            .map_err(|source| LayerError::write(full, source))?;
        left = left.saturating_sub(n as u64);
    }
    Ok(())
}
