//! All servers of one program: connected in the order of their names, supervised, offered as a snapshot.

mod lists;
mod replace;
mod supervise;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::BackoffPolicy;
use crate::client::{Client, Options, Updates};
use crate::config::ServerConfig;
use crate::error::ClientError;
use crate::list::Tool;
use supervise::Begin;

pub use lists::Lists;

/// How a [`Manager`] works.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// For each connection.
    pub client: Options,
    /// How reconnecting waits.
    pub backoff: BackoffPolicy,
    /// Servers that are being connected at once.
    pub parallel: usize,
    /// Whether a server that failed at the start is tried again, as one that is lost later. It is not by default: a
    /// server that was never there is usually a mistake in the configuration.
    pub retry_failed: bool,
    /// Whether prompts and resources are kept as the tools are: listed when a server is connected and when it says that
    /// they changed, not when somebody asks. And how often all lists of a server over HTTP are asked for again, since
    /// nothing else tells that such a server went away or was replaced.
    pub keep_lists: Option<Duration>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            client: Options::default(),
            backoff: BackoffPolicy::default(),
            parallel: 8,
            retry_failed: false,
            keep_lists: None,
        }
    }
}

/// What becomes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Connected.
    Up,
    /// Being connected for the first time.
    Connecting,
    /// Not started: its tools are known from the cache, and the first use connects it.
    Cached,
    /// Not there. Its last known tools are kept.
    Down {
        /// Why.
        why: String,
        /// Whether it is tried again.
        retrying: bool,
    },
}

/// One server as it is now.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub state: State,
    /// Its tools as last known.
    pub tools: Arc<[Tool]>,
    /// What it declares, as last known: `tools`, `prompts`, `resources`.
    pub offers: Option<Arc<[String]>>,
    /// What else it lists, as last known; empty unless the manager keeps lists.
    pub lists: Lists,
    /// When it came into this state.
    pub since: SystemTime,
}

/// Makes a connection; another one in tests.
type Connect = Arc<
    dyn Fn(String, ServerConfig, Options) -> BoxFuture<'static, Result<Client, ClientError>>
        + Send
        + Sync,
>;

/// Owns every connected server of one program and supervises each for the rest of its life: one whose transport dies is
/// connected again, with backoff, rather than left dead until the next start.
pub struct Manager {
    inner: Arc<Inner>,
}

struct Inner {
    options: ManagerOptions,
    connect: Connect,
    slots: Mutex<BTreeMap<String, Slot>>,
    updates: watch::Sender<Updates>,
    stop: CancellationToken,
    supervisors: TaskTracker,
    /// Those that are being closed at the end, for who wants it to go faster.
    leaving: Mutex<Vec<Arc<Client>>>,
}

struct Slot {
    config: ServerConfig,
    client: Option<Arc<Client>>,
    tools: Arc<[Tool]>,
    offers: Option<Arc<[String]>>,
    lists: Lists,
    state: State,
    since: SystemTime,
    /// Ends the supervision of this server alone.
    stop: CancellationToken,
    /// It is not to be connected: its configuration cannot be used.
    refused: bool,
    first_use: Arc<FirstUse>,
}

/// How a server is connected for its first use.
#[derive(Default)]
struct FirstUse {
    /// Held meanwhile.
    alone: tokio::sync::Mutex<()>,
    /// How often that failed, and why it did last.
    failed: Mutex<(u64, Option<ClientError>)>,
}

impl FirstUse {
    fn failed(&self) -> MutexGuard<'_, (u64, Option<ClientError>)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Manager").field(&self.status()).finish()
    }
}

impl Manager {
    /// Dials every enabled server, in the order of their names so that the log of a start is stable. A failure is logged
    /// and skipped: a broken or missing server costs its own tools and nothing else. Every server that does connect is
    /// supervised from then on.
    pub async fn connect_all(
        servers: BTreeMap<String, ServerConfig>,
        options: ManagerOptions,
    ) -> Self {
        let manager = Self::new(options, dial());
        manager.start(servers).await;
        manager
    }

    /// Like [`Manager::connect_all`], but a server whose tools the cache knows under this very configuration is not
    /// started: its tools are offered from the cache, and [`Manager::client`] connects it when it is used.
    pub async fn open(servers: BTreeMap<String, ServerConfig>, options: ManagerOptions) -> Self {
        let manager = Self::new(options, dial());
        manager.open_with(servers).await;
        manager
    }

