//! The workers of one group: least loaded first, several HTTP/2 connections to each, a worker that
//! cannot be reached, or fails what it is asked, stands aside for a while.
//!
//! A request goes out again only when it certainly was not begun: it never left (while connecting, or when the
//! connection refused to take it), or the worker itself says so. Whatever a worker may have begun is never sent twice.

mod link;
mod tls;
mod unary;
mod worker;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_client::McpClient;
use ramen_proto::{is_not_begun, not_begun};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::{Code, Request, Status, Streaming};

use crate::groups::WorkerAt;
use crate::names::MAX_MESSAGE;

pub(crate) use link::was_lost;
use link::{Link, was_never_sent};
pub use tls::WorkerTls;
pub use worker::Worker;

/// How long a call waits for a worker to appear when a group has none for a moment.
const GRACE: Duration = Duration::from_secs(2);

/// The workers of one group.
#[derive(Debug)]
pub struct Pool {
    workers: watch::Sender<Arc<Vec<Arc<Worker>>>>,
    turn: AtomicUsize,
    ejections: Arc<AtomicU64>,
}

/// What every request to the workers of a group carries.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// `Bearer …`, marked as sensitive.
    pub authorization: AsciiMetadataValue,
    /// The group's name.
    pub group: AsciiMetadataValue,
}

/// What one request carries besides.
#[derive(Debug, Clone)]
pub struct Carried {
    /// Who calls.
    pub caller: AsciiMetadataValue,
    /// Header copies that the worker judges, for it knows the schemas.
    pub copies: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    /// The zone whose workers are asked; else any is.
    pub zone: Option<String>,
}

/// Both ends of a `Session`. It ends when this is dropped.
pub struct Session {
    incoming: Streaming<JsonRpc>,
    _outgoing: mpsc::Sender<JsonRpc>,
    worker: Arc<Worker>,
    _place: worker::Place,
}

impl Session {
    /// The next message; `None` when there is none any more.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let heard = self.incoming.message().await;
        let heard = heard.inspect_err(|status| self.worker.ended(status))?;
        Ok(heard.map(|message| message.body))
    }

    /// Takes note of an answer in it. `Some`: it is none, but the status that ended the call.
    pub(crate) fn answered(&self, outcome: Result<&str, &str>) -> Option<Status> {
        let failure = outcome.err().and_then(failure);
        match &failure {
            Some(status) => self.worker.ended(status),
            None => self.worker.answered(),
        }
        failure
    }

    /// Who is at the other end.
    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }
}

