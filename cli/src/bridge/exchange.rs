//! One request to the worker and back: over `Call`, or over a `Session` of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::framing::Framing;
use super::message::{Message, Request, one_line, parse};
use super::{errors, framing};
use crate::upstream::{Upstream, is_transport, transport_status};

/// How long a listen whose stream broke waits before it is opened again.
const RELISTEN: Duration = Duration::from_secs(1);

/// The way to the worker and the way back to the client.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) upstream: Upstream,
    pub(super) out: mpsc::Sender<Vec<u8>>,
    /// The worker answered `UNIMPLEMENTED` to `Session`: everything goes through `Call` from then on.
    pub(super) no_sessions: Arc<AtomicBool>,
}

impl Exchange {
    /// Writes one message to the client.
    pub(super) async fn write(&self, framing: Framing, body: &[u8]) {
        // A closed channel means that stdout is gone, and the process with it.
        let _ = self.out.send(framing.wrap(body)).await;
    }

    /// Forwards a request and returns its answer, an error included. `prelude` goes ahead of it on its own `Session`.
    pub(super) async fn request(
        &self,
        request: &Request,
        body: Bytes,
        prelude: Option<Bytes>,
        framing: Framing,
    ) -> Vec<u8> {
        let wants_session = request.streams || prelude.is_some() || greets(&request.method);
        let reply = if wants_session && !self.no_sessions.load(Ordering::Relaxed) {
            let open = || self.session(request, body.clone(), prelude.clone(), framing);
            match open().await {
                Err(status) if status.code() == Code::Unimplemented => {
                    self.no_sessions.store(true, Ordering::Relaxed);
                    self.call(request, body).await
                }
                Err(status) if lost(&status) && repeatable(&request.method) => open().await,
                reply => reply,
            }
        } else {
            self.call(request, body).await
        };
        match reply {
            Ok(reply) => vet(request, &reply),
            Err(status) => errors::grpc(&request.id, &status),
        }
    }

    /// Forwards a notification; a failure is a line on stderr.
    pub(super) async fn notify(&self, method: &str, body: Bytes) {
        if let Err(status) = self.upstream.call(body).await {
            tracing::warn!(method, code = ?status.code(), error = status.message(), "notification not delivered");
        }
    }

    async fn call(&self, request: &Request, body: Bytes) -> Result<Bytes, Status> {
        match self.upstream.call(body.clone()).await {
            // A tool may have run already: only what changes nothing is sent again.
            Err(status) if lost(&status) && repeatable(&request.method) => {
                self.upstream.call(body).await
            }
            reply => reply,
        }
    }

    async fn session(
        &self,
        request: &Request,
        body: Bytes,
        prelude: Option<Bytes>,
        framing: Framing,
    ) -> Result<Bytes, Status> {
        if request.method == "subscriptions/listen" {
            return self.listen(request, body, framing).await;
        }
        let timeout = self.upstream.timeout();
        let first: Vec<Bytes> = prelude.into_iter().chain([body]).collect();
        tokio::time::timeout(
            timeout,
            self.stream(request, first, framing, &mut Passing::all()),
        )
        .await
        .unwrap_or_else(|_| {
            let seconds = timeout.as_secs_f64();
            Err(Status::deadline_exceeded(format!(
                "no answer within {seconds} s"
            )))
        })
    }

    /// A listen lasts until it is cancelled: when its stream breaks it is opened again, without a second acknowledgement.
    async fn listen(
        &self,
        request: &Request,
        body: Bytes,
        framing: Framing,
    ) -> Result<Bytes, Status> {
        let mut passing = Passing::all();
        loop {
            match self
                .stream(request, vec![body.clone()], framing, &mut passing)
                .await
            {
                Err(status) if status.code() == Code::Unavailable && passing.acknowledged => {
                    tracing::warn!(
                        error = status.message(),
                        "listen stream lost; opening it again"
                    );
                    tokio::time::sleep(RELISTEN).await;
                }
                reply => return reply,
            }
        }
    }

    /// Reads a session until the answer to `request`, passing notifications on as they come.
    async fn stream(
        &self,
        request: &Request,
        first: Vec<Bytes>,
        framing: Framing,
        passing: &mut Passing,
    ) -> Result<Bytes, Status> {
        let mut session = self.upstream.session(first).await?;
        passing.acknowledged_here = false;
        loop {
            let message = session.incoming.message().await;
            let body = match message {
                Ok(Some(message)) => message.body,
                Ok(None) => {
                    return Err(Status::unavailable(
                        "the worker ended the session before it answered",
                    ));
                }
                Err(status) if is_transport(&status) => return Err(transport_status(&status)),
                Err(status) => return Err(status),
            };
            match parse(&body) {
                Ok(Message::Notification { method, .. }) => {
                    if passing.lets_through(&method) {
                        self.write(framing, &one_line(&body)).await;
                    }
                }
                Ok(Message::Response(Some(id))) if id.key() == request.id.key() => return Ok(body),
                // The worker could not read the request, so it could not name it either.
                Ok(Message::Response(None)) if is_error(&body) => return Ok(body),
                // Answers to the bridge's own messages, and requests, which no worker makes.
                Ok(Message::Response(_) | Message::Request(_)) => {}
                Err(_) => tracing::warn!("the worker sent something that is no message"),
            }
        }
    }
}

/// Which notifications of a stream reach the client.
struct Passing {
    acknowledged: bool,
    acknowledged_here: bool,
}

impl Passing {
    fn all() -> Self {
        Self {
            acknowledged: false,
            acknowledged_here: false,
        }
    }

    fn lets_through(&mut self, method: &str) -> bool {
        if method != "notifications/subscriptions/acknowledged" {
            return true;
        }
        let first = !self.acknowledged;
        self.acknowledged = true;
        self.acknowledged_here = true;
        first
    }
}

/// Methods whose answer says what the worker can do. It promises list changes on a `Session` only, and there is one for
/// them when the worker has sessions: asked by a call, it would promise less than the client gets.
fn greets(method: &str) -> bool {
    matches!(method, "initialize" | "server/discover")
}

/// Whether the connection broke, as opposed to the worker saying that it cannot.
fn lost(status: &Status) -> bool {
    status.code() == Code::Unavailable
        && status
            .message()
            .starts_with("the connection to the worker was lost")
}

/// Methods that change nothing, whoever asks how often.
fn repeatable(method: &str) -> bool {
    matches!(
        method,
        "initialize" | "ping" | "server/discover" | "prompts/get" | "completion/complete"
    ) || method.ends_with("/list")
}

fn is_error(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body)
        .is_ok_and(|value| value.get("error").is_some())
}

/// Lets only an answer to this request through to stdout.
fn vet(request: &Request, reply: &Bytes) -> Vec<u8> {
    if reply.is_empty() {
        return errors::bad_reply(&request.id, "it is empty");
    }
    if reply.len() > framing::MAX_MESSAGE {
        return errors::bad_reply(&request.id, "it is larger than 4 MiB");
    }
    match parse(reply) {
        Ok(Message::Response(Some(id))) if id.key() == request.id.key() => one_line(reply),
        Ok(Message::Response(None)) => one_line(reply),
        Ok(_) => errors::bad_reply(&request.id, "it answers another request"),
        Err(_) => errors::bad_reply(&request.id, "it is no JSON-RPC message"),
    }
}
