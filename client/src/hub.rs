//! Many servers as one: a server itself, whose tools and prompts are those of a [`Manager`], named after their servers.
//!
//! A server that is down costs its own tools and nothing else: they leave the list, and the caller is told that it changed.
//! Definitions, arguments and results pass through as they are; only names change.

mod answer;
mod forward;
mod lists;
mod names;
mod serve;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ramen_mcp::model::Implementation;
use tokio_util::sync::CancellationToken;

use crate::ask;
use crate::client::Updates;
use crate::config::ServerConfig;
use crate::manager::{Manager, ManagerOptions};
use names::Names;

pub use names::Naming;

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

/// Where something comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    server: String,
    name: String,
}

impl Hub {
    /// Offers the servers of a manager.
    pub fn new(manager: Manager, naming: Naming) -> Self {
        let hub = Self::over(manager, naming);
        hub.inner.started.cancel();
        hub
    }

    /// Offers these servers at once, while they are being connected; those that the cache knows are not started.
    pub fn open(
        servers: BTreeMap<String, ServerConfig>,
        options: ManagerOptions,
        naming: Naming,
    ) -> Self {
        let hub = Self::over(Manager::empty(options), naming);
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

    fn over(manager: Manager, naming: Naming) -> Self {
        Self {
            inner: Arc::new(Inner {
                manager,
                naming,
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

    fn names(&self) -> Arc<Names> {
        let now = *self.inner.manager.updates().borrow();
        let mut tools = lock(&self.inner.tools);
        match &*tools {
            Some((then, names)) if *then == now => Arc::clone(names),
            _ => {
                let names = Arc::new(Names::of(&self.inner.manager.status(), self.inner.naming));
                *tools = Some((now, Arc::clone(&names)));
                names
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
