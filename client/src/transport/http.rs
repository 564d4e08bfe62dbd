//! A server behind Streamable HTTP: each message is a request of its own, each answer JSON or a stream of events.

mod answer;
pub(crate) mod dial;
mod listen;
pub(crate) mod mirror;
mod request;
mod sse;
mod tokens;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use ramen_mcp::names::method;
use ramen_mcp::{IdKey, RequestId, Version};
use ramen_redact::{Redactor, SafeUrl, Secret};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Inbound, Link, Outgoing, QUEUE, Wire, passed};
use crate::client::Addresses;
use crate::error::ClientError;
use crate::limits::Limits;
use crate::oauth::SignIn;
use dial::Dial;
use tokens::Tokens;

/// Messages that may be lost and are on their way at once.
const MAX_POSTS: usize = 8;

/// The endpoint and what is going on with it.
pub(crate) struct HttpWire {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

struct Shared {
    server: String,
    url: SafeUrl,
    uri: Uri,
    headers: HeaderMap,
    dial: Dial,
    redactor: Redactor,
    limits: Limits,
    inbound: mpsc::Sender<Inbound>,
    stop: CancellationToken,
    /// How long a session may take to be given back.
    patience: watch::Sender<Duration>,
    posts: Arc<Semaphore>,
    sign_in: Option<SignIn>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of a legacy server that minted one.
    session: Option<HeaderValue>,
    version: Option<Version>,
    tokens: Tokens,
    exchanges: HashMap<IdKey, Exchange>,
    listening: Option<AbortHandle>,
    /// Why there was no connection to be had, when nothing was heard of the server since.
    unreachable: Option<String>,
}

/// A request that waits for its answer.
struct Exchange {
    task: AbortHandle,
    /// It waits for ever, so it says nothing of whether the server is well.
    listens: bool,
}

impl State {
    /// Why the server is gone: it cannot be reached, and nothing is under way that may still be answered. One connection
    /// that is refused is no end of those that are open.
    fn lost(&self) -> Option<String> {
        let works = self.exchanges.values().any(|exchange| !exchange.listens);
        self.unreachable.clone().filter(|_| !works)
    }
}

/// Prepares an endpoint; the first message connects.
pub(crate) fn open(
    server: &str,
    url: &SafeUrl,
    headers: &BTreeMap<String, Secret>,
    limits: &Limits,
    redactor: Redactor,
    sign_in: Option<SignIn>,
    addresses: Option<Addresses>,
) -> Result<Link, ClientError> {
    let bad = |why: &str| ClientError::Config {
        server: server.to_owned(),
        why: why.to_owned(),
    };
    let mut target = url.expose().clone();
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| bad("a header has no usable name"))?;
        // The error of the conversion is not shown: it might hold the value.
        let mut value = HeaderValue::from_str(value.expose().trim())
            .map_err(|_| bad("a header has no usable value"))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    if let Some(basic) = request::basic(&target) {
        map.entry(http::header::AUTHORIZATION).or_insert(basic);
    }
    // Both fail only for addresses that cannot have them.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    target.set_fragment(None);
    let uri: Uri = target
        .as_str()
        .parse()
        .map_err(|_| bad("the url cannot be sent"))?;
    let (inbound_in, inbound) = mpsc::channel(QUEUE);
    let (ended_in, ended) = watch::channel(false);
    let shared = Arc::new(Shared {
        server: server.to_owned(),
        dial: Dial::new(target.scheme() == "https", addresses),
        url: url.clone(),
        uri,
        headers: map,
        redactor,
        limits: *limits,
        inbound: inbound_in,
        stop: CancellationToken::new(),
        patience: watch::Sender::new(limits.close),
        posts: Arc::new(Semaphore::new(MAX_POSTS)),
        state: Mutex::default(),
        sign_in,
    });
    let kept = shared
        .sign_in
        .as_ref()
        .and_then(|sign_in| sign_in.kept(url.expose()));
    if let Some(token) = kept {
        shared.state().tokens.add(token);
    }
    tokio::spawn(keep(Arc::clone(&shared), ended_in));
    Ok(Link {
        wire: Box::new(HttpWire { shared, ended }),
        inbound,
    })
}

