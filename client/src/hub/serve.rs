//! The loop over the caller's stream: both eras on it, requests side by side, an orderly end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ramen_mcp::envelope::{self, Message, Notification, Request};
use ramen_mcp::names::method;
use ramen_mcp::server::climb;
use ramen_mcp::{
    Connection, Era, IdKey, ListKind, Listen, McpError, RequestId, Version, code, notify,
};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::{self, single};
use super::forward::Asked;
use super::places::{Places, Turn};
use super::{Hub, lock};
use crate::transport::pipe::lines::{Line, Lines};
use crate::transport::pipe::write_lines;

/// Bytes of requests that are at work or wait; more are refused at once.
const MAX_PENDING: usize = 64 * 1024 * 1024;
/// What a request costs of them at least, so that small ones are bounded, too.
const MIN_COST: usize = 16 * 1024;
/// Bytes of one message of the caller.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// How long work in flight is waited for after the stream ended.
const DRAIN: Duration = Duration::from_millis(1200);
/// How long what is written already may take to be read then.
const FLUSH: Duration = Duration::from_millis(200);

/// What the reading of one stream keeps.
struct Stream {
    hub: Hub,
    out: mpsc::Sender<Bytes>,
    connection: Connection,
    in_flight: Arc<Mutex<HashMap<IdKey, CancellationToken>>>,
    told: Arc<Mutex<Told>>,
    places: Arc<Places>,
    pending: Arc<Semaphore>,
    work: TaskTracker,
}

/// Who is told of changes.
#[derive(Default)]
struct Told {
    legacy: bool,
    listens: HashMap<IdKey, Listen>,
}

impl Hub {
    /// Serves one caller until the stream ends or `stop` is ready. What is under way then is waited for a little, unless
    /// `stop` comes after the end of the stream. Gives when the end began. The servers stay as they are; close the manager
    /// after.
    pub async fn serve<R, W>(&self, input: R, output: W, stop: impl Future<Output = ()>) -> Instant
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let ended = CancellationToken::new();
        let (out, writer) = write_lines(output, ended.clone());
        let mut stream = Stream {
            hub: self.clone(),
            out: out.clone(),
            connection: Connection::stdio(),
            in_flight: Arc::default(),
            told: Arc::default(),
            places: Arc::default(),
            pending: Arc::new(Semaphore::new(MAX_PENDING)),
            work: TaskTracker::new(),
        };
        let telling = tokio::spawn(tell(self.clone(), out.clone(), Arc::clone(&stream.told)));
        let input = BufReader::with_capacity(64 * 1024, input);
        let mut lines = Lines::new(input, MAX_MESSAGE).with_unended();
        let reading = async {
            loop {
                match lines.next().await {
                    Ok(Some(line)) => stream.line(line).await,
                    Ok(None) => return,
                    Err(error) => {
                        tracing::warn!(%error, "the stream cannot be read");
                        return;
                    }
                }
            }
        };
        let mut stop = std::pin::pin!(stop);
        let stopped = tokio::select! {
            () = reading => false,
            () = &mut stop => true,
            () = out.closed() => false,
        };
        let began = Instant::now();
        telling.abort();
        stream.work.close();
        let drained = tokio::select! {
            drained = tokio::time::timeout(DRAIN, stream.work.wait()) => drained.is_ok(),
            () = &mut stop, if !stopped => false,
        };
        if !drained {
            tracing::warn!("requests in flight were given up at the end of the stream");
            for (_, token) in lock(&stream.in_flight).drain() {
                token.cancel();
            }
        }
        // What is written already goes out, then the writer ends with its queue.
        drop((stream, out));
        let left = DRAIN.saturating_sub(began.elapsed()) + FLUSH;
        let _ = tokio::time::timeout(left, writer).await;
        ended.cancel();
        began
    }
}

/// Tells of changed lists until it is aborted.
async fn tell(hub: Hub, out: mpsc::Sender<Bytes>, told: Arc<Mutex<Told>>) {
    let mut updates = hub.inner.manager.updates();
    let mut seen = *updates.borrow_and_update();
    while updates.changed().await.is_ok() {
        let now = *updates.borrow_and_update();
        let changed = [
            (ListKind::Tools, now.tools != seen.tools),
            (ListKind::Prompts, now.prompts != seen.prompts),
            (ListKind::Resources, now.resources != seen.resources),
        ];
        seen = now;
        let messages: Vec<Bytes> = {
            let told = lock(&told);
            let kinds = changed.iter().filter(|(_, changed)| *changed);
            kinds
                .flat_map(|(kind, _)| {
                    let legacy = told.legacy.then(|| notify::list_changed(*kind));
                    let modern = told.listens.values().filter_map(|l| l.changed(*kind));
                    legacy.into_iter().chain(modern).collect::<Vec<_>>()
                })
                .collect()
        };
        for message in messages {
            if out.send(message).await.is_err() {
                return;
            }
        }
    }
}

