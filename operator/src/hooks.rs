//! The webhook receiver. A hook is only a hint to look now: it names a repository and the refs that moved,
//! nothing more; what is there is resolved by ourselves, and polling goes on without any hook.
//!
//! ```text
//! POST /v1/hooks/{receiver}                        groups that follow a pushed ref of the repository that
//!                                                  the payload names
//! POST /v1/hooks/{receiver}/{namespace}/{group}    this group, whatever the payload says
//! ```
//! In this order: path and method, size, receiver, signature over the raw body, media type; only then is
//! the body read as JSON: event, delivery that came before, rate, match. An answer tells nothing about
//! which groups exist.
//!
//! Every replica answers. One that does not hold the lease cannot make a group look; it leaves a mark on
//! the group, which the replica that writes sees in its watch ([`trace`]).

mod coalesce;
mod endpoint;
mod payload;
mod receivers;
mod refs;
mod repository;
mod sender;
#[cfg(test)]
mod tests;
pub(crate) mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) use self::refs::Follows;
use crate::group::GroupKey;

/// A group, as the receiver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Which one.
    pub(crate) key: GroupKey,
    /// The address of its repository.
    pub(crate) address: String,
    /// What it follows there.
    pub(crate) follows: Follows,
}

/// The groups, as the receiver sees them.
pub(crate) trait Groups: Send + Sync + 'static {
    /// All of them.
    fn all(&self) -> Vec<Followed>;
    /// Makes a group look at its source soon, for a hook of this receiver. Many hints before the next look
    /// are one.
    fn look(&self, group: &GroupKey, receiver: &str);
    /// For metrics: what became of a hook (`accepted`, `ignored`, `unmatched`, `refused`, `limited`). The
    /// receiver is empty when there is none of the name that was asked for.
    fn counted(&self, receiver: &str, outcome: &'static str);
}

/// Bounds of a hook.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes of a body.
    body: usize,
    /// For a body to come in.
    body_time: Duration,
}

impl Limits {
    const DEFAULT: Self = Self {
        body: 1024 * 1024,
        body_time: Duration::from_secs(10),
    };
}

/// Answers hooks until told to stop. Receivers are the files of `dir`; they are read anew when they change.
pub(crate) async fn serve(
    listener: TcpListener,
    dir: PathBuf,
    groups: Arc<dyn Groups>,
    stop: CancellationToken,
) {
    let receivers = receivers::Receivers::new(dir);
    endpoint::serve(listener, receivers, Limits::DEFAULT, groups, stop).await;
}
