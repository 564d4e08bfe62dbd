//! `ramen.v1.Mcp/Session`: many messages both ways on one stream.
//!
//! One task drives a session: it reads messages, answers what needs no host at once, and lets each
//! call run in a task of its own, so that a slow one holds up nothing. A cancelled call gets no
//! response. When the client goes away, all of its calls are cancelled. A client that does not read
//! loses its session, and is told so when it reads again: no answer is left out in silence.

mod outgoing;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http::HeaderMap;
use ramen_mcp::server::ListKind;
use ramen_mcp::{
    Catalog, Connection, IdKey, Listen, LogLevel, McpError, ProgressToken, RequestId, Step,
    envelope, notify,
};
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status, Streaming};

use self::outgoing::Outgoing;
use super::{Front, Peer};
use crate::gate::Refusal;
use crate::generation::{CallContext, Generation, Lost};
use crate::hosts::HostEvent;
use crate::names::MAX_MESSAGE;
use crate::wire;

/// Messages that wait for the client to read; what sends more waits.
const OUT_QUEUE: usize = 16;
/// How long a client may take to read what a session has left behind.
const LAST_READ: Duration = Duration::from_mins(2);
/// Progress and log messages of one call that wait to be sent; more are dropped.
const EVENT_QUEUE: usize = 64;
/// Subscriptions of one session.
const MAX_LISTENS: usize = 16;

pub(super) struct Service(Arc<Front>);

pub(super) fn server(front: Arc<Front>) -> McpServer<Service> {
    // What protobuf adds is allowed on top; the body itself is measured below.
    McpServer::new(Service(front)).max_decoding_message_size(MAX_MESSAGE + 64)
}

#[tonic::async_trait]
impl Mcp for Service {
    async fn session(
        &self,
        request: Request<Streaming<JsonRpc>>,
    ) -> Result<Response<BoxStream<JsonRpc>>, Status> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::internal("the peer is not known"))?;
        let (metadata, _, incoming) = request.into_parts();
        let (queue, queued) = mpsc::channel(OUT_QUEUE);
        // How the session ended comes after what is queued, and needs no place among it.
        let (end, ended) = mpsc::channel::<Ended>(1);
        let ended = ReceiverStream::new(ended)
            .take(1)
            .filter_map(|status| std::future::ready(status.map(Err)));
        let headers = metadata.into_headers();
        let deadline = wire::timeout_of(&headers).map(|timeout| Instant::now() + timeout);
        let connection = super::over_http(Connection::session(), &headers);
        let session = Session {
            front: Arc::clone(&self.0),
            headers,
            peer: peer.address,
            out: Outgoing::new(queue, self.0.gate.in_flight.clone()),
            connection,
            calls: JoinSet::new(),
            running: HashMap::new(),
            listens: Vec::new(),
            serial: 0,
            deadline,
        };
        tokio::spawn(session.drive(incoming, end, peer.end));
        let messages = ReceiverStream::new(queued).chain(ended);
        Ok(Response::new(Box::pin(messages)))
    }
}

struct Session {
    front: Arc<Front>,
    headers: HeaderMap,
    peer: IpAddr,
    out: Outgoing,
    connection: Connection,
    /// Each ends with the key and the serial number of its call.
    calls: JoinSet<(IdKey, u64)>,
    running: HashMap<IdKey, (u64, AbortHandle)>,
    listens: Vec<Listen>,
    serial: u64,
    deadline: Option<Instant>,
}

/// Why a session ends; `Some`: the status for the client.
type Ended = Option<Status>;

impl Session {
    /// Runs the session; `end` tells the client how it ended, `cut` ends the connection.
    async fn drive(
        mut self,
        incoming: Streaming<JsonRpc>,
        end: mpsc::Sender<Ended>,
        cut: Arc<Notify>,
    ) {
        let front = Arc::clone(&self.front);
        front.metrics.sessions.inc();
        let ended = self.serve(incoming).await;
        front.metrics.sessions.dec();
        // The calls that are left end with the JoinSet, and nothing more is queued.
        drop(self);
        // The client may have gone already.
        let _ = end.try_send(ended);
        // What one that still does not read has not taken stays in memory, and its stream alone cannot be ended.
        if tokio::time::timeout(LAST_READ, end.closed()).await.is_err() {
            cut.notify_one();
        }
    }

