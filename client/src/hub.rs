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
mod places;
mod read;
mod serve;
mod start;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ramen_mcp::model::Implementation;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::ask;
use crate::client::Updates;
use crate::manager::{Manager, State, Status};
use names::Names;
use start::Stage;

pub use answer::Members;
pub use forward::Asked;
pub use mark::{MARK, mark, mark_down};
pub use names::{Naming, starts_with};
pub use places::stand_in_line;
pub use read::may_come_from;

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
    /// How far the start of the servers is, and when it began.
    stage: watch::Sender<Stage>,
    opened: Instant,
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
        Self::over(manager, naming, Audience::Owner, Stage::Started)
    }

    /// Offers the servers of a manager that keeps lists to callers who share them. Names begin with their servers.
    pub fn shared(manager: Manager) -> Self {
        debug_assert!(manager.keeps_lists(), "callers would wait for servers");
        Self::over(manager, Naming::Prefixed, Audience::Callers, Stage::Started)
    }

    fn over(manager: Manager, naming: Naming, audience: Audience, stage: Stage) -> Self {
        Self {
            inner: Arc::new(Inner {
                manager,
                naming,
                audience,
                info: ask::ourselves(),
                stage: watch::Sender::new(stage),
                opened: Instant::now(),
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

#[cfg(test)]
mod tests;
