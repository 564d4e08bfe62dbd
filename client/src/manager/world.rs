//! Scripted servers for the tests of managers and hubs, in paused time: what happens when is decided by the test, not by
//! the machine.

#[expect(dead_code, reason = "shared with the tests of the whole crate")]
#[path = "../../tests/client/support.rs"]
pub(crate) mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::support::{Server, legacy, serve, tool};
use super::{Manager, ManagerOptions};
use crate::cache::Cache;
use crate::client::{Client, Options};
use crate::config::ServerConfig;
use crate::error::ClientError;
use crate::handshake::EraChoice;

/// What the next attempt at a server meets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Up,
    Down,
    /// Never ends.
    Hangs,
    /// Ends well once it is told to.
    Waits,
    /// Ends badly once it is told to.
    Fails,
}

/// The world outside: which servers are there, who dialled them, and their ends.
#[derive(Default)]
pub(crate) struct World {
    fates: Mutex<BTreeMap<String, VecDeque<Fate>>>,
    dialled: Mutex<Vec<(String, Instant)>>,
    servers: Mutex<BTreeMap<String, Server>>,
    dialling: AtomicUsize,
    pub(crate) most: AtomicUsize,
    /// Lets one attempt that waits go on.
    pub(crate) go: Notify,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What the next attempts meet; the last one stays.
    pub(crate) fn fate(&self, name: &str, fates: impl IntoIterator<Item = Fate>) {
        self.fates
            .lock()
            .unwrap()
            .insert(name.to_owned(), fates.into_iter().collect());
    }

    pub(crate) fn dialled(&self) -> Vec<String> {
        self.dialled
            .lock()
            .unwrap()
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(crate) fn times(&self, name: &str) -> Vec<Instant> {
        let dialled = self.dialled.lock().unwrap();
        dialled
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, at)| *at)
            .collect()
    }

    pub(crate) fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Server>> {
        self.servers.lock().unwrap()
    }

    pub(crate) fn kill(&self, name: &str) {
        self.servers()[name].out().close();
    }

    pub(crate) fn still_open(&self, name: &str) -> bool {
        self.servers()[name].still_open()
    }

    pub(crate) fn manager(self: &Arc<Self>, options: ManagerOptions) -> Manager {
        let world = Arc::clone(self);
        Manager::new(
            options,
            Arc::new(move |name, config, options| {
                let world = Arc::clone(&world);
                async move { world.dial(&name, &config, &options).await }.boxed()
            }),
        )
    }

    async fn dial(
        &self,
        name: &str,
        config: &ServerConfig,
        options: &Options,
    ) -> Result<Client, ClientError> {
        self.dialled
            .lock()
            .unwrap()
            .push((name.to_owned(), Instant::now()));
        let now = self.dialling.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let fate = {
            let mut fates = self.fates.lock().unwrap();
            let fates = fates.entry(name.to_owned()).or_default();
            if fates.len() > 1 {
                fates.pop_front()
            } else {
                fates.front().copied()
            }
        };
        let fate = fate.unwrap_or(Fate::Up);
        match fate {
            Fate::Hangs => std::future::pending().await,
            Fate::Waits | Fate::Fails => self.go.notified().await,
            Fate::Up | Fate::Down => {}
        }
        let outcome = if matches!(fate, Fate::Down | Fate::Fails) {
            Err(ClientError::gone("it is down"))
        } else {
            let tools = json!([tool(&format!("{name}_tool"))]);
            let (reads, writes, server) = serve(move |message, out| {
                if legacy(message, out, &tools) {
                    return;
                }
                match message["method"].as_str() {
                    Some("tools/call") => out.result(
                        message,
                        &json!({"content": [{"type": "text", "text": "ok"}]}),
                    ),
                    Some("prompts/list") => {
                        out.result(message, &json!({"prompts": [{"name": "ask"}]}));
                    }
                    _ => {}
                }
            });
            self.servers.lock().unwrap().insert(name.to_owned(), server);
            let link = crate::transport::pipe::PipeWire::open(reads, writes, 1 << 20);
            Client::over(name, config, options, link, EraChoice::Legacy).await
        };
        self.dialling.fetch_sub(1, Ordering::SeqCst);
        outcome
    }
}

pub(crate) fn servers(names: &[&str]) -> BTreeMap<String, ServerConfig> {
    let config = |name: &&str| {
        (
            (*name).to_owned(),
            ServerConfig::stdio(*name, Vec::<String>::new()),
        )
    };
    names.iter().map(config).collect()
}

pub(crate) fn names(manager: &Manager) -> Vec<String> {
    manager.clients().into_keys().collect()
}

/// Waits until the manager has these clients.
pub(crate) async fn until(manager: &Manager, expected: &[&str]) {
    let mut updates = manager.updates();
    soon_in_paused_time(async {
        while names(manager) != expected {
            updates.changed().await.unwrap();
        }
    })
    .await;
}

/// Paused time runs ahead while everything waits, so the patience of a test is long.
pub(crate) async fn soon_in_paused_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(100_000), what)
        .await
        .expect("it should have happened")
}

pub(crate) fn cached(dir: &tempfile::TempDir) -> ManagerOptions {
    ManagerOptions {
        client: Options {
            cache: Some(Cache::new(dir.path().join("cache.json"))),
            ..Options::default()
        },
        ..ManagerOptions::default()
    }
}