    async fn serve(&mut self, mut incoming: Streaming<JsonRpc>) -> Ended {
        let mut changes = self.front.manager.changes();
        let mut stopping = self.front.stopping.clone();
        let mut known = changes.borrow_and_update().clone();
        let mut open = true;
        let deadline = self.deadline;
        let over = async move {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let out = self.out.clone();
        loop {
            if !open && self.calls.is_empty() {
                return out.is_unread().then(slow);
            }
            tokio::select! {
                message = incoming.message(), if open => match message {
                    Ok(Some(message)) => {
                        if let Err(status) = self.take(message.body).await {
                            return Some(status);
                        }
                    }
                    Ok(None) => open = false,
                    Err(status) => return Some(over_size(status)),
                },
                Some(ended) = self.calls.join_next() => {
                    if let Ok((key, serial)) = ended {
                        self.forget(&key, serial);
                    }
                }
                Ok(()) = changes.changed() => {
                    let new = changes.borrow_and_update().clone();
                    if let Err(ended) = self.tell_changes(known.as_deref(), new.as_deref()).await {
                        return ended;
                    }
                    known = new;
                }
                () = stopped(&mut stopping), if open => {
                    open = false;
                    for listen in std::mem::take(&mut self.listens) {
                        if self.send(listen.end()).await.is_err() {
                            return None;
                        }
                    }
                }
                () = out.closed() => return None,
                () = out.unread() => return Some(slow()),
                () = &mut over => return Some(Lost::Deadline.status()),
            }
        }
    }

    fn forget(&mut self, key: &IdKey, serial: u64) {
        if self
            .running
            .get(key)
            .is_some_and(|(running, _)| *running == serial)
        {
            self.running.remove(key);
        }
    }

    /// Takes one message. The gate judges each, as it does each `Call`.
    async fn take(&mut self, body: Bytes) -> Result<(), Status> {
        let front = Arc::clone(&self.front);
        front
            .gate
            .mcp(&self.headers, self.peer)
            .map_err(|refusal| front.refuse(refusal))?;
        if body.len() > MAX_MESSAGE {
            return Err(wire::too_large("the message", body.len()));
        }
        let generation = front.manager.current();
        let answer = match envelope::parse(&body) {
            Err(reject) => reject.answer(),
            Ok(message) => {
                let id = match &message {
                    envelope::Message::Request(request) => Some(request.id.clone()),
                    _ => None,
                };
                self.reap();
                match (generation, id) {
                    (_, Some(id)) if self.is_taken(&id) => {
                        let error = McpError::invalid_request("this id is in flight already");
                        Some(error.body(&id))
                    }
                    (None, Some(id)) => Some(status_error(&super::nothing_loaded()).body(&id)),
                    (None, None) => None,
                    (Some(generation), _) => {
                        let step = generation.server.step(&message, &mut self.connection);
                        drop(message);
                        self.act(step, generation)
                    }
                }
            }
        };
        match answer {
            Some(answer) => self.send(answer).await.map_err(|()| slow()),
            None => Ok(()),
        }
    }

    fn is_taken(&self, id: &RequestId) -> bool {
        let key = id.key();
        self.running.contains_key(&key) || self.listens.iter().any(|listen| listen.id.key() == key)
    }

    /// Forgets calls that have ended: their ids are free again.
    fn reap(&mut self) {
        while let Some(ended) = self.calls.try_join_next() {
            if let Ok((key, serial)) = ended {
                self.forget(&key, serial);
            }
        }
    }

    fn act(&mut self, step: Step, generation: Arc<Generation>) -> Option<Bytes> {
        match step {
            Step::Reply(bytes) => Some(bytes),
            Step::Silent => None,
            Step::Cancel(key) => {
                if let Some((_, call)) = self.running.remove(&key) {
                    call.abort();
                }
                let at = self
                    .listens
                    .iter()
                    .position(|listen| listen.id.key() == key)?;
                Some(self.listens.swap_remove(at).end())
            }
            Step::Listen(listen) => {
                if self.listens.len() >= MAX_LISTENS {
                    let error = McpError::invalid_request("too many subscriptions in one session");
                    return Some(error.body(&listen.id));
                }
                let acknowledged = listen.acknowledged();
                self.listens.push(listen);
                Some(acknowledged)
            }
            Step::CallTool(call) => {
                let (id, wishes) = (call.id.clone(), (call.progress.clone(), call.log_level));
                self.start(id, wishes, move |context| async move {
                    generation.call_tool(&call, context).await
                })
            }
            Step::ReadResource(read) => {
                let (id, wishes) = (read.id.clone(), (read.progress.clone(), read.log_level));
                self.start(id, wishes, move |context| async move {
                    generation.read_resource(&read, context).await
                })
            }
        }
    }

    /// Runs a call in a task of its own. Returns an answer when it does not start.
    fn start<F>(
        &mut self,
        id: RequestId,
        (progress, log_level): (Option<ProgressToken>, Option<LogLevel>),
        call: impl FnOnce(CallContext) -> F + Send + 'static,
    ) -> Option<Bytes>
    where
        F: Future<Output = Result<Bytes, Lost>> + Send + 'static,
    {
        let Some(permit) = self.front.gate.in_flight.try_take() else {
            let status = self.front.refuse(Refusal::Full);
            return Some(status_error(&status).body(&id));
        };
        let wanted = progress.is_some() || log_level.is_some();
        let (events_in, events) = mpsc::channel(EVENT_QUEUE);
        let context = CallContext {
            deadline: self.deadline,
            permit: Some(permit),
            events: wanted.then_some(events_in),
        };
        self.serial += 1;
        let (key, serial) = (id.key(), self.serial);
        let (out, front) = (self.out.clone(), Arc::clone(&self.front));
        let task = {
            let key = key.clone();
            async move {
                let messages = Messages {
                    out: out.clone(),
                    front,
                    progress,
                    log_level,
                    events,
                };
                let answer = messages.until(call(context)).await;
                let answer = match answer {
                    Ok(answer) if answer.len() > MAX_MESSAGE => {
                        status_error(&wire::too_large("the response", answer.len())).body(&id)
                    }
                    Ok(answer) => answer,
                    Err(lost) => status_error(&lost.status()).body(&id),
                };
                // A client that does not read it loses the session.
                let _ = out.send(answer).await;
                (key, serial)
            }
        };
        let handle = self.calls.spawn(task);
        self.running.insert(key, (serial, handle));
        None
    }

    async fn send(&self, body: Bytes) -> Result<(), ()> {
        self.out.send(body).await
    }

    /// Tells the client which lists changed, if it is one that wants to know.
    async fn tell_changes(
        &self,
        old: Option<&Generation>,
        new: Option<&Generation>,
    ) -> Result<(), Ended> {
        let (Some(old), Some(new)) = (old, new) else {
            return Ok(());
        };
        let (old, new) = (&old.catalog, &new.catalog);
        let changed = [
            (ListKind::Tools, old.tools() != new.tools()),
            (ListKind::Prompts, old.prompts() != new.prompts()),
            (
                ListKind::Resources,
                old.resources() != new.resources() || old.templates() != new.templates(),
            ),
        ];
        for (kind, _) in changed.into_iter().filter(|(_, changed)| *changed) {
            if self.connection.handshake().is_some() {
                self.send(notify::list_changed(kind))
                    .await
                    .map_err(|()| Some(slow()))?;
            }
            for listen in &self.listens {
                if let Some(message) = listen.changed(kind) {
                    self.send(message).await.map_err(|()| Some(slow()))?;
                }
            }
        }
        Ok(())
    }
}

/// Sends what a call says before its result.
struct Messages {
    out: Outgoing,
    front: Arc<Front>,
    progress: Option<ProgressToken>,
    log_level: Option<LogLevel>,
    events: mpsc::Receiver<HostEvent>,
}

impl Messages {
    /// Forwards events until the call ends; those that came before its result go before it.
    async fn until<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut last = f64::NEG_INFINITY;
        tokio::pin!(call);
        let result = loop {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.forward(event, &mut last).await,
                result = &mut call => break result,
            }
        };
        while let Ok(event) = self.events.try_recv() {
            self.forward(event, &mut last).await;
        }
        result
    }

    async fn forward(&self, event: HostEvent, last: &mut f64) {
        let message = match event {
            HostEvent::Progress(update) => {
                // Progress must rise; what does not is not sent.
                let Some(now) = update.progress.as_f64().filter(|now| *now > *last) else {
                    return;
                };
                *last = now;
                let text = serde_json::to_string(&update).unwrap_or_default();
                let text = self.front.manager.redactor().redact(&text);
                self.progress
                    .as_ref()
                    .and_then(|token| notify::progress(token, text.as_bytes()))
            }
            HostEvent::Log(entry) => self.log_level.and_then(|level| {
                let text = serde_json::to_string(&entry).unwrap_or_default();
                let text = self.front.manager.redactor().redact(&text);
                notify::log_message(level, text.as_bytes())
            }),
        };
        if let Some(message) = message.filter(|message| message.len() <= MAX_MESSAGE) {
            let _ = self.out.send(message).await;
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn slow() -> Status {
    Status::resource_exhausted("the client does not read its messages")
}

/// tonic's own limit answers `OUT_OF_RANGE`; ours is `RESOURCE_EXHAUSTED` everywhere.
fn over_size(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(format!(
            "the message is too large; at most {MAX_MESSAGE} bytes are allowed ({})",
            status.message()
        )),
        _ => status,
    }
}

/// A status as an error inside a session, where there is no status of one call.
fn status_error(status: &Status) -> McpError {
    let code = match status.code() {
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::Unavailable => "UNAVAILABLE",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    let mut data = serde_json::json!({ "grpc": code });
    if ramen_proto::is_not_begun(status) {
        data["notBegun"] = true.into();
    }
    McpError::internal(status.message().to_owned()).with_data(&data)
}
