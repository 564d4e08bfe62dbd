//! The webhook receiver. A hook is only a hint to look now: it names a repository, nothing more; what is
//! there is resolved by ourselves, and polling goes on without any hook.
//!
//! ```text
//! POST /v1/hooks/{receiver}                        groups of the repository that the payload names
//! POST /v1/hooks/{receiver}/{namespace}/{group}    this group, whatever repository it names
//! ```
//! In this order: path and method, size, receiver, signature over the raw body; only then is the body
//! read as JSON. An answer tells nothing about which groups exist.

mod coalesce;
mod endpoint;
mod payload;
mod receivers;
mod repository;
mod sender;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::group::GroupKey;

/// The groups, as the receiver sees them.
pub(crate) trait Groups: Send + Sync + 'static {
    /// All, with the address of their repository.
    fn all(&self) -> Vec<(GroupKey, String)>;
    /// Makes a group look at its source soon. Many hints before the next look are one.
    fn look(&self, group: &GroupKey);
    /// For metrics: what became of a hook (`accepted`, `ignored`, `unmatched`, `refused`, `limited`).
    fn counted(&self, receiver: &str, outcome: &'static str) {
        let _ = (receiver, outcome);
    }
}

/// Answers hooks until told to stop. Receivers are the files of `dir`; they are read anew when they change.
pub(crate) async fn serve(
    listener: TcpListener,
    dir: PathBuf,
    groups: Arc<dyn Groups>,
    stop: CancellationToken,
) {
    endpoint::serve(listener, dir, groups, stop).await;
}
