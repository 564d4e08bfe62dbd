//! The platform's operations on this machine: what the groups tell is kept here, and changes go to
//! them as changes of their spec. A change lasts until the file of groups is read again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use ramen_gateway::GroupName;
use ramen_gateway::operations::OpError;
use ramen_gateway::operations::platform::{Change, Platform, Who};
use ramen_source::git::Wanted;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::group::{Key, Poke};
use super::keys;
use super::source::Source;
use super::spec::GroupSpec;
use super::status::Status;
use crate::state::StateDir;

/// Events kept of one group.
const MAX_EVENTS: usize = 100;

/// Everything that the operations need to know of the groups.
#[derive(Clone)]
pub(super) struct Desk {
    state: StateDir,
    groups: Arc<Mutex<BTreeMap<Key, Kept>>>,
}

/// What is kept of one group.
#[derive(Default)]
struct Kept {
    status: Status,
    events: VecDeque<Value>,
    /// Revisions that served before, newest last.
    served: Vec<String>,
    reach: Option<(watch::Sender<Arc<GroupSpec>>, mpsc::UnboundedSender<Poke>)>,
}

impl Desk {
    pub(super) fn new(state: StateDir) -> Self {
        Self {
            state,
            groups: Arc::default(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Key, Kept>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a group that runs is reached.
    pub(super) fn reach(
        &self,
        key: &Key,
        spec: watch::Sender<Arc<GroupSpec>>,
        poke: mpsc::UnboundedSender<Poke>,
    ) {
        self.locked().entry(key.clone()).or_default().reach = Some((spec, poke));
    }

    /// Forgets a group.
    pub(super) fn forget(&self, key: &Key) {
        self.locked().remove(key);
    }

    /// Keeps what a group tells of itself; what is new becomes an event.
    pub(super) fn update(&self, status: &Status) {
        let key = (status.namespace.clone(), status.name.clone());
        let mut groups = self.locked();
        let kept = groups.entry(key).or_default();
        let before = &kept.status;
        if before.revision != status.revision
            && let Some(revision) = &status.revision
            && kept.served.last() != Some(revision)
        {
            kept.served.push(revision.clone());
        }
        let same = before.ready == status.ready
            && before.message == status.message
            && before.revision == status.revision;
        if !same {
            kept.note(json!({ "ready": status.ready, "revision": status.revision, "message": status.message }));
        }
        kept.status = status.clone();
    }

    fn read<T>(
        &self,
        name: &GroupName,
        read: impl FnOnce(&mut Kept) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        let key = (name.namespace.clone(), name.name.clone());
        let mut groups = self.locked();
        let kept = groups.get_mut(&key);
        read(kept.ok_or_else(|| OpError::no_group(name))?)
    }

    fn make(&self, name: &GroupName, change: &Change, who: &Who) -> Result<Value, OpError> {
        if *change == Change::RotateKeys {
            return self.rotate(name, who);
        }
        self.read(name, |kept| {
            let (specs, poke) = kept
                .reach
                .clone()
                .ok_or_else(|| OpError::Unavailable("the group does not run".into()))?;
            let mut spec = GroupSpec::clone(&specs.borrow());
            let looks = matches!(change, Change::Deploy { .. } | Change::Rollback);
            if looks && spec.suspended {
                return Err(OpError::Conflict(
                    "the group is suspended, nothing new would be served: resume it first".into(),
                ));
            }
            match change {
                Change::Deploy { reference } => spec.deploy(reference)?,
                Change::Rollback => spec.deploy(&kept.before()?)?,
                Change::Suspend => spec.suspended = true,
                Change::Resume => spec.suspended = false,
                Change::RotateKeys => {}
            }
            specs.send_replace(Arc::new(spec));
            let _ = poke.send(Poke::Look);
            kept.record(change, who);
            Ok(json!({ "group": name.to_string(), "asked": change.name() }))
        })
    }

    fn rotate(&self, name: &GroupName, who: &Who) -> Result<Value, OpError> {
        self.read(name, |kept| {
            let given = kept.reach.as_ref().is_some_and(|(spec, _)| spec.borrow().keys.is_some());
            if given {
                return Err(OpError::Conflict("the keys of this group come from its Secret: change that".into()));
            }
            let dir = self.state.group(&name.namespace, &name.name);
            let file = keys::renew(&dir).map_err(|error| OpError::Internal(error.to_string().into()))?;
            kept.record(&Change::RotateKeys, who);
            Ok(json!({ "group": name.to_string(), "asked": "rotate keys", "keyFile": file.display().to_string() }))
        })
    }
}

impl Kept {
    fn note(&mut self, mut event: Value) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        event["unixMs"] = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).into();
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_back();
        }
        self.events.push_front(event);
    }