impl Stream {
    async fn line(&mut self, line: Line) {
        let answer = match line {
            Line::Blank => None,
            Line::Noise => Some(McpError::parse("the message is no JSON object").body_without_id()),
            Line::TooLong(id) => {
                let error = McpError::invalid_request(format!(
                    "a message may have at most {MAX_MESSAGE} bytes"
                ));
                Some(id.map_or_else(|| error.body_without_id(), |id| error.body(&id)))
            }
            Line::Message(body) => match envelope::parse(&body) {
                Err(reject) => reject.answer(),
                Ok(Message::Response(_)) => None,
                Ok(Message::Notification(notification)) => {
                    self.notification(&notification);
                    None
                }
                Ok(Message::Request(request)) => match climb(&request, &self.connection) {
                    Ok(era) => self.request(&request, era),
                    Err(error) => Some(error.body(&request.id)),
                },
            },
        };
        if let Some(answer) = answer {
            let _ = self.out.send(answer).await;
        }
    }

    fn notification(&mut self, notification: &Notification<'_>) {
        if notification.method == method::INITIALIZED {
            lock(&self.told).legacy = self.connection.handshake().is_some();
        }
        if notification.method == method::CANCELLED {
            let params = &notification.params;
            let token = params.request_id().map(|token| params.share(token));
            if let Some(id) = token.and_then(RequestId::from_token) {
                let key = id.key();
                lock(&self.told).listens.remove(&key);
                if let Some(token) = lock(&self.in_flight).remove(&key) {
                    token.cancel();
                }
            }
        }
    }

    /// The answer, when it can be given at once.
    fn request(&mut self, request: &Request<'_>, era: Era) -> Option<Bytes> {
        let info = &self.hub.inner.info;
        let result = match &*request.method {
            method::INITIALIZE => {
                let asked = request.params.protocol_version();
                let asked: Option<String> = asked.and_then(|text| serde_json::from_str(text).ok());
                let version = Version::negotiate(asked.as_deref());
                self.connection.shook_hands(version);
                let mut result = single("protocolVersion", &version.as_str());
                result.extend(single("capabilities", &capabilities(true)));
                result.extend(single("serverInfo", info));
                result
            }
            method::DISCOVER => {
                let versions: Vec<_> = Version::modern().map(Version::as_str).collect();
                let mut result = single("supportedVersions", &versions);
                result.extend(single("capabilities", &capabilities(false)));
                answer::uncached(&mut result);
                result
            }
            method::PING | method::SET_LEVEL => answer::Members::new(),
            method::LISTEN => {
                let info = json!(info).to_string().into();
                return Some(match Listen::read(request, info) {
                    Ok(listen) => {
                        let acknowledged = listen.acknowledged();
                        lock(&self.told).listens.insert(request.id.key(), listen);
                        acknowledged
                    }
                    Err(error) => error.body(&request.id),
                });
            }
            _ => return self.work(request, era),
        };
        Some(answer::response(
            &request.id,
            &answer::fit(result, era, info),
        ))
    }

    /// Answers beside the others. Something to answer at once is a refusal.
    fn work(&mut self, request: &Request<'_>, era: Era) -> Option<Bytes> {
        let key = request.id.key();
        let token = CancellationToken::new();
        let size = request.params.as_json().map_or(0, str::len).max(MIN_COST);
        let cost = {
            let mut in_flight = lock(&self.in_flight);
            if in_flight.contains_key(&key) {
                let error = McpError::invalid_request("a request with this id is at work");
                return Some(error.body(&request.id));
            }
            let cost = u32::try_from(size).ok();
            let cost = cost.and_then(|size| {
                let pending = Arc::clone(&self.pending);
                pending.try_acquire_many_owned(size).ok()
            });
            let Some(cost) = cost else {
                let error = "too many requests wait for an answer already";
                let error = McpError::new(code::BRIDGE_TRANSPORT, error);
                return Some(error.body(&request.id));
            };
            in_flight.insert(key.clone(), token.clone());
            cost
        };
        let mut asked = Asked::new(request, era);
        let at = self.hub.destination(request);
        asked.line = Some(Turn::stand(&self.places, at));
        let (hub, out) = (self.hub.clone(), self.out.clone());
        let in_flight = Arc::clone(&self.in_flight);
        self.work.spawn(async move {
            let _cost = cost;
            let answering = hub.answer(&asked, &out);
            // A cancelled request gets no answer; its future is dropped, which cancels it further down.
            if let Some(answer) = token.run_until_cancelled(answering).await {
                lock(&in_flight).remove(&key);
                let _ = out.send(answer).await;
            }
        });
        None
    }
}

fn capabilities(legacy: bool) -> serde_json::Value {
    let listed = json!({ "listChanged": true });
    let mut all =
        json!({ "tools": listed, "prompts": listed, "resources": listed, "completions": {} });
    if legacy {
        all["logging"] = json!({});
    }
    all
}
