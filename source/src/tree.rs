//! The files of `mcp/`, and the rules that say which of them may load.
//!
//! A walk (of a git tree or of a working folder) lists nodes, which are then judged. A fault
//! inside a package (`tools/x/…`) refuses that package: an entry that names the path, the package
//! is left out, the rest loads. A fault at a place that is no package's own is
//!
//! * fatal ([`TreeError::Refused`]) where going on would mean something else than what was
//!   pushed: `requirements.txt`, `env.yaml`, `tests.yaml`, `guardrails.yaml`, `guardrails/`, and
//!   the folders `tools`, `resources`, `prompts` themselves;
//! * a warning elsewhere (`mcp/docs/…`), and the file is left out.
//!
//! Too many files or bytes, and no `mcp/` at all, are fatal. Paths that differ only in case or
//! Unicode form are remarked on (a warning for each) and all load.

mod folder;
mod names;
mod select;
#[cfg(test)]
mod tests;

use std::{io, path::PathBuf, sync::Arc};

use ramen_group::{Finding, Reason};
use serde::{Deserialize, Serialize};

use crate::layer::REFUSED_FILE;

pub use folder::walk_folder;
#[cfg(feature = "git")]
pub(crate) use select::too_many;
pub(crate) use select::{Node, NodeKind, select};

/// A file of `mcp/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Path under `mcp/`, with `/` (`tools/calc/calc.py`).
    pub path: String,
    /// The bytes as stored: no filter, no line-end conversion, no smudging.
    pub data: Vec<u8>,
}

/// What a walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The key of the code layer: the git tree id of `mcp/`, or a hash of a working folder.
    pub id: String,
    /// The files that load, sorted by path. The executable bit is not kept.
    pub files: Vec<TreeFile>,
    /// Faults of packages; those packages are left out.
    pub errors: Vec<Finding>,
    /// Other files that were left out, and remarks.
    pub warnings: Vec<Finding>,
}

impl Tree {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.data.len() as u64).sum()
    }
}

/// How much may lie under `mcp/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLimits {
    /// Files and folders.
    pub entries: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Folders inside each other, counted from `mcp/`.
    pub depth: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            entries: 20_000,
            file_bytes: 32 << 20,
            total_bytes: 256 << 20,
            depth: 16,
        }
    }
}

/// Why a tree cannot load at all.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TreeError {
    /// There is no `mcp/`.
    #[error("there is no folder {path}")]
    Missing {
        /// Where it was looked for.
        path: String,
    },
    /// Over a limit.
    #[error("{path}: more than {limit} {unit} under mcp/")]
    TooLarge {
        /// Where the limit was crossed.
        path: String,
        /// The limit.
        limit: u64,
        /// Its unit.
        unit: &'static str,
    },
    /// A fault that no single package is to blame for.
    #[error("{0}")]
    Refused(Box<Finding>),
    /// A working folder could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// An object of the repository could not be read.
    #[error("{path}: the git object cannot be read: {message}")]
    Object {
        /// The path.
        path: String,
        /// The library's words.
        message: String,
    },
}

impl TreeError {
    /// How reports and statuses name this.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } => Reason::McpFolderMissing,
            Self::TooLarge { .. } => Reason::TreeTooLarge,
            Self::Refused(finding) => finding.reason,
            Self::Read { .. } | Self::Object { .. } => Reason::Internal,
        }
    }

    /// The same as an entry of the errors list.
    pub fn finding(&self) -> Finding {
        match self {
            Self::Refused(finding) => (**finding).clone(),
            Self::Read { source, .. } => Finding::group(self.reason(), format!("{self}: {source}")),
            other => Finding::group(other.reason(), other.to_string()),
        }
    }
}

/// What a code layer says about packages that the walk refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refused {
    /// For the errors list.
    pub errors: Vec<Finding>,
    /// For the warnings.
    pub warnings: Vec<Finding>,
}

pub(crate) fn refused_json(tree: &Tree) -> Option<String> {
    if tree.errors.is_empty() && tree.warnings.is_empty() {
        return None;
    }
    let refused = Refused {
        errors: tree.errors.clone(),
        warnings: tree.warnings.clone(),
    };
    Some(serde_json::to_string(&refused).expect("plain strings and numbers always serialise"))
}

/// What the walk refused, as an unpacked code layer tells it. Empty when it refused nothing.
pub fn refused(unpacked: &std::path::Path) -> io::Result<Refused> {
    match std::fs::read(unpacked.join(REFUSED_FILE)) {
        Ok(json) => serde_json::from_slice(&json).map_err(io::Error::other),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Refused::default()),
        Err(e) => Err(e),
    }
}
