//! Why a layer could not be made ready for use.

use std::{io, path::PathBuf};

use ramen_group::Reason;

use crate::{Digest, layer::LayerError, store::StoreError};

/// Why a layer could not be made ready for use.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The store could not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive is damaged. It was removed from the store, so that it is built again.
    #[error("the layer {key} ({digest}) is corrupt and was removed from the store")]
    Corrupt {
        /// Its key.
        key: String,
        /// Its digest.
        digest: Digest,
        /// What is wrong with it.
        source: Box<LayerError>,
    },
    /// The archive could not be unpacked here.
    #[error("cannot unpack the layer {key}")]
    Unpack {
        /// Its key.
        key: String,
        /// Why.
        source: Box<LayerError>,
    },
    /// The cache folder cannot be used.
    #[error("cannot use {path} as a cache of layers")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl CacheError {
    /// Whether making the layer again is the way out.
    pub fn needs_rebuild(&self) -> bool {
        matches!(
            self,
            Self::Corrupt { .. } | Self::Store(StoreError::Missing { .. })
        )
    }

    /// How reports and statuses name this.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Corrupt { .. } => Reason::LayerCorrupt,
            Self::Store(error) => error.reason(),
            Self::Unpack { source, .. } => source.reason(),
            Self::Folder { .. } => Reason::Internal,
        }
    }
}
