//! Why a revision was not loaded.

use ramen_group::Reason;
use ramen_source::cache::CacheError;
use ramen_source::store::StoreError;

/// Why a revision was not loaded. The one that served goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The store cannot be used.
    #[error("cannot open the store")]
    Store(#[source] StoreError),
    /// The cache cannot be used.
    #[error("cannot open the cache")]
    Cache(#[source] CacheError),
    /// A layer could not be fetched or unpacked.
    #[error("cannot unpack the {layer} layer")]
    Layer {
        /// `code` or `deps`.
        layer: &'static str,
        /// Why.
        #[source]
        source: CacheError,
    },
    /// A folder for the hosts could not be made.
    #[error("cannot make a home folder for the hosts")]
    Home(#[source] std::io::Error),
    /// There is no program for this Python.
    #[error("there is no host program for Python {python}: {path} does not exist")]
    NoHostProgram {
        /// The version asked for.
        python: String,
        /// Where it should be.
        path: String,
    },
    /// Packages that are not excluded have faults.
    #[error("packages do not load: {0}")]
    Packages(String),
    /// No host came up.
    #[error("no host came up: {0}")]
    Hosts(String),
}

impl ReloadError {
    /// How statuses name this.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Layer { source, .. } | Self::Cache(source) => source.reason(),
            Self::Store(error) => error.reason(),
            Self::Home(_) => Reason::Internal,
            Self::NoHostProgram { .. } | Self::Packages(_) | Self::Hosts(_) => Reason::ReloadFailed,
        }
    }

    /// Whether trying again with the same desired state may help.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Packages(_) | Self::NoHostProgram { .. })
    }
}

/// A load that was refused: the error itself, and what to tell of it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotLoaded {
    /// Why.
    #[source]
    pub error: ReloadError,
    /// Everything behind the error as text, redacted.
    pub message: String,
}