    fn new(options: ManagerOptions, connect: Connect) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                connect,
                slots: Mutex::default(),
                updates: watch::Sender::new(Updates::default()),
                stop: CancellationToken::new(),
                supervisors: TaskTracker::new(),
                leaving: Mutex::default(),
            }),
        }
    }

    /// A manager without servers: see [`Manager::replace`].
    pub fn empty(options: ManagerOptions) -> Self {
        Self::new(options, dial())
    }

    async fn open_with(&self, servers: BTreeMap<String, ServerConfig>) {
        let unknown = self.trust(servers).await;
        self.start(unknown).await;
    }

    /// Offers those of these servers that the cache knows, without starting them; gives the others, which are to be started.
    pub(crate) async fn trust(
        &self,
        servers: BTreeMap<String, ServerConfig>,
    ) -> BTreeMap<String, ServerConfig> {
        let known = match self.inner.options.client.cache.clone() {
            Some(cache) => tokio::task::spawn_blocking(move || cache.entries())
                .await
                .unwrap_or_default(),
            None => BTreeMap::new(),
        };
        let (mut trusted, mut unknown) = (Vec::new(), BTreeMap::new());
        for (name, config) in servers.into_iter().filter(|(_, config)| config.enabled) {
            let stop = self.inner.stop.child_token();
            match known.get(&name) {
                Some(entry) if entry.fingerprint == config.fingerprint() => {
                    let mut slot = Slot::new(config, State::Cached, stop);
                    slot.tools = Arc::from(entry.tools.as_slice());
                    slot.offers = entry.offers.as_deref().map(Arc::from);
                    trusted.push((name, slot));
                }
                _ => {
                    unknown.insert(name, config);
                }
            }
        }
        self.inner.slots().extend(trusted);
        unknown
    }

    /// Dials every enabled one of these servers, and ends when each was tried.
    pub(crate) async fn start(&self, servers: BTreeMap<String, ServerConfig>) {
        let inner = &self.inner;
        let dialled = servers
            .into_iter()
            .filter(|(_, config)| config.enabled)
            .enumerate()
            .map(|(place, (name, config))| async move {
                let told = inner.begin(&name, config).await;
                (place, name, told)
            });
        // They start and are told of in order. Each is there as soon as it is connected, and makes room for the next: one that
        // hangs holds up only what is told.
        let parallel = inner.options.parallel.max(1);
        let mut dialled = stream::iter(dialled).buffer_unordered(parallel);
        let (mut next, mut later) = (0, BTreeMap::new());
        while let Some((place, name, told)) = dialled.next().await {
            later.insert(place, (name, told));
            while let Some((name, told)) = later.remove(&next) {
                next += 1;
                match told {
                    Ok((info, tools)) => tracing::info!(server = name, info, tools, "connected"),
                    Err(error) => {
                        tracing::warn!(server = name, error, "not connected; going on without it");
                    }
                }
            }
        }
    }

    /// Every server that is connected now, by name. A copy: servers come and go while somebody looks at it.
    pub fn clients(&self) -> BTreeMap<String, Arc<Client>> {
        let slots = self.inner.slots();
        slots
            .iter()
            .filter_map(|(name, slot)| Some((name.clone(), Arc::clone(slot.client.as_ref()?))))
            .collect()
    }

    /// Every enabled server, with its tools as last known.
    pub fn status(&self) -> Vec<Status> {
        let slots = self.inner.slots();
        slots
            .iter()
            .map(|(name, slot)| Status {
                name: name.clone(),
                state: slot.state.clone(),
                tools: match &slot.client {
                    Some(client) => client.tools(),
                    None => Arc::clone(&slot.tools),
                },
                offers: slot.offers.clone(),
                lists: slot.lists.clone(),
                since: slot.since,
            })
            .collect()
    }

    /// A server to be used: connected now when only the cache knew it.
    pub async fn client(&self, name: &str) -> Result<Arc<Client>, ClientError> {
        let unknown = || ClientError::Config {
            server: name.to_owned(),
            why: "there is no such server, or it is not enabled".to_owned(),
        };
        let first_use = {
            let slots = self.inner.slots();
            let slot = slots.get(name).ok_or_else(unknown)?;
            match (&slot.client, &slot.state) {
                (Some(client), _) => return Ok(Arc::clone(client)),
                (None, State::Down { why, .. }) => return Err(ClientError::gone(why.clone())),
                (None, State::Connecting) => {
                    return Err(ClientError::gone("it is not connected yet"));
                }
                (None, _) => Arc::clone(&slot.first_use),
            }
        };
        let before = first_use.failed().0;
        let _alone = first_use.alone.lock().await;
        let config = {
            let slots = self.inner.slots();
            let slot = slots.get(name).ok_or_else(unknown)?;
            if let Some(client) = &slot.client {
                return Ok(Arc::clone(client));
            }
            slot.config.clone()
        };
        // Whoever waited for an attempt has its outcome: one after the other would wait longer and longer.
        if let (count, Some(error)) = &*first_use.failed()
            && *count != before
        {
            return Err(error.clone());
        }
        let client = tokio::select! {
            client = self.inner.connect(name, &config) => client,
            () = self.inner.stop.cancelled() => return Err(ClientError::gone("it was closed")),
        };
        // A failure leaves it as it is: the next use tries again.
        let client = Arc::new(client.inspect_err(|error| {
            let mut failed = first_use.failed();
            *failed = (failed.0 + 1, Some(error.clone()));
        })?);
        if self.inner.adopt(name, Arc::clone(&client)).await {
            return Ok(client);
        }
        Err(ClientError::gone("it was closed"))
    }

    /// Whether prompts and resources are kept as the tools are.
    pub(crate) fn keeps_lists(&self) -> bool {
        self.inner.options.keep_lists.is_some()
    }

    /// Tells when servers come, go, or change their lists.
    pub fn updates(&self) -> watch::Receiver<Updates> {
        self.inner.updates.subscribe()
    }

    /// Stops the supervision, waits until every supervisor is gone, and only then shuts the servers down. So none is
    /// closed under a supervisor that would take the shutdown for a crash and connect it again.
    pub async fn close(&self) {
        let clients = self.leave().await;
        futures::future::join_all(clients.iter().map(|client| client.close())).await;
        self.inner.leaving().clear();
    }

    /// The same with this long for all servers at once (see [`Client::close_within`]). Makes an end shorter that is under
    /// way.
    pub async fn close_within(&self, patience: Duration) {
        let clients = self.leave().await;
        let ends = clients.iter().map(|client| client.close_within(patience));
        futures::future::join_all(ends).await;
        self.inner.leaving().clear();
    }

    /// Ends the supervision; gives what is to be closed then.
    async fn leave(&self) -> Vec<Arc<Client>> {
        self.inner.supervisors.close();
        self.inner.stop.cancel();
        self.inner.supervisors.wait().await;
        let mut leaving = self.inner.leaving();
        leaving.extend(self.inner.slots().values_mut().filter_map(|slot| {
            slot.become_down("it was closed", false);
            slot.client.take()
        }));
        leaving.clone()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.inner.stop.cancel();
    }
}

