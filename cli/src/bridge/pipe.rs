//! The loop between stdin and the worker: dispatch, cancellation, limits, and an orderly end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ramen_client::hub::stand_in_line;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use super::exchange::Exchange;
use super::framing::{self, Framing, Inbound};
use super::message::{self, Fault, Message, Request};
use super::{errors, watch};
use crate::upstream::Upstream;

/// How much may be under way at once.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests at the worker.
    pub inflight: usize,
    /// Bytes of requests at the worker or waiting; more are refused at once.
    pub pending_bytes: usize,
    /// How long work in flight is waited for after stdin ended.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            inflight: 64,
            pending_bytes: 64 * 1024 * 1024,
            drain: Duration::from_millis(1500),
        }
    }
}

/// Requests in flight by id, each with the token that cancels it.
type InFlight = Arc<Mutex<HashMap<String, (u64, CancellationToken)>>>;

struct Pipe {
    exchange: Exchange,
    limits: Limits,
    slots: Arc<Semaphore>,
    pending_bytes: Arc<AtomicUsize>,
    in_flight: InFlight,
    serial: u64,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// The legacy handshake that the client made, as it is repeated on the background session.
    handshake: Option<Bytes>,
    watching: bool,
    /// What a legacy client asked with `logging/setLevel`.
    log_level: Option<Bytes>,
}

/// Serves `input` until it ends or `stop` resolves; returns the exit code.
pub async fn serve<R, W, S>(
    mut input: R,
    output: W,
    upstream: Upstream,
    limits: Limits,
    stop: S,
) -> u8
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
    S: Future<Output = ()>,
{
    let (out, lines) = mpsc::channel(64);
    let mut writer = tokio::spawn(write(output, lines));
    let drain = limits.drain;
    let mut pipe = Pipe {
        exchange: Exchange {
            upstream,
            out,
            no_sessions: Arc::new(AtomicBool::new(false)),
        },
        slots: Arc::new(Semaphore::new(limits.inflight)),
        limits,
        pending_bytes: Arc::default(),
        in_flight: Arc::default(),
        serial: 0,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        handshake: None,
        watching: false,
        log_level: None,
    };
    let read = async {
        loop {
            match framing::next(&mut input).await {
                Ok(Some((framing, inbound))) => pipe.accept(framing, inbound).await,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(error = %error, "stdin cannot be read");
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = stop => {}
        _ = &mut writer => return 0,
    }
    // A worker that is away now would hardly be back in time: its requests are told so while somebody still reads.
    pipe.exchange.upstream.hurry();
    pipe.tasks.close();
    if tokio::time::timeout(drain, pipe.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("requests in flight were given up at the end of stdin");
    }
    pipe.stop.cancel();
    drop(pipe);
    let _ = tokio::time::timeout(Duration::from_millis(300), writer).await;
    0
}

/// The one writer of stdout: each message is written whole.
async fn write<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            tracing::warn!(error = %error, "stdout cannot be written");
            return;
        }
    }
}

impl Pipe {
    async fn accept(&mut self, framing: Framing, inbound: Inbound) {
        let body = match inbound {
            Inbound::Message(body) => Bytes::from(body),
            Inbound::TooLong => {
                return self
                    .exchange
                    .write(framing, &errors::too_long(framing::MAX_MESSAGE))
                    .await;
            }
            Inbound::BadHeader => {
                let fault = Fault::Parse("the Content-Length header cannot be read".to_owned());
                return self.exchange.write(framing, &errors::fault(&fault)).await;
            }
        };
        match message::parse(&body) {
            Err(fault) => self.exchange.write(framing, &errors::fault(&fault)).await,
            Ok(Message::Response(_)) => {}
            Ok(Message::Notification {
                method,
                cancels,
                modern,
            }) => {
                self.notification(framing, method, cancels, modern, body);
            }
            Ok(Message::Request(request)) => self.request(framing, request, body).await,
        }
    }