/// The status that an error of a session stands for: the stream has one status, and it may carry several calls.
fn failure(error: &str) -> Option<Status> {
    #[derive(Deserialize)]
    struct Failure {
        message: String,
        data: Data,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        grpc: String,
        #[serde(default)]
        not_begun: bool,
    }
    let Failure { message, data }: Failure = serde_json::from_str(error).ok()?;
    // Those that a worker says of a call; whatever else an error holds is the answer.
    let code = match data.grpc.as_str() {
        "UNAVAILABLE" if data.not_begun => return Some(not_begun(message)),
        "UNAVAILABLE" => Code::Unavailable,
        "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
        "DEADLINE_EXCEEDED" => Code::DeadlineExceeded,
        "INTERNAL" => Code::Internal,
        _ => return None,
    };
    Some(Status::new(code, message))
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of these workers.
    pub fn new(workers: &[WorkerAt]) -> Self {
        let ejections = Arc::<AtomicU64>::default();
        let workers = workers.iter().cloned();
        let workers = workers.map(|at| Arc::new(Worker::new(at, &ejections)));
        Self {
            workers: watch::Sender::new(Arc::new(workers.collect())),
            turn: AtomicUsize::new(0),
            ejections,
        }
    }

    /// Takes other workers; those that stay keep their connections.
    pub fn set(&self, wanted: &[WorkerAt]) {
        self.workers.send_if_modified(|workers| {
            let same = workers.len() == wanted.len()
                && workers
                    .iter()
                    .zip(wanted)
                    .all(|(worker, at)| worker.at() == at);
            if same {
                return false;
            }
            let keep = |at: &WorkerAt| {
                let known = workers.iter().find(|worker| worker.at() == at);
                known
                    .cloned()
                    .unwrap_or_else(|| Arc::new(Worker::new(at.clone(), &self.ejections)))
            };
            *workers = Arc::new(wanted.iter().map(keep).collect());
            true
        });
    }

    /// The workers, and when they change.
    pub fn watch(&self) -> watch::Receiver<Arc<Vec<Arc<Worker>>>> {
        self.workers.subscribe()
    }

    /// The workers as of now.
    pub(crate) fn workers(&self) -> Arc<Vec<Arc<Worker>>> {
        Arc::clone(&self.workers.borrow())
    }

    /// How often a worker was set aside.
    pub(crate) fn ejections(&self) -> u64 {
        self.ejections.load(Ordering::Relaxed)
    }

    /// Sends one message and returns its answer.
    pub async fn call(
        &self,
        keys: &Credentials,
        carried: &Carried,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, Status> {
        let framed = unary::frame(body);
        let call = self.reach(carried.zone.as_deref(), &[], |link| {
            let mut request = Request::new(());
            keys.write(request.metadata_mut(), Some(carried));
            request.set_timeout(limit);
            let (metadata, ..) = request.into_parts();
            unary::call(link, framed.clone(), metadata)
        });
        let reached = tokio::time::timeout_at(until(limit), call).await;
        let (body, worker, _place) = reached.unwrap_or_else(|_| Err(overdue()))?;
        worker.answered();
        Ok(body)
    }

    /// Opens a `Session`, to a worker that was not asked before, and sends one message on it.
    pub(crate) async fn session(
        &self,
        keys: &Credentials,
        carried: &Carried,
        body: Bytes,
        (limit, until): (Duration, Instant),
        asked: &[Arc<Worker>],
    ) -> Result<Session, Status> {
        let opened = self.reach(carried.zone.as_deref(), asked, |link| {
            let (request, outgoing) = opening(keys, Some(carried), body.clone(), Some(limit));
            async move { open(link, request, outgoing).await }
        });
        let opened = tokio::time::timeout_at(until, opened).await;
        let ((incoming, outgoing), worker, place) = opened.unwrap_or_else(|_| Err(overdue()))?;
        Ok(Session {
            incoming,
            _outgoing: outgoing,
            worker,
            _place: place,
        })
    }

    /// Tries the workers, but for those that were asked before, in order until one begins it; the answer is that one's,
    /// whatever it is.
    async fn reach<T, F>(
        &self,
        zone: Option<&str>,
        asked: &[Arc<Worker>],
        send: impl Fn(Arc<Link>) -> F,
    ) -> Result<(T, Arc<Worker>, worker::Place), Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let workers = self.present(zone).await?;
        let (mut last, mut refused) = (None, None);
        for worker in self.order(&workers, zone) {
            if asked.iter().any(|one| Arc::ptr_eq(one, &worker)) {
                continue;
            }
            let place = worker.place();
            // Twice: a connection that died unseen takes nothing, a new one may.
            for _ in 0..2 {
                let link = match worker.link().await {
                    Ok(link) => link,
                    Err(error) => {
                        last = Some(error);
                        break;
                    }
                };
                match send(link).await {
                    Ok(reply) => return Ok((reply, worker, place)),
                    Err(status) if was_never_sent(&status) => {
                        last = Some(status.message().to_owned());
                    }
                    Err(status) => {
                        worker.ended(&status);
                        if !is_not_begun(&status) {
                            return Err(status);
                        }
                        refused = Some(status);
                        break;
                    }
                }
            }
        }
        if let Some(status) = refused {
            return Err(status);
        }
        if let Some(error) = last {
            tracing::warn!(error, "no worker of the group can be reached");
        }
        Err(not_begun("no worker of the group can be reached"))
    }

    /// The workers; waits a moment when there is none, or none in the zone.
    async fn present(&self, zone: Option<&str>) -> Result<Arc<Vec<Arc<Worker>>>, Status> {
        let now = Arc::clone(&self.workers.borrow());
        if now.iter().any(|worker| worker.is_in(zone)) {
            return Ok(now);
        }
        let mut watch = self.workers.subscribe();
        let some = watch.wait_for(|workers| workers.iter().any(|worker| worker.is_in(zone)));
        match tokio::time::timeout(GRACE, some).await {
            Ok(Ok(workers)) => Ok(Arc::clone(&workers)),
            _ if zone.is_some() => Err(not_begun("the zone has no worker")),
            _ => Err(not_begun("the group has no worker")),
        }
    }

    /// Least loaded first, those that stand aside last; equals take turns.
    fn order(&self, workers: &[Arc<Worker>], zone: Option<&str>) -> Vec<Arc<Worker>> {
        if let [only] = workers {
            return vec![Arc::clone(only)];
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<_> = (0..workers.len())
            .map(|at| &workers[(at.wrapping_add(turn)) % workers.len()])
            .filter(|worker| worker.is_in(zone))
            .map(|worker| (worker.stands_aside(), worker.load(), worker))
            .collect();
        order.sort_by_key(|(aside, load, _)| (*aside, *load));
        order
            .into_iter()
            .map(|(.., worker)| Arc::clone(worker))
            .collect()
    }
}

impl Credentials {
    /// The gateway's key at the workers of this group. `None` when a header cannot carry them.
    pub fn new(key: &str, group: &str) -> Option<Self> {
        let mut authorization: AsciiMetadataValue = format!("Bearer {key}").parse().ok()?;
        authorization.set_sensitive(true);
        Some(Self {
            authorization,
            group: group.parse().ok()?,
        })
    }

    fn write(&self, metadata: &mut MetadataMap, carried: Option<&Carried>) {
        metadata.insert("authorization", self.authorization.clone());
        metadata.insert(crate::names::GROUP_HEADER, self.group.clone());
        let Some(carried) = carried else { return };
        metadata.insert(crate::names::CALLER_HEADER, carried.caller.clone());
        for (name, value) in &carried.copies {
            metadata.insert(name.clone(), value.clone());
        }
    }
}

/// When a request of so long is given up here. The worker keeps the deadline; this is for one that does not.
pub(crate) fn until(limit: Duration) -> Instant {
    Instant::now() + limit + Duration::from_secs(1)
}

/// Then that is what it comes to.
pub(crate) fn overdue() -> Status {
    Status::deadline_exceeded("the worker did not answer in time")
}

/// Opens a `Session` to this very worker, without a deadline: to hear of changes.
pub async fn listen(
    worker: &Arc<Worker>,
    keys: &Credentials,
    body: Bytes,
) -> Result<Session, Status> {
    let link = worker.link().await.map_err(Status::unavailable)?;
    let (request, outgoing) = opening(keys, None, body, None);
    let (incoming, outgoing) = open(link, request, outgoing).await?;
    Ok(Session {
        incoming,
        _outgoing: outgoing,
        worker: Arc::clone(worker),
        _place: worker.idle_place(),
    })
}

fn opening(
    keys: &Credentials,
    carried: Option<&Carried>,
    body: Bytes,
    limit: Option<Duration>,
) -> (Request<ReceiverStream<JsonRpc>>, mpsc::Sender<JsonRpc>) {
    let (outgoing, messages) = mpsc::channel(1);
    // The channel is empty and has room for it.
    let _ = outgoing.try_send(JsonRpc { body });
    let mut request = Request::new(ReceiverStream::new(messages));
    keys.write(request.metadata_mut(), carried);
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    (request, outgoing)
}

async fn open(
    link: Arc<Link>,
    request: Request<ReceiverStream<JsonRpc>>,
    outgoing: mpsc::Sender<JsonRpc>,
) -> Result<(Streaming<JsonRpc>, mpsc::Sender<JsonRpc>), Status> {
    let incoming = client(link).session(request).await?.into_inner();
    Ok((incoming, outgoing))
}

fn client(link: Arc<Link>) -> McpClient<link::Wire> {
    let (wire, origin) = link.wire();
    McpClient::with_origin(wire, origin).max_decoding_message_size(MAX_MESSAGE + 1024)
}

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
