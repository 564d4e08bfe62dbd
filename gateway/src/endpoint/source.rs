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
            Self::Worker(session) => {
                let message = session.incoming.message().await?;
                Ok(message.map(|message| message.body))
            }
            Self::Upstream(running) => Ok(running.next().await),
        }
    }
}
