//! Messages one a line, over any pair of byte streams.

pub(crate) mod lines;

use bytes::Bytes;
use futures::future::BoxFuture;
use ramen_mcp::RequestId;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Inbound, Outgoing, QUEUE, Wire};
use crate::error::ClientError;
use lines::{Line, Lines};

/// Writes what is handed over, one line each, until `stop`. Dropping the stream then is what tells a server to end.
pub(crate) fn write_lines<W>(
    mut output: W,
    stop: CancellationToken,
) -> (mpsc::Sender<Bytes>, JoinHandle<()>)
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, mut messages) = mpsc::channel::<Bytes>(QUEUE);
    let writer = tokio::spawn(async move {
        let writing = async {
            while let Some(body) = messages.recv().await {
                let mut line = Vec::with_capacity(body.len() + 1);
                line.extend_from_slice(&body);
                line.push(b'\n');
                // The end of the reading side tells why.
                if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = stop.cancelled() => {}
        }
    });
    (sender, writer)
}

/// Reads lines into `inbound` until the stream ends. Lines that are no JSON objects are skipped: real servers print to
/// stdout. `Err` says why it broke.
pub(crate) async fn read_lines<R>(
    input: R,
    limit: usize,
    inbound: &mpsc::Sender<Inbound>,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
{
    let mut lines = Lines::new(BufReader::with_capacity(64 * 1024, input), limit);
    while let Some(line) = lines.next().await? {
        let item = match line {
            Line::Message(body) => Inbound::Message(body),
            Line::Blank => continue,
            Line::Noise => Inbound::Skipped("a line that is no JSON object"),
            Line::TooLong(Some(id)) => Inbound::Failed(
                id,
                ClientError::TooLarge {
                    what: "the answer",
                    limit,
                },
            ),
            Line::TooLong(None) => Inbound::Skipped("a line that is too long"),
        };
        if inbound.send(item).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Hands a message to the task that writes.
pub(crate) async fn send(
    messages: &mpsc::Sender<Bytes>,
    message: Outgoing,
) -> Result<(), ClientError> {
    messages
        .send(message.body)
        .await
        .map_err(|_| ClientError::gone("it does not read any more"))
}

/// A pair of streams that belong to nobody else.
pub(crate) struct PipeWire {
    messages: mpsc::Sender<Bytes>,
    stop: CancellationToken,
}

impl PipeWire {
    pub(crate) fn open<R, W>(input: R, output: W, limit: usize) -> super::Link
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let stop = CancellationToken::new();
        let (messages, _) = write_lines(output, stop.clone());
        let (sender, inbound) = mpsc::channel(QUEUE);
        let closed = stop.clone();
        tokio::spawn(async move {
            let why = tokio::select! {
                read = read_lines(input, limit, &sender) => match read {
                    Ok(()) => "it closed the connection".to_owned(),
                    Err(error) => format!("reading from it failed: {error}"),
                },
                () = closed.cancelled() => "it was closed".to_owned(),
            };
            closed.cancel();
            let _ = sender.send(Inbound::End(why)).await;
        });
        super::Link {
            wire: Box::new(Self { messages, stop }),
            inbound,
        }
    }
}

impl Wire for PipeWire {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(send(&self.messages, message))
    }

    fn post(&self, message: Outgoing) {
        let _ = self.messages.try_send(message.body);
    }

    fn cancel(&self, _id: &RequestId, notice: Option<Outgoing>) {
        if let Some(notice) = notice {
            self.post(notice);
        }
    }

    fn stop(&self) {
        self.stop.cancel();
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
