//! Loads revisions and swaps them.

mod error;
mod load;

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ramen_group::{DesiredState, SecretTable};
use ramen_redact::{Redactor, chain};
use ramen_source::{Cache, Digest};
use tokio::sync::watch;

pub use self::error::{NotLoaded, ReloadError};
use super::Generation;
use crate::config::passwords_in;
use crate::desired;
use crate::hosts::{LoadLimits, Memory};
use crate::metrics::Metrics;
use crate::remote::{Depot, StoreAt};

/// Revisions that were overtaken and are remembered.
const MAX_OVERTAKEN: usize = 16;

/// What is the same for every generation.
pub(crate) struct Setting {
    pub(crate) group: String,
    pub(crate) store: StoreAt,
    pub(crate) cache_dir: PathBuf,
    pub(crate) desired: Option<PathBuf>,
    pub(crate) host_dir: PathBuf,
    pub(crate) hosts: usize,
    pub(crate) host_threads: usize,
    pub(crate) host_max_rss: u64,
    pub(crate) host_max_calls: u64,
    pub(crate) host_env: Vec<(String, String)>,
    pub(crate) call_timeout: Duration,
    pub(crate) drain: Duration,
    pub(crate) limits: LoadLimits,
    pub(crate) memory: Arc<Memory>,
    pub(crate) secrets: SecretTable,
}

/// Holds the generation that serves.
pub struct Manager {
    setting: Setting,
    secrets: Arc<SecretTable>,
    redactor: Arc<Redactor>,
    metrics: Arc<Metrics>,
    current: watch::Sender<Option<Arc<Generation>>>,
    serving: watch::Sender<bool>,
    loading: tokio::sync::Mutex<()>,
    /// Generations that may still run, and what served before the current one.
    alive: Mutex<(Vec<Weak<Generation>>, Option<DesiredState>)>,
    layers: tokio::sync::OnceCell<(Depot, Cache)>,
    numbers: AtomicU64,
    /// What `reload` took the place of, as long as the desired-state file does not name what serves:
    /// the file comes later, in a pod by a minute, and must not bring these back on its way.
    overtaken: Mutex<Vec<DesiredState>>,
    wanted: Mutex<String>,
    last_error: Mutex<String>,
    stopping: watch::Sender<bool>,
}

impl Manager {
    pub(crate) fn new(setting: Setting, metrics: Arc<Metrics>) -> Arc<Self> {
        let secrets = Arc::new(setting.secrets.clone());
        let within = passwords_in(&setting.host_env);
        let values = secrets.vars().map(|(_, value)| value);
        let masked = values.chain(within.iter().map(String::as_str));
        let redactor = Arc::new(Redactor::new(masked));
        for name in secrets.trimmed() {
            tracing::warn!(name, "a secret ended in a line break, which was dropped");
        }
        Arc::new(Self {
            setting,
            secrets,
            redactor,
            metrics,
            current: watch::Sender::new(None),
            serving: watch::Sender::new(false),
            loading: tokio::sync::Mutex::new(()),
            alive: Mutex::default(),
            layers: tokio::sync::OnceCell::new(),
            numbers: AtomicU64::new(0),
            overtaken: Mutex::default(),
            wanted: Mutex::default(),
            last_error: Mutex::default(),
            stopping: watch::Sender::new(false),
        })
    }

    /// The generation that serves.
    pub(crate) fn current(&self) -> Option<Arc<Generation>> {
        self.current.borrow().clone()
    }

