//! Where the messages that answer a request come from.

use bytes::Bytes;
use tonic::Status;

use crate::pool::Session;
use crate::upstreams::Running;

/// A worker or an upstream. Dropping it cancels the request there.
pub(super) enum Source {
    Worker(Box<Session>),
    Upstream(Running),
}

impl Source {
    /// The next message; `None` when there is none any more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        match self {
            Self::Worker(session) => session.next().await,
            Self::Upstream(running) => Ok(running.next().await),
        }
    }

    /// The answer came. `Some`: it says that a worker did not begin the request.
    pub(super) fn answered(&self, outcome: Result<&str, &str>) -> Option<Status> {
        match self {
            Self::Worker(session) => session.answered(outcome),
            Self::Upstream(_) => None,
        }
    }
}
