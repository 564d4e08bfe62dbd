//! Many servers as one: a server itself, whose tools and prompts are those of a [`Manager`], named after their servers.
//!
//! A server that is down costs its own tools and nothing else. Before the one whose servers they are, they leave the list,
//! and the caller is told that it changed. Before callers of a shared hub the last list stays, with a mark on each of
//! its entries. Definitions, arguments and results pass through as they are; only names change.

mod answer;
mod forward;
mod lists;
mod mark;
mod names;
mod read;
mod serve;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ramen_mcp::model::Implementation;
use tokio_util::sync::CancellationToken;

use crate::ask;
use crate::client::Updates;
use crate::config::ServerConfig;
use crate::manager::{Manager, ManagerOptions, State, Status};
use names::Names;

pub use answer::Members;
pub use forward::Asked;
pub use mark::MARK;
pub use names::{Naming, starts_with};

/// How long a list waits for servers that are being started. Callers that do not listen for changes see what is there
/// then.
const START: Duration = Duration::from_secs(10);

/// Many servers as one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    manager: Manager,
    naming: Naming,
    audience: Audience,
    info: Implementation,
    /// Said once every server was tried.
    started: CancellationToken,
    /// The tools by the names they have here, for the lists of this moment.
    tools: Mutex<Option<(Updates, Arc<Names>)>>,
    /// The prompts by the names they have here, as listed last.
    prompts: Mutex<HashMap<String, Origin>>,
    /// Which server listed a resource last.
    resources: Mutex<HashMap<String, String>>,
}

/// Whom a hub serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// The one whose servers they are, who is told all.
    Owner,
    /// Callers of a shared hub: they wait for no server that is slow to list something, and errors tell them nothing of
    /// where a server is.
    Callers,
}

/// Where something comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    server: String,
    name: String,
}

impl Hub {
    /// Offers the servers of a manager.
    pub fn new(manager: Manager, naming: Naming) -> Self {
        let hub = Self::over(manager, naming, Audience::Owner);
        hub.inner.started.cancel();
        hub
    }

    /// Offers the servers of a manager that keeps lists to callers who share them. Names begin with their servers.
    pub fn shared(manager: Manager) -> Self {
        debug_assert!(manager.keeps_lists(), "callers would wait for servers");
        let hub = Self::over(manager, Naming::Prefixed, Audience::Callers);
        hub.inner.started.cancel();
        hub
    }

    /// Offers these servers at once, while they are being connected; those that the cache knows are not started.
    pub fn open(
        servers: BTreeMap<String, ServerConfig>,
        options: ManagerOptions,
        naming: Naming,
    ) -> Self {
        let hub = Self::over(Manager::empty(options), naming, Audience::Owner);
        let inner = Arc::clone(&hub.inner);
        tokio::spawn(async move {
            inner.manager.add(servers).await;
            inner.started.cancel();
        });
        hub
    }

    /// Waits until every server was tried, but not for long.
    async fn settled(&self) {
        let _ = tokio::time::timeout(START, self.inner.started.cancelled()).await;
    }

    fn over(manager: Manager, naming: Naming, audience: Audience) -> Self {
        Self {
            inner: Arc::new(Inner {
                manager,
                naming,
                audience,
                info: ask::ourselves(),
                started: CancellationToken::new(),
                tools: Mutex::default(),
                prompts: Mutex::default(),
                resources: Mutex::default(),
            }),
        }
    }

    /// The servers behind it.
    pub fn manager(&self) -> &Manager {
        &self.inner.manager
    }

    /// Whether what a server offers is listed.
    fn lists(&self, server: &Status) -> bool {
        self.inner.audience == Audience::Callers || !matches!(server.state, State::Down { .. })
    }

    fn names(&self) -> Arc<Names> {
        let now = *self.inner.manager.updates().borrow();
        let mut tools = lock(&self.inner.tools);
        match &*tools {
            Some((then, names)) if *then == now => Arc::clone(names),
            _ => {
                let mut servers = self.inner.manager.status();
                servers.retain(|server| self.lists(server));
                let names = Arc::new(Names::of(&servers, self.inner.naming));
                *tools = Some((now, Arc::clone(&names)));
                names
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
