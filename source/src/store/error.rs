//! Why the store could not do it.

use std::{io, path::PathBuf};

use ramen_group::Reason;

use crate::{Digest, layer::disk_is_full};

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key that cannot be a name.
    #[error("{key:?} cannot be a layer's key: 1 to 128 letters, digits, `-`, `_` or `.`")]
    InvalidKey {
        /// The key.
        key: String,
    },
    /// A digest that is none.
    #[error("the layer {key:?} has no usable digest")]
    InvalidDigest {
        /// The layer's key.
        key: String,
        /// What is wrong.
        source: crate::digest::DigestInvalid,
    },
    /// The layer is not there.
    #[error("the layer {key} ({digest}) is not in the store")]
    Missing {
        /// Its key.
        key: String,
        /// Its digest.
        digest: Digest,
    },
    /// No room.
    #[error("no room left on the disk of the store while writing {what}")]
    DiskFull {
        /// What was being written.
        what: String,
        /// The system's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store's folder cannot be used.
    #[error("cannot use {path} as a store")]
    Open {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Reading failed.
    #[error("cannot read {what} from the store")]
    Read {
        /// What was being read.
        what: String,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Writing failed.
    #[error("cannot write {what} to the store")]
    Write {
        /// What was being written.
        what: String,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// How reports and statuses name this.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Missing { .. } => Reason::LayerMissing,
            Self::DiskFull { .. } => Reason::DiskFull,
            _ => Reason::Internal,
        }
    }
}

/// A failed write, told apart from a full disk.
pub(super) fn write_failed(
    what: String,
    source: Box<dyn std::error::Error + Send + Sync>,
) -> StoreError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(disk_is_full) {
            return StoreError::DiskFull { what, source };
        }
        cause = error.source();
    }
    StoreError::Write { what, source }
}
