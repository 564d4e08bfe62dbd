//! Other MCP servers of a group, offered beside its own tools.
//!
//! They are known by their names: whatever begins with `<name>_` is a tool or prompt of that upstream and of nobody else,
//! so that no server can take the place of one of the group's own tools, whatever it lists. Lists are answered from what
//! each server listed last; nobody waits for an upstream who did not call it.

mod address;
pub(crate) mod merge;
mod nothing;
mod own;
mod policy;
mod running;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use ramen_client::hub::{Asked, Hub, starts_with};
use ramen_client::{Json, Manager, State};
use ramen_mcp::names::method;
use ramen_mcp::{Era, ListKind, envelope};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::Instant;

pub use policy::Policy;
pub(crate) use running::Running;
pub use spec::UpstreamSpec;

/// How long a request may wait for upstreams that are being connected for the first time.
const SETTLE: Duration = Duration::from_secs(3);
/// Names of own tools that are hidden, as many as are told.
const MAX_HIDDEN: usize = 100;

/// The upstreams of one group.
#[derive(Debug)]
pub struct Upstreams {
    group: String,
    news: broadcast::Sender<ListKind>,
    /// Nothing runs for a group that never had an upstream.
    hub: OnceLock<Hub>,
    now: RwLock<Now>,
    hidden: Mutex<BTreeSet<String>>,
    own: own::Own,
}

/// Which there are.
#[derive(Debug, Clone, Default)]
struct Now {
    specs: Arc<[UpstreamSpec]>,
    names: Arc<[String]>,
    /// Until when a request waits for those that are being connected.
    settle: Option<Instant>,
}

/// What an upstream has to do with a request.
pub(crate) enum Part {
    /// Nothing.
    None,
    /// The request is for an upstream.
    Theirs,
    /// What they list belongs into the answer.
    List,
    /// It is for an upstream unless the group itself knows the resource.
    Read,
}

impl Upstreams {
    pub(crate) fn new(group: String, news: broadcast::Sender<ListKind>) -> Self {
        Self {
            group,
            news,
            hub: OnceLock::new(),
            now: RwLock::default(),
            hidden: Mutex::default(),
            own: own::Own::default(),
        }
    }

    /// Has exactly these from now on. Those that stay as they are keep their connections.
    pub(crate) fn set(&self, specs: &[UpstreamSpec], policy: &Policy) {
        if specs.is_empty() && self.hub.get().is_none() {
            return;
        }
        let hub = self.hub.get_or_init(|| self.open(policy));
        // A group is told anew whenever anything of it changed, such as its workers.
        if self.now().specs[..] == *specs {
            return;
        }
        let mut servers = BTreeMap::new();
        for spec in specs {
            let judged = policy.judge(spec);
            if let Err(why) = &judged {
                tracing::warn!(
                    group = self.group,
                    upstream = spec.name,
                    why,
                    "an upstream cannot be used"
                );
            }
            servers.insert(spec.name.clone(), judged);
        }
        let names: Arc<[String]> = servers.keys().cloned().collect();
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Now {
            specs: specs.into(),
            names,
            settle: Some(Instant::now() + SETTLE),
        };
        hub.manager().replace(servers);
    }

    fn open(&self, policy: &Policy) -> Hub {
        let hub = Hub::shared(Manager::empty(policy.options()));
        let mut updates = hub.manager().updates();
        let news = self.news.clone();
        // Before anything is told: what changes until the task first runs is news.
        let mut seen = *updates.borrow_and_update();
        tokio::spawn(async move {
            // Ends with the manager.
            while updates.changed().await.is_ok() {
                let now = *updates.borrow_and_update();
                for (kind, changed) in [
                    (ListKind::Tools, now.tools != seen.tools),
                    (ListKind::Prompts, now.prompts != seen.prompts),
                    (ListKind::Resources, now.resources != seen.resources),
                ] {
                    if changed {
                        // Nobody may be listening.
                        let _ = news.send(kind);
                    }
                }
                seen = now;
            }
        });
        hub
    }

