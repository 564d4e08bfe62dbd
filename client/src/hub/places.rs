//! Places at the servers of a hub: how much of one caller's work is at each of them at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::{BoxFuture, maybe_done};
use ramen_mcp::envelope::Request;
use ramen_mcp::names::method;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::start::Stage;
use super::{Hub, lock};

/// Requests at one server at once; more wait in the order of their lines. A server that hangs fills its own places only.
const AT_ONCE: usize = 64;

/// What has places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    /// A server.
    Server(String),
    /// Lists that many servers are asked for.
    Lists,
}

/// The places of one caller.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<At, Arc<Semaphore>>>);

impl Places {
    fn at(&self, at: &At) -> Arc<Semaphore> {
        let mut all = lock(&self.0);
        if let Some(places) = all.get(at) {
            return Arc::clone(places);
        }
        let places = Arc::new(Semaphore::new(AT_ONCE));
        all.insert(at.clone(), Arc::clone(&places));
        places
    }
}

/// One of these places. Who calls stands in line from now on, so that requests get there in the order in which they were read and
/// not in that in which their tasks happen to run first.
pub fn stand_in_line(
    places: Arc<Semaphore>,
) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send {
    let mut place = Box::pin(maybe_done(places.acquire_owned()));
    let _ = place.as_mut().now_or_never();
    async move {
        place.as_mut().await;
        place.as_mut().take_output()?.ok()
    }
}

/// A place to be waited for.
type Place = BoxFuture<'static, Option<OwnedSemaphorePermit>>;

/// Where one request waits for its places.
pub(super) struct Turn {
    places: Arc<Places>,
    first: Mutex<Option<(At, Place)>>,
}

impl Turn {
    /// Stands in line from now on where that is known already.
    pub(super) fn stand(places: &Arc<Places>, at: Option<At>) -> Self {
        let first = at.map(|at| {
            let place = stand_in_line(places.at(&at));
            (at, place.boxed())
        });
        Self {
            places: Arc::clone(places),
            first: Mutex::new(first),
        }
    }

    /// Waits for a place, which is given back when the result is dropped.
    pub(super) async fn place(&self, at: At) -> Option<OwnedSemaphorePermit> {
        let first = lock(&self.first).take();
        match first {
            Some((there, place)) if there == at => place.await,
            other => {
                // It leaves the line in which it stood for nothing.
                drop(other);
                self.places.at(&at).acquire_owned().await.ok()
            }
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

impl Hub {
    /// What a request needs a place of, as far as that is known without asking anybody. What is answered from memory needs
    /// none.
    pub(super) fn destination(&self, request: &Request<'_>) -> Option<At> {
        let text = |json: Option<&str>| serde_json::from_str::<String>(json?).ok();
        // Names of before the cache is read would count as those of after it.
        if *self.inner.stage.borrow() == Stage::Reading {
            return None;
        }
        let params = &request.params;
        let server = match &*request.method {
            method::TOOLS_CALL => {
                let name = text(params.name())?;
                self.names().find(&name)?.server.clone()
            }
            method::PROMPTS_GET => self.prompt_of(&text(params.name())?)?,
            method::COMPLETE => self.prompt_of(&prompt(params.reference()?)?)?,
            method::RESOURCES_READ => {
                let uri = text(params.uri())?;
                lock(&self.inner.resources).get(&uri)?.clone()
            }
            other => return self.asks_servers(other).then_some(At::Lists),
        };
        Some(At::Server(server))
    }

    /// Whether servers are asked when this is listed.
    pub(super) fn asks_servers(&self, list: &str) -> bool {
        let asked = matches!(
            list,
            method::PROMPTS_LIST | method::RESOURCES_LIST | method::TEMPLATES_LIST
        );
        asked && !self.inner.manager.keeps_lists()
    }

    fn prompt_of(&self, name: &str) -> Option<String> {
        let prompts = lock(&self.inner.prompts);
        prompts.get(name).map(|origin| origin.server.clone())
    }
}

/// The name of the prompt that a completion is for.
fn prompt(reference: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Reference {
        name: String,
    }
    let reference: Reference = serde_json::from_str(reference).ok()?;
    Some(reference.name)
}
