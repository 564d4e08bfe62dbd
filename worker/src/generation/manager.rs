//! Loads revisions and swaps them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ramen_group::{DesiredState, Finding, Group, GroupCatalog, Reason, SecretTable};
use ramen_mcp::model::Implementation;
use ramen_mcp::{Options, Server};
use ramen_redact::{Redactor, chain};
use ramen_source::cache::CacheError;
use ramen_source::store::{Kind, StoreError};
use ramen_source::{Cache, Digest, layer};
use tokio::sync::{mpsc, watch};

use super::Generation;
use crate::desired;
use crate::hosts::pool::{Pool, PoolError, PoolSpec};
use crate::hosts::{HostError, HostSpec, LoadLimits, OutputLine, host_program};
use crate::metrics::Metrics;
use crate::packages::{self, LoadSetting};
use crate::remote::{Depot, StoreAt};

/// Lines of output that wait to be logged; more are dropped.
const OUTPUT_QUEUE: usize = 1024;

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
    pub(crate) call_timeout: Duration,
    pub(crate) drain: Duration,
    pub(crate) limits: LoadLimits,
    pub(crate) secrets: SecretTable,
}

/// Why a revision was not loaded. The one that served goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The store cannot be used.
    #[error("cannot open the store")]
    Store(#[source] StoreError),
    /// The cache cannot be used.
    #[error("cannot open the cache")]
    Cache(#[source] CacheError),
    /// A layer could not be fetched or unpacked.
    #[error("cannot unpack the {layer} layer")]
    Layer {
        /// `code` or `deps`.
        layer: &'static str,
        /// Why.
        #[source]
        source: CacheError,
    },
    /// A folder for the hosts could not be made.
    #[error("cannot make a home folder for the hosts")]
    Home(#[source] std::io::Error),
    /// There is no program for this Python.
    #[error("there is no host program for Python {python}: {path} does not exist")]
    NoHostProgram {
        /// The version asked for.
        python: String,
        /// Where it should be.
        path: String,
    },
    /// Packages that are not excluded have faults.
    #[error("packages do not load: {0}")]
    Packages(String),
    /// No host came up.
    #[error("no host came up: {0}")]
    Hosts(String),
}

impl ReloadError {
    /// How statuses name this.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Layer { source, .. } | Self::Cache(source) => source.reason(),
            Self::Store(error) => error.reason(),
            Self::Home(_) => Reason::Internal,
            Self::NoHostProgram { .. } | Self::Packages(_) | Self::Hosts(_) => Reason::ReloadFailed,
        }
    }

    /// Whether trying again with the same desired state may help.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Packages(_) | Self::NoHostProgram { .. })
    }
}

