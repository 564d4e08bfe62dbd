//! Layers: deterministic `tar.zst` archives of regular files and folders.
//!
//! The same files always give the same bytes: entries sorted, times 0, owner 0, modes 0644 and
//! 0755. Reading one back trusts nothing: no links, no devices, no path that leaves the folder, no
//! more entries or bytes than allowed.

mod incoming;
mod pack;
#[cfg(test)]
mod tests;
mod unpack;

use std::{io, path::PathBuf};

use ramen_group::{LayerRef, Reason};
use tempfile::TempPath;

use crate::Digest;

pub use incoming::Incoming;
pub use pack::{Links, PackOptions, Progress, pack_dir, pack_tree};
pub use unpack::{Unpacked, unpack};

/// The folder of a code layer that holds the packages.
pub const CODE_DIR: &str = "mcp";

/// The file in a code layer, beside `mcp/`, that lists what the walk refused.
pub const REFUSED_FILE: &str = "source.json";

/// The file in an unpacked layer that says how much there should be. No archive may hold it.
pub const STAMP_FILE: &str = ".ramen-layer.json";

/// The `mcp` folder of an unpacked code layer.
pub fn code_dir(unpacked: &std::path::Path) -> PathBuf {
    unpacked.join(CODE_DIR)
}

/// A packed layer in a temporary file, which goes away when this is dropped.
#[derive(Debug)]
pub struct Layer {
    pub(crate) path: TempPath,
    /// Digest of the archive.
    pub digest: Digest,
    /// Bytes of the archive.
    pub size: u64,
    /// Files in it; 0 when it was received rather than packed.
    pub files: u64,
    /// Their bytes; 0 when it was received.
    pub bytes: u64,
}

impl Layer {
    /// The archive.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// How this layer is named in the store and in reports.
    pub fn reference(&self, key: impl Into<String>) -> LayerRef {
        LayerRef {
            key: key.into(),
            digest: self.digest.to_string(),
            size: self.size,
        }
    }
}

/// What an archive may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files and folders.
    pub entries: u64,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes of a path.
    pub path_bytes: u64,
}

impl Limits {
    /// For code: what a walk lets through, with room.
    pub const CODE: Self = Self {
        entries: 50_000,
        file_bytes: 64 << 20,
        total_bytes: 512 << 20,
        path_bytes: 4096,
    };
    /// For installed requirements, which hold native libraries.
    pub const DEPS: Self = Self {
        entries: 1_000_000,
        file_bytes: 4 << 30,
        total_bytes: 16 << 30,
        path_bytes: 4096,
    };
}

/// Why an archive could not be made or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Something that is neither a file nor a folder.
    #[error("{path}: {what}; a layer holds regular files and folders only")]
    NotAFile {
        /// The path in the layer, escaped.
        path: String,
        /// `a symbolic link`, `a device`, …
        what: &'static str,
    },
    /// A path that is absolute, climbs, is not UTF-8 or is reserved.
    #[error("{path}: a layer cannot hold a path like this ({what})")]
    UnsafePath {
        /// The path, escaped.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The same path twice, or a file where a folder is.
    #[error("{path}: the path occurs twice in the layer")]
    Duplicate {
        /// The path, escaped.
        path: String,
    },
    /// More than the limits allow.
    #[error("{path}: the layer has more than {limit} {unit}")]
    TooLarge {
        /// Where the limit was crossed.
        path: String,
        /// The limit.
        limit: u64,
        /// Its unit.
        unit: &'static str,
    },
    /// Not a `tar.zst` archive, or one that ends early.
    #[error("the archive cannot be read: {0}")]
    Malformed(String),
    /// The bytes are not those that the digest names.
    #[error("the archive has the digest {found} instead of {expected}")]
    DigestMismatch {
        /// What was asked for.
        expected: Digest,
        /// What is there.
        found: Digest,
    },
    /// No room.
    #[error("no room left on the disk while writing {path}")]
    DiskFull {
        /// The file or folder being written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file changed or could not be read while it was packed.
    #[error("cannot read {path}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LayerError {
    pub(crate) fn write(path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        if disk_is_full(&source) {
            Self::DiskFull { path, source }
        } else {
            Self::Write { path, source }
        }
    }

    /// How reports and statuses name this, when an archive is unpacked.
    pub fn reason(&self) -> Reason {
        match self {
            Self::DiskFull { .. } => Reason::DiskFull,
            Self::Read { .. } | Self::Write { .. } => Reason::Internal,
            _ => Reason::LayerCorrupt,
        }
    }

    /// Whether the archive itself is at fault, so that making it again may help.
    pub fn is_corrupt(&self) -> bool {
        !matches!(
            self,
            Self::DiskFull { .. } | Self::Read { .. } | Self::Write { .. }
        )
    }
}

pub(crate) fn disk_is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A path for a message: bounded and without control characters.
pub(crate) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut out: String = text
        .chars()
        .take(300)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(300).is_some() {
        out.push('…');
    }
    out
}

/// Checks a relative path with `/` between its parts; gives what is wrong with it.
pub(crate) fn unsafe_part(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("empty");
    }
    if path.starts_with('/') {
        return Some("absolute");
    }
    path.split('/').find_map(|part| match part {
        "" | "." => Some("an empty part"),
        ".." => Some("a `..` part"),
        STAMP_FILE => Some("a reserved name"),
        _ if part.len() > 255 => Some("a part over 255 bytes"),
        _ if part.contains(['\0', '\\']) => Some("a NUL or a backslash"),
        _ => None,
    })
}