    fn notification(
        &mut self,
        framing: Framing,
        method: String,
        cancels: Option<message::Id>,
        modern: bool,
        body: Bytes,
    ) {
        if method == "notifications/cancelled" {
            // Dropping the call resets its stream, which is how the worker hears of it.
            if let Some((_, token)) = cancels.and_then(|id| lock(&self.in_flight).remove(id.key()))
            {
                token.cancel();
            }
            return;
        }
        if method == "notifications/initialized"
            && !modern
            && !self.watching
            && let Some(handshake) = self.handshake.clone()
        {
            self.watching = true;
            let (exchange, stop) = (self.exchange.clone(), self.stop.clone());
            tokio::spawn(stop.run_until_cancelled_owned(watch::run(exchange, handshake, framing)));
        }
        let exchange = self.exchange.clone();
        self.tasks
            .spawn(async move { exchange.notify(&method, body).await });
    }

    async fn request(&mut self, framing: Framing, request: Request, body: Bytes) {
        let size = body.len();
        if self.pending_bytes.fetch_add(size, Ordering::Relaxed) + size > self.limits.pending_bytes
        {
            self.pending_bytes.fetch_sub(size, Ordering::Relaxed);
            let status =
                Status::resource_exhausted("too many bytes of requests are waiting in the bridge");
            return self
                .exchange
                .write(framing, &errors::grpc(&request.id, &status))
                .await;
        }
        let mut prelude = None;
        if !request.modern {
            match request.method.as_str() {
                "initialize" => self.handshake = Some(watch::handshake(&message::params(&body))),
                "logging/setLevel" => {
                    self.log_level = Some(watch::log_level(&message::params(&body)));
                }
                "tools/call" | "resources/read" => prelude.clone_from(&self.log_level),
                _ => {}
            }
        }
        self.serial += 1;
        let serial = self.serial;
        let token = CancellationToken::new();
        let key = request.id.key().to_owned();
        lock(&self.in_flight).insert(key.clone(), (serial, token.clone()));
        let done = Done {
            in_flight: Arc::clone(&self.in_flight),
            pending_bytes: Arc::clone(&self.pending_bytes),
            key,
            serial,
            size,
        };
        let exchange = self.exchange.clone();
        // A listen lasts for ever: it must not use up a slot.
        let slot = (request.method != "subscriptions/listen")
            .then(|| stand_in_line(Arc::clone(&self.slots)));
        self.tasks.spawn(async move {
            let answer = async {
                let _slot = match slot {
                    Some(slot) => slot.await,
                    None => None,
                };
                exchange.request(&request, body, prelude, framing).await
            };
            let answer = token.run_until_cancelled(answer).await;
            drop(done);
            // A cancelled request gets no answer.
            if let Some(answer) = answer.filter(|_| !token.is_cancelled()) {
                exchange.write(framing, &answer).await;
            }
        });
    }
}

/// Forgets a request however its task ends.
struct Done {
    in_flight: InFlight,
    pending_bytes: Arc<AtomicUsize>,
    key: String,
    serial: u64,
    size: usize,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.pending_bytes.fetch_sub(self.size, Ordering::Relaxed);
        let mut in_flight = lock(&self.in_flight);
        if in_flight
            .get(&self.key)
            .is_some_and(|(serial, _)| *serial == self.serial)
        {
            in_flight.remove(&self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ramen_source::testing::FreePort;
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::connect::nearby;

    #[tokio::test]
    async fn after_the_end_of_stdin_a_worker_that_is_away_is_tried_once() {
        let address = FreePort::nobody().unwrap().to_string();
        let hang_guard = Duration::from_mins(1);
        let upstream = Upstream::new(nearby(&address, "rmk_any", hang_guard).unwrap());
        let limits = Limits {
            drain: hang_guard,
            ..Limits::default()
        };
        let input = &b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"[..];
        let (output, mut stdout) = tokio::io::duplex(4096);
        let stop = std::future::pending();
        assert_eq!(
            serve(input, output, upstream.clone(), limits, stop).await,
            0
        );
        let mut text = String::new();
        stdout.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("UNAVAILABLE"), "{text}");
        assert_eq!(upstream.failures().await, 1);
    }
}
