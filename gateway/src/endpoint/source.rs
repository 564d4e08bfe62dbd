//! Where the messages that answer a request come from.

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Status;

use crate::pool::{self, Session};
use crate::upstreams::Running;

/// A request that is being answered. Dropping it cancels it there.
pub(super) struct Source {
    from: Answerer,
    until: Instant,
}

enum Answerer {
    Worker(Box<Session>),
    Upstream(Running),
}

impl Source {
    /// A worker, with so long for its answer.
    pub(super) fn worker(session: Session, until: Instant) -> Self {
        let from = Answerer::Worker(Box::new(session));
        Self { from, until }
    }

    /// An upstream.
    pub(super) fn upstream(running: Running, until: Instant) -> Self {
        let from = Answerer::Upstream(running);
        Self { from, until }
    }

    /// The next message; `None` when there is none any more.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let next = async {
            match &mut self.from {
                Answerer::Worker(session) => session.next().await,
                Answerer::Upstream(running) => Ok(running.next().await),
            }
        };
        let next = tokio::time::timeout_at(self.until, next).await;
        next.unwrap_or_else(|_| Err(pool::overdue()))
    }

    /// The answer came. `Some`: it is the status of a request that failed at a worker.
    pub(super) fn answered(&self, outcome: Result<&str, &str>) -> Option<Status> {
        match &self.from {
            Answerer::Worker(session) => session.answered(outcome),
            Answerer::Upstream(_) => None,
        }
    }
}