impl Slot {
    fn new(config: ServerConfig, state: State, stop: CancellationToken) -> Self {
        Self {
            config,
            client: None,
            tools: Arc::from([]),
            offers: None,
            lists: Lists::default(),
            state,
            since: SystemTime::now(),
            stop,
            refused: false,
            first_use: Arc::default(),
        }
    }

    /// Whether that is news.
    fn become_state(&mut self, state: State) -> bool {
        let news = std::mem::discriminant(&self.state) != std::mem::discriminant(&state);
        if news {
            self.since = SystemTime::now();
        }
        self.state = state;
        news
    }

    fn become_down(&mut self, why: &str, retrying: bool) -> bool {
        self.become_state(State::Down {
            why: why.to_owned(),
            retrying,
        })
    }
}

impl Inner {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, name: &str, slot: Slot) {
        self.slots().insert(name.to_owned(), slot);
    }

    /// Connects a server for the first time; gives who it is and how many tools it has, or why it is not connected.
    async fn begin(
        self: &Arc<Self>,
        name: &str,
        config: ServerConfig,
    ) -> Result<(String, usize), String> {
        match self.connect(name, &config).await {
            Ok(client) => {
                let client = Arc::new(client);
                let told = (client.server_info(), client.tools().len());
                let mut slot = Slot::new(config, State::Up, self.stop.child_token());
                // Before anybody sees it, or they would connect it once more.
                slot.arrive(&client);
                self.put(name, slot);
                self.adopt(name, client).await;
                Ok(told)
            }
            Err(error) => {
                let why = error.chain();
                let retrying = self.options.retry_failed;
                let state = State::Down {
                    why: why.clone(),
                    retrying,
                };
                let stop = self.stop.child_token();
                self.put(name, Slot::new(config, state, stop));
                if retrying {
                    self.supervise(name.to_owned(), Begin::AfterWait);
                }
                Err(why)
            }
        }
    }

    async fn connect(&self, name: &str, config: &ServerConfig) -> Result<Client, ClientError> {
        let options = self.options.client.clone();
        let connecting = (self.connect)(name.to_owned(), config.clone(), options);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(ClientError::gone("it was closed")),
            client = connecting => client,
        }
    }

    /// Takes a client that was connected just now, and supervises it; closes it when the manager is closed already.
    async fn adopt(self: &Arc<Self>, name: &str, client: Arc<Client>) -> bool {
        // In this order, so that a client that dies at once is known when its end is noticed.
        self.arrived(name, &client);
        if self.supervise(name.to_owned(), Begin::With(Arc::clone(&client))) {
            return true;
        }
        if let Some(slot) = self.slots().get_mut(name) {
            slot.client = None;
        }
        client.close().await;
        false
    }
}

fn dial() -> Connect {
    Arc::new(|name, config, options| {
        Box::pin(async move { Client::connect(&name, &config, &options).await })
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
