//! A cache of one kind, with the names of its objects by the group that owns them: a run looks at its own
//! children, never at those of all groups.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use futures::{Stream, StreamExt as _, future};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event};

use super::group_of;
use crate::group::GroupKey;

/// Names of objects by their group. It may hold names of objects that are gone or were handed on; the cache
/// says what is there.
type Names = HashMap<GroupKey, HashSet<String>>;

/// The reading end.
pub struct Kept<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    objects: Store<K>,
    names: Arc<RwLock<Names>>,
}

impl<K: Resource<DynamicType = ()>> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            names: Arc::clone(&self.names),
        }
    }
}

/// The writing end.
pub(crate) struct Filling<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    objects: store::Writer<K>,
    names: Arc<RwLock<Names>>,
    /// Of a list that is under way.
    listed: Names,
}

/// An empty cache, and what fills it.
pub(super) fn cache<K>() -> (Kept<K>, Filling<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (objects, writer) = reflector::store();
    let names = Arc::<RwLock<Names>>::default();
    let kept = Kept {
        objects,
        names: Arc::clone(&names),
    };
    let filling = Filling {
        objects: writer,
        names,
        listed: Names::new(),
    };
    (kept, filling)
}

impl<K> Kept<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// An object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.objects.get(&ObjectRef::new(name).within(namespace))
    }

    /// The objects that a group owns.
    pub fn of(&self, key: &GroupKey) -> Vec<Arc<K>> {
        let names: Vec<String> = {
            let all = self.names.read().unwrap_or_else(PoisonError::into_inner);
            all.get(key).into_iter().flatten().cloned().collect()
        };
        let there = names
            .iter()
            .filter_map(|name| self.get(&key.namespace, name));
        there
            .filter(|object| group_of(object.meta()) == Some(&key.name))
            .collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.state()
    }

    /// Waits until the first list is done.
    pub(super) async fn ready(&self) -> Result<(), store::WriterDropped> {
        self.objects.wait_until_ready().await
    }
}

impl<K> Filling<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    ObjectRef<K>: Eq + Hash,
{
    /// Takes an event. Names come first: what is in the cache is found by its group.
    pub(crate) fn apply_watcher_event(&mut self, event: &watcher::Event<K>) {
        match event {
            Event::Init => self.listed = Names::new(),
            Event::InitApply(object) => note(&mut self.listed, object.meta()),
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                *self.names() = listed;
            }
            Event::Apply(object) => note(&mut self.names(), object.meta()),
            Event::Delete(object) => strike(&mut self.names(), object.meta()),
        }
        self.objects.apply_watcher_event(event);
    }

    fn names(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is nothing to fill it with, and never will be.
    pub(super) fn finish(mut self) {
        self.apply_watcher_event(&Event::Init);
        self.apply_watcher_event(&Event::InitDone);
    }

    /// Fills the cache as events pass by. A change that changes nothing that counts ends here.
    pub(crate) fn fill(
        mut self,
        events: impl Stream<Item = watcher::Result<Event<K>>>,
        differs: impl Fn(&K, &K) -> bool,
    ) -> impl Stream<Item = watcher::Result<Event<K>>> {
        let cache = self.objects.as_reader();
        events.filter_map(move |event| {
            let same = match &event {
                Ok(Event::Apply(object)) => cache
                    .get(&ObjectRef::from_obj(object))
                    .is_some_and(|old| !differs(&old, object)),
                _ => false,
            };
            if let Ok(event) = &event
                && !same
            {
                self.apply_watcher_event(event);
            }
            future::ready((!same).then_some(event))
        })
    }
}

fn key_of(meta: &ObjectMeta) -> Option<GroupKey> {
    Some(GroupKey::new(meta.namespace.as_deref()?, group_of(meta)?))
}

fn note(names: &mut Names, meta: &ObjectMeta) {
    if let (Some(key), Some(name)) = (key_of(meta), &meta.name) {
        names.entry(key).or_default().insert(name.clone());
    }
}

fn strike(names: &mut Names, meta: &ObjectMeta) {
    let Some(name) = &meta.name else { return };
    match key_of(meta) {
        Some(key) => {
            if let Some(of_group) = names.get_mut(&key) {
                of_group.remove(name);
                if of_group.is_empty() {
                    names.remove(&key);
                }
            }
        }
        // All that is known of it is that it is gone.
        None => names.retain(|key, of_group| {
            if Some(&key.namespace) == meta.namespace.as_ref() {
                of_group.remove(name);
            }
            !of_group.is_empty()
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PartialObjectMeta;
    use serde_json::json;

    use super::*;

    type Map = PartialObjectMeta<ConfigMap>;

    fn map(name: &str, group: Option<&str>) -> Map {
        let owner = group.map(|group| {
            json!([{
                "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": group, "uid": "u",
                "controller": true,
            }])
        });
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "ns", "ownerReferences": owner },
        }))
        .unwrap()
    }

    fn names(kept: &Kept<Map>, group: &str) -> Vec<String> {
        let of_group = kept.of(&GroupKey::new("ns", group));
        let mut names: Vec<String> = of_group
            .iter()
            .filter_map(|object| object.metadata.name.clone())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_group_finds_its_own_children_whatever_happens_to_them() {
        let (kept, mut filling) = cache::<Map>();
        let mut hears = |event| filling.apply_watcher_event(&event);
        hears(Event::Init);
        for (name, group) in [("a-1", "a"), ("a-2", "a"), ("b-1", "b")] {
            hears(Event::InitApply(map(name, Some(group))));
        }
        hears(Event::InitApply(map("somebodys", None)));
        hears(Event::InitDone);
        assert_eq!(names(&kept, "a"), ["a-1", "a-2"]);
        assert_eq!(names(&kept, "b"), ["b-1"]);
        hears(Event::Apply(map("a-3", Some("a"))));
        hears(Event::Delete(map("a-1", Some("a"))));
        // Handed on.
        hears(Event::Apply(map("b-1", Some("a"))));
        assert_eq!(names(&kept, "a"), ["a-2", "a-3", "b-1"]);
        assert!(names(&kept, "b").is_empty());
        // Gone, and nothing else is known of it.
        hears(Event::Delete(map("a-3", None)));
        assert_eq!(names(&kept, "a"), ["a-2", "b-1"]);
        assert!(kept.get("ns", "a-3").is_none());
        // A list that is made again is the truth.
        hears(Event::Init);
        hears(Event::InitApply(map("a-9", Some("a"))));
        assert_eq!(names(&kept, "a"), ["a-2", "b-1"]);
        hears(Event::InitDone);
        assert_eq!(names(&kept, "a"), ["a-9"]);
    }

    #[test]
    fn nothing_is_remembered_of_groups_without_children() {
        let (_, mut filling) = cache::<Map>();
        for name in ["one", "two"] {
            filling.apply_watcher_event(&Event::Apply(map(name, Some("a"))));
        }
        filling.apply_watcher_event(&Event::Delete(map("one", None)));
        filling.apply_watcher_event(&Event::Delete(map("two", Some("a"))));
        assert!(filling.names().is_empty());
    }
}
