//! Messages on their way to the client, and whether it reads them.

use std::time::Duration;

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::gate::InFlight;

/// A client that reads nothing for so long is cut off.
const SLOW_READER: Duration = Duration::from_secs(30);

/// Where all parts of a session send.
#[derive(Clone)]
pub(super) struct Outgoing {
    queue: mpsc::Sender<Result<JsonRpc, Status>>,
    /// Set when a message could not be queued in time.
    unread: CancellationToken,
    in_flight: InFlight,
}

impl Outgoing {
    pub(super) fn new(queue: mpsc::Sender<Result<JsonRpc, Status>>, in_flight: InFlight) -> Self {
        Self {
            queue,
            unread: CancellationToken::new(),
            in_flight,
        }
    }

    /// Queues a message. While the client does not read, this waits and has a place among the calls in flight: else
    /// answers that nobody takes would pile up without bound.
    pub(super) async fn send(&self, body: Bytes) -> Result<(), ()> {
        let message = match self.queue.try_send(Ok(JsonRpc { body })) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(()),
            Err(TrySendError::Full(message)) => message,
        };
        let _place = self.in_flight.try_take();
        if let Ok(sent) = tokio::time::timeout(SLOW_READER, self.queue.send(message)).await {
            sent.map_err(drop)
        } else {
            self.unread.cancel();
            Err(())
        }
    }

    /// Whether a message was left out because the client does not read.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.is_cancelled()
    }

    /// Waits until a message was left out.
    pub(super) async fn unread(&self) {
        self.unread.cancelled().await;
    }

    /// Waits until the client has gone.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }
}