/// A load that was refused: the error itself, and what to tell of it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NotLoaded {
    /// Why.
    #[source]
    pub error: ReloadError,
    /// Everything behind the error as text, redacted.
    pub message: String,
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
        let redactor = Arc::new(Redactor::new(secrets.vars().map(|(_, value)| value)));
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
            && current.desired == desired
        {
            crate::hosts::lock(&self.last_error).clear();
            return Ok(current);
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

    async fn load(&self, desired: DesiredState) -> Result<Arc<Generation>, ReloadError> {
        let setting = &self.setting;
        let (depot, cache) = self
            .layers
            .get_or_try_init(async || {
                let cache = Cache::open(&setting.cache_dir).map_err(ReloadError::Cache)?;
                let depot = Depot::open(&setting.store, cache.root());
                Ok((depot.map_err(ReloadError::Store)?, cache))
            })
            .await?;
        let code = depot
            .ready(cache, Kind::Code, &desired.code)
            .await
            .map_err(|source| ReloadError::Layer {
                layer: "code",
                source,
            })?;
        let deps =
            match &desired.deps {
                None => None,
                Some(deps) => Some(depot.ready(cache, Kind::Deps, deps).await.map_err(
                    |source| ReloadError::Layer {
                        layer: "deps",
                        source,
                    },
                )?),
            };
        let code_dir = layer::code_dir(&code);
        let scanned = {
            let code_dir = code_dir.clone();
            tokio::task::spawn_blocking(move || ramen_group::scan(&code_dir)).await
        };
        let group = scanned.map_err(|_| ReloadError::Packages("the scan failed".into()))?;
        refuse_faults(&group, &desired.exclude)?;
        let group = group.without(&desired.exclude);
        if group.guardrails.is_some() {
            tracing::warn!("mcp/guardrails.yaml is checked but not enforced by this version");
        }
        let program = host_program(&setting.host_dir, &desired.python);
        if !group.tools.is_empty() || !group.resources.is_empty() {
            match program.try_exists() {
                Ok(true) => {}
                _ => {
                    return Err(ReloadError::NoHostProgram {
                        python: desired.python.clone(),
                        path: program.display().to_string(),
                    });
                }
            }
        }
        let home = cache.scratch().map_err(ReloadError::Home)?;
        let pool = self
            .start_pool(&group, program, &code_dir, deps.as_deref(), home.path())
            .await?;
        let info = Implementation {
            name: setting.group.clone(),
            version: desired.version().to_owned(),
            title: None,
            description: None,
            website_url: None,
            icons: Vec::new(),
        };
        let catalog = Arc::new(GroupCatalog::new(group, info));
        let options = Options::default();
        Ok(Arc::new(Generation {
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            server: Server::new(Arc::clone(&catalog) as _, options),
            desired,
            catalog,
            pool,
            secrets: Arc::clone(&self.secrets),
            redactor: Arc::clone(&self.redactor),
            call_timeout: setting.call_timeout,
            metrics: Arc::clone(&self.metrics),
            failures: super::failures::Failures::default(),
            _home: home,
        }))
    }

    async fn start_pool(
        &self,
        group: &Group,
        program: PathBuf,
        code_dir: &std::path::Path,
        deps_dir: Option<&std::path::Path>,
        home: &std::path::Path,
    ) -> Result<Arc<Pool>, ReloadError> {
        let setting = &self.setting;
        let mut env = BTreeMap::new();
        if let Some(file) = &group.env {
            let resolved = file.resolve(&self.secrets);
            for warning in &resolved.warnings {
                tracing::warn!(warning = warning.message, "a key of env.yaml is left out");
            }
            env.extend(resolved.vars);
        }
        let labels: Vec<String> = (0..group.tools.len() + group.resources.len())
            .map(|id| {
                packages::label(group, packages::tool_id(id))
                    .unwrap_or("?")
                    .to_owned()
            })
            .collect();
        let (output, lines) = mpsc::channel(OUTPUT_QUEUE);
        tokio::spawn(log_output(
            lines,
            Arc::clone(&self.redactor),
            labels.clone(),
        ));
        let metrics = Arc::clone(&self.metrics);
        let spec = PoolSpec {
            host: HostSpec {
                program,
                home: home.into(),
                secrets: self
                    .secrets
                    .vars()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                env: BTreeMap::new(),
                output: Some(output),
            },
            load: packages::load(
                group,
                LoadSetting {
                    group: &setting.group,
                    code_dir,
                    deps_dir,
                    env,
                    threads: setting.host_threads,
                },
            ),
            limits: setting.limits,
            hosts: setting.hosts,
            threads: setting.host_threads,
            max_rss: setting.host_max_rss,
            max_calls: setting.host_max_calls,
            on_restart: Arc::new(move |death| metrics.restarted(death)),
        };
        let name = |id: u32| labels.get(id as usize).map_or("?", String::as_str);
        Pool::start(spec).await.map_err(|error| match error {
            PoolError::Packages(loaded) => {
                let faults = loaded.packages.iter().filter(|one| !one.ok).map(|one| {
                    let message = one.message.as_deref().unwrap_or("did not load");
                    format!("{}: {message}", name(one.id))
                });
                ReloadError::Packages(list(faults))
            }
            PoolError::Host(HostError::ImportTimeout { id, limit }) => ReloadError::Packages(
                format!("{}: the import took longer than {limit:?}", name(id)),
            ),
            PoolError::Host(HostError::Died {
                death,
                package: Some(id),
            }) => ReloadError::Packages(format!(
                "{}: its import ended the host process ({death})",
                name(id)
            )),
            PoolError::Host(error) => ReloadError::Hosts(chain(&error)),
        })
    }
}

/// Every package that is not excluded must be free of faults. Faults of the group as a whole were
/// judged by the deploy step.
fn refuse_faults(group: &Group, exclude: &[String]) -> Result<(), ReloadError> {
    let counts = |finding: &&Finding| {
        finding
            .package
            .as_ref()
            .is_some_and(|package| !exclude.contains(package))
    };
    let mut faults = group.errors.iter().filter(counts).peekable();
    if faults.peek().is_none() {
        return Ok(());
    }
    Err(ReloadError::Packages(list(faults.map(|finding| {
        format!(
            "{}: {}",
            finding.package.as_deref().unwrap_or_default(),
            finding.message
        )
    }))))
}

/// At most ten, then how many more.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let mut text = items
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if items.len() > 10 {
        let more = (items.len() - 10).to_string();
        text.extend(["; and ", &more, " more"]);
    }
    text
}

async fn log_output(
    mut lines: mpsc::Receiver<OutputLine>,
    redactor: Arc<Redactor>,
    labels: Vec<String>,
) {
    while let Some(OutputLine {
        pid,
        stderr,
        line,
        package,
    }) = lines.recv().await
    {
        let package = package
            .and_then(|id| labels.get(id as usize))
            .map_or("", String::as_str);
        let stream = if stderr { "stderr" } else { "stdout" };
        let line = redactor.redact(&line);
        tracing::info!(target: "ramen_worker::output", pid, package, stream, line = &*line, "printed");
    }
}