    /// Tells of each swap.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<Generation>>> {
        self.current.subscribe()
    }

    /// Whether calls are answered: packages are loaded and a host is up.
    pub(crate) fn serving(&self) -> watch::Receiver<bool> {
        self.serving.subscribe()
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The revision asked for last, and why it does not serve.
    pub(crate) fn wanted(&self) -> (String, String) {
        (
            crate::hosts::lock(&self.wanted).clone(),
            crate::hosts::lock(&self.last_error).clone(),
        )
    }

    /// From now on not serving, whatever the hosts do.
    pub(crate) fn stop_serving(&self) {
        self.stopping.send_replace(true);
        self.serving.send_replace(false);
    }

    /// Ends the hosts that serve.
    pub(crate) async fn end(&self) {
        let last = self.current.send_replace(None);
        if let Some(last) = last {
            last.pool.retire(Duration::ZERO).await;
        }
    }

    /// Loads a revision beside the one that serves, and swaps when it is up. What serves already is
    /// not loaded again. From then on the desired-state file counts again when it names this
    /// revision or one that did not serve before it.
    pub async fn reload(
        self: &Arc<Self>,
        desired: DesiredState,
    ) -> Result<Arc<Generation>, NotLoaded> {
        let _one_at_a_time = self.loading.lock().await;
        let before = self.current().map(|current| current.desired.clone());
        let named = self.setting.desired.as_deref().and_then(desired::read);
        let loaded = self.load_and_swap(desired).await?;
        let mut overtaken = crate::hosts::lock(&self.overtaken);
        if named.as_ref() == Some(&loaded.desired) {
            overtaken.clear();
        } else {
            let old: Vec<_> = before.into_iter().chain(named).collect();
            overtaken.retain(|state| !old.contains(state));
            overtaken.extend(old);
            overtaken.retain(|state| *state != loaded.desired);
            let excess = overtaken.len().saturating_sub(MAX_OVERTAKEN);
            overtaken.drain(..excess);
        }
        drop(overtaken);
        Ok(loaded)
    }

    /// The same for what the desired-state file names; `None` when it is older than what serves.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        desired: DesiredState,
    ) -> Result<Option<Arc<Generation>>, NotLoaded> {
        let _one_at_a_time = self.loading.lock().await;
        // Judged now: a reload may have ended while this waited for it.
        if crate::hosts::lock(&self.overtaken).contains(&desired) {
            tracing::debug!(revision = desired.revision, "the file is behind");
            return Ok(None);
        }
        self.overtake_nothing();
        self.load_and_swap(desired).await.map(Some)
    }

    /// Whatever the file names next counts.
    pub(crate) fn overtake_nothing(&self) {
        crate::hosts::lock(&self.overtaken).clear();
    }

    async fn load_and_swap(
        self: &Arc<Self>,
        desired: DesiredState,
    ) -> Result<Arc<Generation>, NotLoaded> {
        desired
            .revision
            .clone_into(&mut crate::hosts::lock(&self.wanted));
        if let Some(current) = self.current()
            && current.desired.loads_like(&desired)
        {
            crate::hosts::lock(&self.last_error).clear();
            if current.desired == desired {
                return Ok(current);
            }
            return Ok(self.relabel(&current, desired));
        }
        let begin = std::time::Instant::now();
        let revision = desired.revision.clone();
        match self.load(desired).await {
            Ok(generation) => {
                self.metrics.reloaded(true);
                crate::hosts::lock(&self.last_error).clear();
                self.swap(Arc::clone(&generation));
                let elapsed_ms = begin.elapsed().as_millis();
                tracing::info!(
                    revision,
                    generation = generation.number,
                    elapsed_ms,
                    "serving"
                );
                Ok(generation)
            }
            Err(error) => {
                let message = self.redactor.redact(&chain(&error)).into_owned();
                tracing::error!(revision, error = message, "a revision was not loaded");
                self.metrics.reloaded(false);
                crate::hosts::lock(&self.last_error).clone_from(&message);
                Err(NotLoaded { error, message })
            }
        }
    }

    /// Goes on with the hosts that serve, under another revision. What served before, and the way back to it,
    /// stay as they are.
    fn relabel(&self, current: &Generation, desired: DesiredState) -> Arc<Generation> {
        let generation = Arc::new(current.relabelled(desired));
        let mut alive = crate::hosts::lock(&self.alive);
        alive.0.retain(|generation| generation.strong_count() > 0);
        alive.0.push(Arc::downgrade(&generation));
        drop(alive);
        self.current.send_replace(Some(Arc::clone(&generation)));
        let revision = &generation.desired.revision;
        tracing::info!(
            revision,
            generation = generation.number,
            "serving the same under another revision"
        );
        generation
    }

    fn swap(self: &Arc<Self>, generation: Arc<Generation>) {
        let mut ready = generation.pool.ready();
        crate::hosts::lock(&self.alive)
            .0
            .push(Arc::downgrade(&generation));
        let old = self.current.send_replace(Some(Arc::clone(&generation)));
        if !*self.stopping.borrow() {
            self.serving.send_replace(generation.pool.serves());
        }
        let (number, pool) = (generation.number, Arc::downgrade(&generation.pool));
        drop(generation);
        let manager = Arc::downgrade(self);
        tokio::spawn(async move {
            while ready.changed().await.is_ok() {
                let (Some(manager), Some(pool)) = (manager.upgrade(), pool.upgrade()) else {
                    return;
                };
                let current = manager
                    .current()
                    .is_some_and(|current| current.number == number);
                if !current || *manager.stopping.borrow() {
                    return;
                }
                manager.serving.send_if_modified(|serving| {
                    std::mem::replace(serving, pool.serves()) != pool.serves()
                });
            }
        });
        if let Some(old) = old {
            crate::hosts::lock(&self.alive).1 = Some(old.desired.clone());
            let drain = self.setting.drain.max(self.setting.call_timeout);
            let manager = Arc::downgrade(self);
            tokio::spawn(async move {
                old.pool.retire(drain).await;
                drop(old);
                if let Some(manager) = manager.upgrade() {
                    manager.release_layers().await;
                }
            });
        }
    }

    /// Removes the unpacked layers that no generation needs. Those of the one before stay: a way
    /// back finds them.
    async fn release_layers(&self) {
        // A load in progress uses layers that no generation names yet.
        let _no_load = self.loading.lock().await;
        let Some((_, cache)) = self.layers.get() else {
            return;
        };
        let keep: Vec<Digest> = {
            let mut alive = crate::hosts::lock(&self.alive);
            alive.0.retain(|generation| generation.strong_count() > 0);
            let running: Vec<_> = alive.0.iter().filter_map(Weak::upgrade).collect();
            running
                .iter()
                .map(|generation| &generation.desired)
                .chain(&alive.1)
                .flat_map(|desired| [Some(&desired.code), desired.deps.as_ref()])
                .flatten()
                .filter_map(|layer| layer.digest.parse().ok())
                .collect()
        };
        let cache = cache.clone();
        let released = tokio::task::spawn_blocking(move || cache.release(&keep)).await;
        match released {
            Ok(Ok(layers)) => tracing::debug!(layers, "unpacked layers of old revisions removed"),
            Ok(Err(error)) => tracing::warn!(error = chain(&error), "cannot remove old layers"),
            Err(_) => {}
        }
    }
}
