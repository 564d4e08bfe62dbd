//! What carries messages to a server and back.

pub(crate) mod http;
pub(crate) mod pipe;
pub(crate) mod stdio;

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use ramen_mcp::{RequestId, Version};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::error::ClientError;

/// How many messages may wait between a transport and the one who reads them. A server that floods waits.
pub(crate) const QUEUE: usize = 64;

/// A message to the server, and what a transport needs to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// The message.
    pub(crate) body: Bytes,
    /// The request's id; `None` for a notification.
    pub(crate) id: Option<RequestId>,
    /// The method.
    pub(crate) method: String,
    /// `params.name` or `params.uri`, where HTTP mirrors it.
    pub(crate) name: Option<String>,
    /// Arguments that HTTP mirrors in headers of their own.
    pub(crate) headers: Vec<(String, String)>,
    /// The revision it is written in, once one is agreed on.
    pub(crate) version: Option<Version>,
}

/// What comes in.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A message.
    Message(Bytes),
    /// The request with this id gets no answer.
    Failed(RequestId, ClientError),
    /// Something that is no message was skipped.
    Skipped(&'static str),
    /// The transport went away; nothing comes after it.
    End(String),
}

/// The way to a server.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Hands a message over, and waits for room if need be.
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), ClientError>>;

    /// Hands over a message that may be lost: the answer to a ping, a cancellation.
    fn post(&self, message: Outgoing);

    /// Gives up on the request with this id; `notice` tells the server so where the transport alone does not. Without one
    /// the server is not to be told.
    fn cancel(&self, id: &RequestId, notice: Option<Outgoing>);

    /// Opens what carries messages that answer nothing, where that is a thing of its own (legacy HTTP).
    fn listen(&self, _version: Version) {}

    /// Begins to end the connection and what was started for it.
    fn stop(&self);

    /// Takes secrets out of a text that the transport came to know later than the configuration.
    fn mask(&self, text: String) -> String {
        text
    }

    /// How long the end may take from now on, whether it has begun or not.
    fn hurry(&self, _patience: Duration) {}

    /// Waits until that is done, within a bounded time.
    fn stopped(&self) -> BoxFuture<'_, ()>;
}

/// Waits until a step of an end has taken as long as it may, which may become less meanwhile.
pub(crate) async fn passed(begun: Instant, patience: &mut watch::Receiver<Duration>) {
    loop {
        let left = patience.borrow_and_update().saturating_sub(begun.elapsed());
        let over = tokio::time::sleep(left);
        tokio::pin!(over);
        tokio::select! {
            () = &mut over => return,
            changed = patience.changed() => if changed.is_err() {
                // Nobody is there any more who could change it.
                return over.await;
            }
        }
    }
}

/// Both ways.
pub(crate) struct Link {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) inbound: mpsc::Receiver<Inbound>,
}
