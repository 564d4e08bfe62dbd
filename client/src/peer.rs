//! Requests over a wire: which answer belongs to which, who waits for it, and what a server says unasked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ramen_mcp::envelope::{self, Message, Request};
use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use ramen_mcp::{IdKey, McpError, RequestId, Version, notify};
use ramen_redact::Redactor;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::ask;
use crate::client::{Elicit, Progress};
use crate::error::ClientError;
use crate::limits::Limits;
use crate::refusal::refusal;
use crate::transport::{Inbound, Link, Outgoing, Wire};

/// Things a server does wrong that are logged; more are counted only.
const MAX_WARNINGS: u32 = 10;

/// Questions to a person that wait at once.
const MAX_QUESTIONS: usize = 16;
/// Answers to what a server asks that are on their way at once. Whoever asks more than that at once, and does not read, is
/// not answered.
const MAX_REPLIES: usize = 64;
/// What a server asks a person by.
pub(crate) const ELICIT: &str = "elicitation/create";

/// What comes of a request.
type Answer = Result<Json, ClientError>;

/// A request to be asked.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    method: String,
    params: Option<String>,
    name: Option<String>,
    headers: Vec<(String, String)>,
    modern: Option<Version>,
    uncancellable: bool,
    progress: Option<mpsc::Sender<Progress>>,
}

impl Ask {
    pub(crate) fn new(method: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            ..Self::default()
        }
    }

    /// JSON text of the parameters, an object.
    pub(crate) fn params(mut self, params: impl Into<String>) -> Self {
        self.params = Some(params.into());
        self
    }

    /// What HTTP mirrors of the parameters.
    pub(crate) fn mirrored(mut self, name: Option<String>, headers: Vec<(String, String)>) -> Self {
        self.name = name;
        self.headers = headers;
        self
    }

    /// In this revision, whatever is agreed on.
    pub(crate) fn modern(mut self, version: Version) -> Self {
        self.modern = Some(version);
        self
    }

    /// `initialize` must not be cancelled.
    pub(crate) fn uncancellable(mut self) -> Self {
        self.uncancellable = true;
        self
    }

    /// Where progress goes.
    pub(crate) fn progress(mut self, progress: Option<mpsc::Sender<Progress>>) -> Self {
        self.progress = progress;
        self
    }
}

/// How often each list was said to have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) tools: u64,
    pub(crate) prompts: u64,
    pub(crate) resources: u64,
}

/// One end of a connection.
pub(crate) struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    wire: Box<dyn Wire>,
    limits: Limits,
    redactor: Redactor,
    /// Who answers what a server asks of a person.
    person: Option<Elicit>,
    capabilities: Value,
    questions: Arc<Semaphore>,
    replies: Arc<Semaphore>,
    table: Mutex<Table>,
    changes: watch::Sender<Changes>,
    done: CancellationToken,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<i64, Waiting>,
    next: u32,
    version: Option<Version>,
    gone: Option<String>,
    warnings: u32,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    progress: Option<mpsc::Sender<Progress>>,
}

