//! Changes of lists: one subscription to each worker of a group that somebody listens to, and many
//! listeners behind it.
//!
//! Each worker is heard, because a new revision goes live at one after the other: whoever lists again
//! after the last change gets the new list from any of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ramen_mcp::names::method;
use ramen_mcp::{ListKind, Listen, Message, envelope};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::access::Welcome;
use crate::groups::Group;
use crate::media;
use crate::pool::{self, Worker};

/// Changes that a slow listener may lag behind; one that lags more hears that everything changed.
const BACKLOG: usize = 16;
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How often something is sent on a silent stream.
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// A client that reads nothing for so long is cut off.
pub(crate) const SLOW_READER: Duration = Duration::from_secs(30);

const KINDS: [ListKind; 3] = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];

const SUBSCRIBE: &str = r#"{"jsonrpc":"2.0","id":"ramen-gateway","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

/// Who hears of changes of one group.
#[derive(Debug)]
pub struct Changes {
    news: broadcast::Sender<ListKind>,
    watching: Mutex<bool>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            news: broadcast::Sender::new(BACKLOG),
            watching: Mutex::new(false),
        }
    }
}

/// Hears of changes from now on; the workers are asked as long as somebody does.
pub(crate) fn subscribe(group: &Arc<Group>) -> broadcast::Receiver<ListKind> {
    let receiver = group.changes.news.subscribe();
    let mut watching = group
        .changes
        .watching
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !*watching {
        *watching = true;
        tokio::spawn(watch_workers(
            Arc::downgrade(group),
            group.changes.news.clone(),
            group.pool.watch(),
        ));
    }
    receiver
}

impl Changes {
    /// Where changes that come from elsewhere are told.
    pub(crate) fn sender(&self) -> broadcast::Sender<ListKind> {
        self.news.clone()
    }

    /// Whether nobody is left; then the watch ends, and the next listener starts another.
    fn give_up(&self) -> bool {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        *watching = self.news.receiver_count() > 0;
        !*watching
    }
}

/// Keeps a subscription to each worker until nobody listens or the group is gone.
async fn watch_workers(
    group: Weak<Group>,
    news: broadcast::Sender<ListKind>,
    mut workers: watch::Receiver<Arc<Vec<Arc<Worker>>>>,
) {
    let mut tasks = JoinSet::new();
    let mut known = HashMap::new();
    let mut first = true;
    loop {
        let now = Arc::clone(&workers.borrow_and_update());
        known.retain(|address: &String, task: &mut tokio::task::AbortHandle| {
            let stays = now.iter().any(|worker| worker.address() == address);
            if !stays {
                task.abort();
            }
            stays
        });
        for worker in now.iter() {
            if !known.contains_key(worker.address()) {
                // What a worker that came later serves may be new to those who listen already.
                let watch = watch_worker(
                    Arc::clone(worker),
                    Weak::clone(&group),
                    news.clone(),
                    !first,
                );
                known.insert(worker.address().to_owned(), tasks.spawn(watch));
            }
        }
        first = false;
        tokio::select! {
            changed = workers.changed() => if changed.is_err() {
                return;
            },
            () = news.closed() => {
                if group.upgrade().is_none_or(|group| group.changes.give_up()) {
                    return;
                }
            }
        }
    }
}

async fn watch_worker(
    worker: Arc<Worker>,
    group: Weak<Group>,
    news: broadcast::Sender<ListKind>,
    mut announce: bool,
) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        let Some(access) = group.upgrade().map(|group| group.access()) else {
            return;
        };
        let heard = match &access.worker {
            Some(keys) => listen_once(&worker, keys, &news, announce).await,
            None => false,
        };
        // In between, anything may have changed.
        announce = true;
        backoff = if heard {
            FIRST_BACKOFF
        } else {
            (backoff * 2).min(MAX_BACKOFF)
        };
        tokio::time::sleep(backoff).await;
    }
}

/// One subscription to its end; whether it was acknowledged.
async fn listen_once(
    worker: &Arc<Worker>,
    keys: &pool::Credentials,
    news: &broadcast::Sender<ListKind>,
    announce: bool,
) -> bool {
    let mut session =
        match pool::listen(worker, keys, Bytes::from_static(SUBSCRIBE.as_bytes())).await {
            Ok(session) => session,
            Err(status) => {
                tracing::debug!(
                    worker = worker.address(),
                    error = status.message(),
                    "cannot listen to a worker"
                );
                return false;
            }
        };
    let mut acknowledged = false;
    while let Ok(Some(message)) = session.next().await {
        let Ok(Message::Notification(notification)) = envelope::parse(&message) else {
            // The end of the subscription, or an error: the worker stops, or has none.
            break;
        };
        if notification.method == method::ACKNOWLEDGED {
            acknowledged = true;
            if announce {
                for kind in KINDS {
                    let _ = news.send(kind);
                }
            }
        } else if let Some(kind) = KINDS
            .into_iter()
            .find(|kind| kind.method() == notification.method)
        {
            let _ = news.send(kind);
        }
    }
    acknowledged
}

/// Serves one listener until it goes, it would not be let in any more, or the gateway stops.
pub(crate) async fn serve(
    listen: Listen,
    mut changes: broadcast::Receiver<ListKind>,
    out: mpsc::Sender<Bytes>,
    mut welcome: Box<Welcome>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval_at(Instant::now() + KEEP_ALIVE_EVERY, KEEP_ALIVE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if !send(&out, media::event(&listen.acknowledged())).await {
        return;
    }
    loop {
        let pieces = tokio::select! {
            change = changes.recv() => match change {
                Ok(kind) => listen.changed(kind).into_iter().map(|body| media::event(&body)).collect(),
                Err(broadcast::error::RecvError::Lagged(_)) => KINDS
                    .into_iter()
                    .filter_map(|kind| listen.changed(kind))
                    .map(|body| media::event(&body))
                    .collect(),
                Err(broadcast::error::RecvError::Closed) => break,
            },
            _ = tick.tick() => vec![media::KEEP_ALIVE],
            () = out.closed() => return,
            _ = welcome.over() => break,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        if welcome.judge().is_err() {
            break;
        }
        for piece in pieces {
            if !send(&out, piece).await {
                return;
            }
        }
    }
    send(&out, media::event(&listen.end())).await;
}

/// Whether it went out, or at least into the queue, in time.
pub(crate) async fn send(out: &mpsc::Sender<Bytes>, piece: Bytes) -> bool {
    matches!(
        tokio::time::timeout(SLOW_READER, out.send(piece)).await,
        Ok(Ok(()))
    )
}
