//! What callers wait for while the servers of a hub are being started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Audience, Hub, Naming};
use crate::config::ServerConfig;
use crate::manager::{Manager, ManagerOptions};

/// How long after the start a list waits for servers where the cache knows none. Those that come later are told of.
const LIST: Duration = Duration::from_secs(5);
/// How long after the start something waits of which no server is known: for the first of them, or for all.
const UNKNOWN: Duration = Duration::from_secs(10);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The cache is being read.
    Reading,
    /// Those that the cache does not know are being started; whether it knew any.
    Starting { known: bool },
    /// Every one was tried.
    Started,
}

impl Hub {
    /// Offers these servers at once, while they are being connected; those that the cache knows are not started.
    pub fn open(
        servers: BTreeMap<String, ServerConfig>,
        options: ManagerOptions,
        naming: Naming,
    ) -> Self {
        Self::start(Manager::empty(options), servers, naming)
    }

    pub(super) fn start(
        manager: Manager,
        servers: BTreeMap<String, ServerConfig>,
        naming: Naming,
    ) -> Self {
        let hub = Self::over(manager, naming, Audience::Owner, Stage::Reading);
        let inner = Arc::clone(&hub.inner);
        tokio::spawn(async move {
            let unknown = inner.manager.trust(servers).await;
            let known = !inner.manager.status().is_empty();
            inner.stage.send_replace(Stage::Starting { known });
            inner.manager.start(unknown).await;
            inner.stage.send_replace(Stage::Started);
        });
        hub
    }

    /// Waits until the cache was read.
    pub(super) async fn read_cache(&self) {
        self.wait(UNKNOWN, |stage| *stage != Stage::Reading).await;
    }

    /// Waits until there is something to list: at once where the cache knows a server.
    pub(super) async fn listable(&self) {
        let ready =
            |stage: &Stage| matches!(stage, Stage::Starting { known: true } | Stage::Started);
        self.wait(LIST, ready).await;
        let mut updates = self.inner.manager.updates();
        let first = async {
            // It ends with the hub.
            while self.inner.manager.status().is_empty() && updates.changed().await.is_ok() {}
        };
        tokio::select! {
            () = first => {}
            () = self.settled() => {}
        }
    }

    /// Waits until every server was tried, but not for long.
    pub(super) async fn settled(&self) {
        self.wait(UNKNOWN, |stage| *stage == Stage::Started).await;
    }

    async fn wait(&self, patience: Duration, ready: impl FnMut(&Stage) -> bool) {
        let mut stage = self.inner.stage.subscribe();
        let until = self.inner.opened + patience;
        let _ = tokio::time::timeout_at(until, stage.wait_for(ready)).await;
    }
}