/// Waits for the end, stops what is going on, and gives the session back.
async fn keep(shared: Arc<Shared>, ended: watch::Sender<bool>) {
    shared.stop.cancelled().await;
    let session = {
        let mut state = shared.state();
        for (_, exchange) in state.exchanges.drain() {
            exchange.task.abort();
        }
        if let Some(listening) = state.listening.take() {
            listening.abort();
        }
        state.session.take()
    };
    if let Some(session) = session {
        let mut patience = shared.patience.subscribe();
        tokio::select! {
            () = shared.end_session(session) => {}
            () = passed(Instant::now(), &mut patience) => {}
        }
    }
    ended.send_replace(true);
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a server says, without our secrets in case it quotes them.
    fn masked(&self, text: &str) -> String {
        self.without_tokens(self.redactor.redact(text).into_owned())
    }

    fn without_tokens(&self, text: String) -> String {
        let mask = self.state().tokens.mask();
        if mask.is_empty() {
            return text;
        }
        mask.redact(&text).into_owned()
    }

    /// The server is not there any more.
    async fn gone(&self, why: String) {
        let _ = self.inbound.send(Inbound::End(why)).await;
        self.stop.cancel();
    }

    fn spawn_exchange(
        self: &Arc<Self>,
        id: &RequestId,
        message: Outgoing,
    ) -> Result<(), ClientError> {
        let shared = Arc::clone(self);
        let key = id.key();
        let listens = message.method == method::LISTEN;
        let (id, done) = (id.clone(), key.clone());
        let mut state = self.state();
        if self.stop.is_cancelled() {
            return Err(ClientError::gone("it was closed"));
        }
        let task = tokio::spawn(async move {
            let outcome = shared.exchange(&id, &message).await;
            // Gone from the table before its failure is known, so that a cancel finds nothing to do.
            let lost = {
                let mut state = shared.state();
                state.exchanges.remove(&done);
                if outcome.is_ok() {
                    state.unreachable = None;
                }
                state.lost()
            };
            if let Err(error) = outcome {
                let _ = shared.inbound.send(Inbound::Failed(id, error)).await;
            }
            if let Some(why) = lost {
                shared.gone(why).await;
            }
        });
        let task = task.abort_handle();
        state.exchanges.insert(key, Exchange { task, listens });
        Ok(())
    }
}

impl Wire for HttpWire {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(async move {
            match message.id.clone() {
                Some(id) => self.shared.spawn_exchange(&id, message),
                // What follows it may depend on it.
                None => self.shared.notify(&message).await,
            }
        })
    }

    fn post(&self, message: Outgoing) {
        let Ok(permit) = Arc::clone(&self.shared.posts).try_acquire_owned() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                _ = shared.notify(&message) => {}
                () = shared.stop.cancelled() => {}
            }
        });
    }

    /// To a modern server the end of the connection says it; a legacy one must be told.
    fn cancel(&self, id: &RequestId, notice: Option<Outgoing>) {
        let lost = {
            let mut state = self.shared.state();
            if let Some(exchange) = state.exchanges.remove(&id.key()) {
                exchange.task.abort();
            }
            state.lost()
        };
        if let Some(why) = lost {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move { shared.gone(why).await });
        }
        if let Some(notice) = notice
            && notice.version.is_none_or(|version| !version.is_modern())
        {
            self.post(notice);
        }
    }

    fn listen(&self, version: Version) {
        let shared = Arc::clone(&self.shared);
        let mut state = self.shared.state();
        state.version = Some(version);
        if let Some(before) = state.listening.take() {
            before.abort();
        }
        if !self.shared.stop.is_cancelled() && !version.is_modern() {
            let task = tokio::spawn(async move { shared.listen(version).await });
            state.listening = Some(task.abort_handle());
        }
    }

    fn stop(&self) {
        self.shared.stop.cancel();
    }

    fn mask(&self, text: String) -> String {
        self.shared.without_tokens(text)
    }

    fn hurry(&self, patience: Duration) {
        self.shared.patience.send_replace(patience);
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let _ = ended.wait_for(|ended| *ended).await;
        })
    }
}