    fn now(&self) -> Now {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    /// The upstreams as a server, when there are any.
    fn hub(&self) -> Option<(&Hub, Now)> {
        let now = self.now();
        let hub = self.hub.get().filter(|_| !now.names.is_empty())?;
        Some((hub, now))
    }

    /// What they have to do with a request.
    pub(crate) async fn part(&self, request: &envelope::Request<'_>) -> Part {
        #[derive(Deserialize)]
        struct Completed {
            r#ref: Reference,
        }
        #[derive(Deserialize)]
        struct Reference {
            #[serde(default)]
            name: Option<String>,
        }
        let Some((hub, now)) = self.hub() else {
            return Part::None;
        };
        let theirs = |name: Option<&str>| {
            let known = |name| now.names.iter().any(|known| starts_with(name, known));
            if name.is_some_and(known) {
                Part::Theirs
            } else {
                Part::None
            }
        };
        let part = match &*request.method {
            method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::TEMPLATES_LIST => Part::List,
            method::TOOLS_CALL | method::PROMPTS_GET => {
                theirs(request.params.name().and_then(envelope::text).as_deref())
            }
            method::COMPLETE => {
                let params = request.params.as_json().unwrap_or("{}");
                let completed: Option<Completed> = serde_json::from_str(params).ok();
                theirs(
                    completed
                        .and_then(|completed| completed.r#ref.name)
                        .as_deref(),
                )
            }
            method::RESOURCES_READ => Part::Read,
            _ => Part::None,
        };
        if !matches!(part, Part::None) {
            let left = now
                .settle
                .map(|until| until.saturating_duration_since(Instant::now()));
            hub.manager().settled(left.unwrap_or_default()).await;
        }
        match part {
            Part::Read => {
                let uri = request.params.uri().and_then(envelope::text);
                if uri.is_some_and(|uri| hub.may_know(&uri)) {
                    Part::Read
                } else {
                    Part::None
                }
            }
            part => part,
        }
    }

    /// The schema of the arguments of an upstream's tool, when it is listed.
    pub(crate) fn input_schema(&self, tool: &str) -> Option<Json> {
        let (hub, _) = self.hub()?;
        hub.input_schema(tool)
    }

    /// Asks the one that a request is for. Dropping what is given cancels it there.
    pub(crate) fn ask(
        &self,
        request: &envelope::Request<'_>,
        era: Era,
        limit: Duration,
    ) -> Option<Running> {
        let (hub, _) = self.hub()?;
        Some(Running::start(
            hub.clone(),
            request.id.clone(),
            Asked::new(request, era),
            limit,
        ))
    }

    /// Remembers that an upstream hides one of the group's own things, and says so once.
    fn hides(&self, own: &str) {
        let mut hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.len() < MAX_HIDDEN && hidden.insert(own.to_owned()) {
            tracing::warn!(
                group = self.group,
                name = own,
                "an upstream of that prefix hides one of the group's own: rename one of them"
            );
        }
    }

    /// How each of them is, for those who run the group. No secret is in it.
    pub fn status(&self) -> Vec<Value> {
        let Some((hub, _)) = self.hub() else {
            return Vec::new();
        };
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        let status = hub.manager().status().into_iter().map(|server| {
            let since = server.since.duration_since(UNIX_EPOCH).unwrap_or_default();
            let mut shown = json!({
                "name": server.name,
                "state": match &server.state {
                    State::Up | State::Cached => "up",
                    State::Connecting => "connecting",
                    State::Down { .. } => "down",
                },
                "sinceUnixMs": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                "tools": server.tools.len(),
                "prompts": server.lists.prompts.len(),
                "resources": server.lists.resources.len(),
            });
            if let State::Down { why, .. } = &server.state {
                shown["why"] = json!(why);
            }
            let hides: Vec<_> = hidden
                .iter()
                .filter(|own| starts_with(own, &server.name))
                .collect();
            if !hides.is_empty() {
                shown["hides"] = json!(hides);
            }
            shown
        });
        status.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::Log;

    #[tokio::test]
    async fn upstreams_that_are_told_again_are_no_news() {
        let (log, _logging) = Log::begin();
        let told = || log.count("an upstream cannot be used");
        let (news, mut heard) = broadcast::channel(16);
        let upstreams = Upstreams::new("a/x".to_owned(), news);
        let refused = |why: &str| UpstreamSpec {
            name: "web".to_owned(),
            server: Err(why.to_owned()),
        };
        let policy = Policy::default();
        upstreams.set(&[refused("no Secret")], &policy);
        let settle = upstreams.now().settle;
        heard.recv().await.unwrap();
        for _ in 0..3 {
            upstreams.set(&[refused("no Secret")], &policy);
        }
        assert_eq!(told(), 1, "{}", log.text());
        assert_eq!(upstreams.now().settle, settle, "nobody waits for it again");
        upstreams.set(&[refused("no key")], &policy);
        assert_eq!(told(), 2, "{}", log.text());
        upstreams.set(&[], &policy);
        assert!(upstreams.now().names.is_empty());
    }
}