impl Peer {
    /// Takes both ways of a link; what comes in is read until it ends.
    pub(crate) fn new(
        server: &str,
        link: Link,
        limits: Limits,
        redactor: Redactor,
        person: Option<Elicit>,
    ) -> Self {
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            wire: link.wire,
            limits,
            redactor,
            capabilities: ask::capabilities(person.is_some()),
            person,
            questions: Arc::new(Semaphore::new(MAX_QUESTIONS)),
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            table: Mutex::default(),
            changes: watch::Sender::new(Changes::default()),
            done: CancellationToken::new(),
        });
        let reader = Arc::clone(&shared);
        tokio::spawn(async move { reader.read(link.inbound).await });
        Self { shared }
    }

    /// From now on requests are written in this revision.
    pub(crate) fn speak(&self, version: Version) {
        self.shared.table().version = Some(version);
    }

    /// What is declared to the server.
    pub(crate) fn capabilities(&self) -> &Value {
        &self.shared.capabilities
    }

    pub(crate) fn done(&self) -> &CancellationToken {
        &self.shared.done
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Changes> {
        self.shared.changes.subscribe()
    }

    /// Opens the channel of unasked messages, where it is one of its own.
    pub(crate) fn listen(&self, version: Version) {
        self.shared.wire.listen(version);
    }

    /// Ends the connection and waits for that.
    pub(crate) async fn close(&self) {
        self.stop();
        self.shared.wire.stopped().await;
    }

    /// The same within a time, which may be made shorter while it is waited for.
    pub(crate) async fn close_within(&self, patience: Duration) {
        self.shared.wire.hurry(patience);
        self.close().await;
    }

    /// Every list may have changed unheard.
    pub(crate) fn assume_changed(&self) {
        self.shared.changes.send_modify(|changes| {
            changes.tools += 1;
            changes.prompts += 1;
            changes.resources += 1;
        });
    }

    /// Begins to end the connection; everyone who waits hears of it.
    pub(crate) fn stop(&self) {
        self.shared.end("it was closed");
        self.shared.wire.stop();
    }

    pub(crate) async fn send_initialized(&self) -> Result<(), ClientError> {
        let message = self.shared.notice(ask::initialized(), method::INITIALIZED);
        let sending = self.shared.wire.send(message);
        match self.shared.done.run_until_cancelled(sending).await {
            Some(sent) => sent,
            None => Err(ClientError::gone("it was closed")),
        }
    }

    /// Asks and waits for the answer. A request whose future is dropped, or that takes too long, is cancelled.
    pub(crate) async fn ask(&self, ask: Ask, patience: Duration) -> Result<Json, ClientError> {
        let shared = &self.shared;
        let method = ask.method.clone();
        let (outgoing, answer, _guard) = shared.register(ask)?;
        let asked = async {
            shared.wire.send(outgoing).await?;
            // The sender is dropped only together with the table, which `self` keeps.
            answer
                .await
                .unwrap_or_else(|_| Err(ClientError::gone("nothing reads its answers")))
        };
        tokio::time::timeout(patience, asked)
            .await
            .unwrap_or(Err(ClientError::Timeout {
                method,
                after: patience,
            }))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notice(&self, body: Bytes, method: &str) -> Outgoing {
        Outgoing {
            body,
            id: None,
            method: method.to_owned(),
            name: None,
            headers: Vec::new(),
            version: self.table().version,
        }
    }

    /// Enters a request into the table and writes it.
    fn register(
        self: &Arc<Self>,
        ask: Ask,
    ) -> Result<(Outgoing, oneshot::Receiver<Answer>, Guard), ClientError> {
        let (sender, answer) = oneshot::channel();
        let mut table = self.table();
        if let Some(why) = &table.gone {
            return Err(ClientError::gone(why.clone()));
        }
        let pending = self.limits.pending;
        if table.waiting.len() >= pending {
            return Err(ClientError::Busy { pending });
        }
        // After four billion requests a number may still be in use.
        let number = loop {
            let number = table.next;
            table.next = table.next.wrapping_add(1);
            if !table.waiting.contains_key(&i64::from(number)) {
                break number;
            }
        };
        let version = ask.modern.or(table.version);
        let id = RequestId::number(number);
        let modern = version.filter(|version| version.is_modern());
        let modern = modern.map(|version| (version, &self.capabilities));
        let token = ask.progress.is_some().then_some(&id);
        let params = ask::params(ask.params.as_deref(), modern, token)?;
        let body = ask::request(&id, &ask.method, params.as_deref());
        if body.len() > self.limits.message {
            return Err(ClientError::TooLarge {
                what: "the request",
                limit: self.limits.message,
            });
        }
        let waiting = Waiting {
            answer: sender,
            progress: ask.progress,
        };
        table.waiting.insert(i64::from(number), waiting);
        let guard = Guard {
            shared: Arc::clone(self),
            number: i64::from(number),
            id: id.clone(),
            silent: ask.uncancellable,
        };
        let outgoing = Outgoing {
            body,
            id: Some(id),
            method: ask.method,
            name: ask.name,
            headers: ask.headers,
            version,
        };
        Ok((outgoing, answer, guard))
    }

    /// Reads until the transport ends, then tells everyone.
    async fn read(self: Arc<Self>, mut inbound: mpsc::Receiver<Inbound>) {
        let mut why = None;
        loop {
            let item = tokio::select! {
                biased;
                () = self.done.cancelled() => break,
                item = inbound.recv() => item,
            };
            let Some(item) = item else { break };
            match item {
                Inbound::Message(body) => self.message(&body),
                Inbound::Failed(id, error) => self.answer(&id, Err(error)),
                Inbound::Skipped(what) => self.warn(what),
                Inbound::End(reason) => {
                    why = Some(reason);
                    break;
                }
            }
        }
        self.end(why.as_deref().unwrap_or("the connection ended"));
    }

    /// The first reason counts. Who waits is answered before `done` is said.
    fn end(&self, why: &str) {
        let waiting = {
            let mut table = self.table();
            table.gone.get_or_insert_with(|| why.to_owned());
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            let _ = waiting.answer.send(Err(ClientError::gone(why)));
        }
        self.done.cancel();
    }

    /// A request of the server: whether we are there, or something for a person.
    fn asked(self: &Arc<Self>, request: &Request<'_>) {
        let answer = match (&*request.method, &self.person) {
            (method::PING, _) => ask::result(&request.id, "{}"),
            (ELICIT, Some(person)) => {
                let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else {
                    let busy = McpError::internal("too many questions at once");
                    return self.reply(busy.body(&request.id));
                };
                let question = Json::parse(request.params.as_json().unwrap_or("{}"));
                let (shared, person) = (Arc::clone(self), person.clone());
                let id = request.id.clone();
                tokio::spawn(async move {
                    let _permit = permit;
                    let Ok(question) = question else { return };
                    let asking = person.ask(question);
                    if let Some(answer) = shared.done.run_until_cancelled(asking).await {
                        shared.reply(ask::result(&id, answer.get()));
                    }
                });
                return;
            }
            _ => McpError::method_not_found(&request.method).body(&request.id),
        };
        self.reply(answer);
    }

    /// Answers the server. The reading does not wait for it: a server may read nothing while it writes.
    fn reply(self: &Arc<Self>, body: Bytes) {
        let Ok(permit) = Arc::clone(&self.replies).try_acquire_owned() else {
            return self.warn("more questions than are answered at once");
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let _permit = permit;
            let sending = shared.wire.send(shared.notice(body, ""));
            // That it is not there any more is told by its end.
            let _ = shared.done.run_until_cancelled(sending).await;
        });
    }

    fn message(self: &Arc<Self>, body: &Bytes) {
        match envelope::parse(body) {
            Ok(Message::Response(response)) => {
                let outcome = match response.outcome {
                    Ok(result) => Json::parse(result)
                        .map_err(|error| ClientError::answer("a request", error.to_string())),
                    Err(error) => Err(refusal(|text| self.masked(text), error)),
                };
                match response.id {
                    Some(id) => self.answer(&id, outcome),
                    None => self.warn("an answer without an id"),
                }
            }
            Ok(Message::Notification(notification)) => {
                self.notification(&notification.method, notification.params.as_json());
            }
            Ok(Message::Request(request)) => self.asked(&request),
            Err(reject) => match reject.id {
                Some(id) => self.answer(
                    &id,
                    Err(ClientError::answer("a request", reject.error.message)),
                ),
                None => self.warn("a line that is no message"),
            },
        }
    }

    /// What a server says, without our secrets in case it quotes them.
    fn masked(&self, text: &str) -> String {
        self.wire.mask(self.redactor.redact(text).into_owned())
    }

    fn answer(&self, id: &RequestId, outcome: Result<Json, ClientError>) {
        let waiting = match id.key() {
            IdKey::Int(number) => self.table().waiting.remove(&number),
            // Ours are numbers: `"0"` is not `0`.
            IdKey::Text(_) => None,
        };
        match waiting {
            // Who asked may have gone in this moment.
            Some(waiting) => drop(waiting.answer.send(outcome)),
            None => self.warn("an answer to nothing that was asked"),
        }
    }

    fn notification(&self, name: &str, params: Option<&str>) {
        match name {
            method::TOOLS_CHANGED => self.changes.send_modify(|changes| changes.tools += 1),
            method::PROMPTS_CHANGED => self.changes.send_modify(|changes| changes.prompts += 1),
            method::RESOURCES_CHANGED => self.changes.send_modify(|changes| changes.resources += 1),
            method::PROGRESS => self.progress(params),
            method::LOG_MESSAGE => {
                let begun: String = params.unwrap_or_default().chars().take(4000).collect();
                let text: String = self.masked(&begun).chars().take(2000).collect();
                tracing::debug!(server = self.server, message = %text, "log of a server");
            }
            _ => {}
        }
    }

    fn progress(&self, params: Option<&str>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            progress_token: i64,
            progress: f64,
            #[serde(default)]
            total: Option<f64>,
            #[serde(default)]
            message: Option<String>,
        }
        let Some(params) = params.and_then(|text| serde_json::from_str::<Params>(text).ok()) else {
            return self.warn("progress that cannot be read");
        };
        let table = self.table();
        let waiting = table.waiting.get(&params.progress_token);
        if let Some(sender) = waiting.and_then(|waiting| waiting.progress.as_ref()) {
            // Who reads too slowly misses some: a later one says more.
            let _ = sender.try_send(Progress {
                progress: params.progress,
                total: params.total,
                message: params.message,
            });
        }
    }

    fn warn(&self, what: &str) {
        let count = {
            let mut table = self.table();
            table.warnings = table.warnings.saturating_add(1);
            table.warnings
        };
        if count <= MAX_WARNINGS {
            let more = (count == MAX_WARNINGS).then_some("further ones are not logged");
            tracing::warn!(
                server = self.server,
                what,
                more,
                "skipped what a server sent"
            );
        }
    }
}

/// Takes a request out of the table when nobody waits any more, and tells the server.
struct Guard {
    shared: Arc<Shared>,
    number: i64,
    id: RequestId,
    silent: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let unanswered = self.shared.table().waiting.remove(&self.number).is_some();
        if unanswered {
            let notice = (!self.silent).then(|| {
                let body = notify::cancelled(&self.id, "nobody waits for it any more");
                self.shared.notice(body, method::CANCELLED)
            });
            self.shared.wire.cancel(&self.id, notice);
        }
    }
}