    fn record(&mut self, change: &Change, who: &Who) {
        self.note(
            json!({ "change": change.name(), "caller": &*who.caller, "session": who.session }),
        );
    }

    /// The commit that served before the one that serves.
    fn before(&self) -> Result<String, OpError> {
        let serving = self.status.revision.as_ref();
        let before = self
            .served
            .iter()
            .rev()
            .find(|revision| Some(*revision) != serving);
        let commit = before
            .and_then(|revision| revision.rsplit_once(':'))
            .map(|(_, commit)| commit.to_owned());
        commit.ok_or_else(|| OpError::Conflict("no other revision served before".into()))
    }

    fn is_suspended(&self) -> bool {
        let spec = self.reach.as_ref().map(|(spec, _)| spec.borrow().suspended);
        spec.unwrap_or_default()
    }

    fn brief(&self) -> Value {
        let status = &self.status;
        json!({
            "group": format!("{}/{}", status.namespace, status.name),
            "ready": status.ready,
            "revision": status.revision,
            "tools": status.tools,
            "errors": status.errors.len(),
            "message": status.message,
            "suspended": self.is_suspended(),
        })
    }
}

impl GroupSpec {
    /// The same group at another reference.
    fn deploy(&mut self, reference: &str) -> Result<(), OpError> {
        let Source::Git { wanted, .. } = &mut self.source else {
            return Err(OpError::Conflict(
                "the source of this group is a folder: it serves what is in it".into(),
            ));
        };
        *wanted = Wanted::parse(reference)
            .map_err(|error| OpError::Invalid(format!("`ref`: {error}").into()))?;
        let base = self
            .source_fingerprint
            .split(" @ ")
            .next()
            .unwrap_or_default();
        self.source_fingerprint = format!("{base} @ {reference}");
        Ok(())
    }
}

fn ready<T: Send + 'static>(value: Result<T, OpError>) -> BoxFuture<'static, Result<T, OpError>> {
    Box::pin(std::future::ready(value))
}

impl Platform for Desk {
    fn groups(&self) -> BoxFuture<'_, Result<Vec<Value>, OpError>> {
        ready(Ok(self.locked().values().map(Kept::brief).collect()))
    }

    fn group<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Value, OpError>> {
        ready(self.read(name, |kept| {
            let mut status = serde_json::to_value(&kept.status)
                .map_err(|error| OpError::Internal(error.to_string().into()))?;
            status["group"] = name.to_string().into();
            // What they are is asked with groups.errors.
            status["errors"] = kept.status.errors.len().into();
            status["suspended"] = kept.is_suspended().into();
            Ok(status)
        }))
    }

    fn errors<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        ready(self.read(name, |kept| {
            let entries = kept.status.errors.iter().map(serde_json::to_value);
            entries
                .collect::<Result<_, _>>()
                .map_err(|error| OpError::Internal(error.to_string().into()))
        }))
    }

    fn events<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        ready(self.read(name, |kept| Ok(kept.events.iter().cloned().collect())))
    }

    fn change<'a>(
        &'a self,
        name: &'a GroupName,
        change: Change,
        who: Who,
    ) -> BoxFuture<'a, Result<Value, OpError>> {
        ready(self.make(name, &change, &who))
    }
}
