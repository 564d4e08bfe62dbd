//! Fills what is known of pods and Jobs, and wakes the group whose pod changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;

use futures::{StreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use kube::api::ObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;

use super::slim::{SlimJob, SlimPod, label};
use super::{JobView, PodView, Pods};
use crate::group::{GroupKey, Wake};
use crate::names;
use crate::watches::{PAGE, Stub, each};

impl Stub for SlimPod {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }
}

impl Stub for SlimJob {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }
}

/// Starts both watches; they end with the set.
pub(crate) fn start(
    client: &Client,
    namespaces: &[String],
    pods: &Pods,
    wake: &Wake,
    tasks: &mut JoinSet<()>,
) {
    follow::<SlimPod>(client, namespaces, pods, wake, tasks);
    follow::<SlimJob>(client, namespaces, pods, wake, tasks);
}

fn follow<K>(
    client: &Client,
    namespaces: &[String],
    pods: &Pods,
    wake: &Wake,
    tasks: &mut JoinSet<()>,
) where
    K: Kept
        + Resource<Scope = NamespaceResourceScope>
        + Stub
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let ours = watcher::Config::default().page_size(PAGE).labels(&format!(
        "{}={}",
        names::LABEL_MANAGED_BY,
        names::OPERATOR
    ));
    let events = each::<K>(client, namespaces, &ours).default_backoff();
    let (known, wake) = (pods.clone(), wake.clone());
    let mut listing = Listing::new();
    tasks.spawn(events.for_each(move |event| {
        take(&known, &|group| wake.wake(group), &mut listing, event);
        future::ready(())
    }));
}

/// What was listed since the list began.
pub(super) type Listing = HashSet<(GroupKey, String)>;

/// A kind that is kept.
pub(super) trait Kept: Resource<DynamicType = ()> {
    /// Notes an object; whether something changed that decides something.
    fn put(&self, known: &Pods, group: &GroupKey) -> bool;
    /// It is gone.
    fn remove(known: &Pods, group: &GroupKey, name: &str);
    /// All that is known of the kind.
    fn all(known: &Pods) -> Vec<(GroupKey, String)>;
    /// The first list is done.
    fn listed(known: &Pods) -> &signal::Sender<bool>;
}

impl Kept for SlimPod {
    fn put(&self, known: &Pods, group: &GroupKey) -> bool {
        known.put_pod(group, PodView::of(self))
    }

    fn remove(known: &Pods, group: &GroupKey, name: &str) {
        known.remove_pod(group, name);
    }

    fn all(known: &Pods) -> Vec<(GroupKey, String)> {
        named(&known.known().pods)
    }

    fn listed(known: &Pods) -> &signal::Sender<bool> {
        &known.0.pods_listed
    }
}

impl Kept for SlimJob {
    fn put(&self, known: &Pods, group: &GroupKey) -> bool {
        known.put_job(
            group,
            self.meta().name.as_deref().unwrap_or_default(),
            JobView::of(self),
        )
    }

    fn remove(known: &Pods, group: &GroupKey, name: &str) {
        known.remove_job(group, name);
    }

    fn all(known: &Pods) -> Vec<(GroupKey, String)> {
        named(&known.known().jobs)
    }

    fn listed(known: &Pods) -> &signal::Sender<bool> {
        &known.0.jobs_listed
    }
}

fn named<V>(all: &HashMap<GroupKey, BTreeMap<String, V>>) -> Vec<(GroupKey, String)> {
    let named = all.iter().flat_map(|(group, objects)| {
        let names = objects.keys();
        names.map(|name| (group.clone(), name.clone()))
    });
    named.collect()
}

/// Whose an object is: its labels say so, a pod's owner is another object.
fn of(meta: &ObjectMeta) -> Option<(GroupKey, String)> {
    let group = label(meta.labels.as_ref(), names::LABEL_GROUP)?;
    let key = GroupKey::new(meta.namespace.clone()?, group);
    Some((key, meta.name.clone()?))
}

/// The same for an object that is gone, of which no more may be known than its name.
fn gone<K: Kept>(known: &Pods, meta: &ObjectMeta) -> Vec<(GroupKey, String)> {
    if let Some(of) = of(meta) {
        return vec![of];
    }
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    let mut all = K::all(known);
    all.retain(|(group, object)| {
        Some(group.namespace.as_str()) == namespace && Some(object.as_str()) == name
    });
    all
}

/// Takes one event of a watch. The first list wakes nobody: every group runs at the start.
pub(super) fn take<K: Kept>(
    known: &Pods,
    wake: &dyn Fn(&GroupKey),
    listing: &mut Listing,
    event: watcher::Result<Event<K>>,
) {
    let listed = *K::listed(known).borrow();
    match event {
        Ok(Event::Init) => listing.clear(),
        Ok(Event::InitApply(object)) => {
            if let Some((group, name)) = of(object.meta()) {
                if object.put(known, &group) && listed {
                    wake(&group);
                }
                listing.insert((group, name));
            }
        }
        Ok(Event::InitDone) => {
            for (group, name) in K::all(known) {
                if !listing.contains(&(group.clone(), name.clone())) {
                    K::remove(known, &group, &name);
                    wake(&group);
                }
            }
            *listing = Listing::new();
            K::listed(known).send_replace(true);
        }
        Ok(Event::Apply(object)) => {
            if let Some((group, _)) = of(object.meta())
                && object.put(known, &group)
            {
                wake(&group);
            }
        }
        Ok(Event::Delete(object)) => {
            for (group, name) in gone::<K>(known, object.meta()) {
                K::remove(known, &group, &name);
                wake(&group);
            }
        }
        Err(error) => {
            let kind = K::kind(&());
            tracing::warn!(%error, %kind, "a watch broke off; it goes on");
        }
    }
}
