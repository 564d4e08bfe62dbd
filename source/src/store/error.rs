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
    /// The bucket is not there.
    #[error(
        "{what} cannot be written, the bucket of the store does not exist; check the address of the store"
    )]
    NoBucket {
        /// What was being written.
        what: String,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The provider of the bucket does not let us.
    #[error(
        "the bucket of the store refuses access to {what}; check the credentials, and what they may do in it"
    )]
    Refused {
        /// What was being read or written.
        what: String,
        /// The store's error.
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

type Source = Box<dyn std::error::Error + Send + Sync>;

/// A failed read, told apart from a bucket that refuses it.
pub(super) fn read_failed(what: String, source: Source) -> StoreError {
    if is_refusal(source.as_ref()) {
        StoreError::Refused { what, source }
    } else {
        StoreError::Read { what, source }
    }
}

/// A failed write, told apart from a full disk and from a bucket that refuses it or is not there.
pub(super) fn write_failed(what: String, source: Source) -> StoreError {
    let is_full = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(disk_is_full)
    };
    if causes(source.as_ref()).any(is_full) {
        return StoreError::DiskFull { what, source };
    }
    // Nothing but the bucket can be missing where something is written.
    if matches!(
        source.downcast_ref(),
        Some(object_store::Error::NotFound { .. })
    ) {
        return StoreError::NoBucket { what, source };
    }
    if is_refusal(source.as_ref()) {
        return StoreError::Refused { what, source };
    }
    StoreError::Write { what, source }
}

/// Whether a provider knows nobody of that name, or knows them and does not let them.
fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    causes(error).any(|error| {
        matches!(
            error.downcast_ref(),
            Some(PermissionDenied { .. } | Unauthenticated { .. })
        )
    })
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
