//! What is known of the cluster, and the groups that it makes. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::follow::{Change, ObjectName, Seen, What};
use super::objects::{Asked, Credentials, Slice};
use crate::groups::{GroupName, GroupSpec, WorkerAt};

/// All kinds.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) asked: Table<Asked>,
    pub(super) credentials: Table<Credentials>,
    pub(super) slices: Table<Slice>,
}

impl Known {
    /// Takes a change; gives the groups that it is about.
    pub(super) fn take(&mut self, change: Change) -> BTreeSet<GroupName> {
        match change {
            Change::Asked(seen) => self.asked.take(seen),
            Change::Credentials(seen) => self.credentials.take(seen),
            Change::Slices(seen) => self.slices.take(seen),
        }
    }

    /// Whether every watch has listed everything.
    pub(super) fn is_complete(&self) -> bool {
        self.asked.is_complete() && self.credentials.is_complete() && self.slices.is_complete()
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.asked.objects.len()
    }

    /// The group as it is to be served; `None` when it is not.
    ///
    /// Without its Secret, or with that of a group of the same name before it, nobody gets in.
    pub(super) fn spec(&self, name: &GroupName) -> Option<GroupSpec> {
        let asked = self.asked.of(name).next()?;
        let credentials = self
            .credentials
            .of(name)
            .find(|credentials| credentials.uid == asked.uid)?;
        Some(GroupSpec {
            name: name.clone(),
            keys: credentials.keys.clone(),
            access: asked.access.clone(),
            ranges: asked.ranges.clone(),
            worker_key: credentials.worker_key.clone(),
            workers: self.workers(name),
            upstreams: credentials.upstreams.clone(),
        })
    }

    /// A pod with addresses of two families has two slices: one address is enough.
    fn workers(&self, name: &GroupName) -> Vec<WorkerAt> {
        let mut pods = BTreeMap::new();
        let mut slices: Vec<_> = self.slices.of(name).collect();
        slices.sort_by(|one, other| one.family.cmp(&other.family));
        for slice in slices {
            for (pod, address) in &slice.ends {
                pods.entry(pod).or_insert_with(|| WorkerAt {
                    address: address.clone(),
                    zone: slice.zone.clone(),
                    tls: None,
                });
            }
        }
        let mut workers: Vec<_> = pods.into_values().collect();
        // The same pods are the same list, in whichever order they were told.
        workers.sort();
        workers
    }
}

/// What is kept of the objects of one kind, found by object and by group.
#[derive(Debug)]
pub(super) struct Table<T> {
    objects: HashMap<ObjectName, Kept<T>>,
    of_group: HashMap<GroupName, BTreeSet<ObjectName>>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Kept<T> {
    part: usize,
    group: GroupName,
    value: T,
}

/// One watch of several.
#[derive(Debug, Default)]
struct Part {
    complete: bool,
    /// What a list that is under way has named.
    listing: Option<HashSet<ObjectName>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            of_group: HashMap::new(),
            parts: Vec::new(),
        }
    }
}

impl<T> Table<T> {
    /// One more watch, of objects that no other sees.
    pub(super) fn part(&mut self) -> usize {
        self.parts.push(Part::default());
        self.parts.len() - 1
    }

    fn is_complete(&self) -> bool {
        self.parts.iter().all(|part| part.complete)
    }

    fn of<'t>(&'t self, group: &GroupName) -> impl Iterator<Item = &'t T> {
        let names = self.of_group.get(group).into_iter().flatten();
        names.filter_map(|name| Some(&self.objects.get(name)?.value))
    }

    fn take(&mut self, seen: Seen<T>) -> BTreeSet<GroupName> {
        let mut touched = BTreeSet::new();
        let at = seen.part;
        let Some(part) = self.parts.get_mut(at) else {
            return touched;
        };
        match seen.what {
            What::Begins => part.listing = Some(HashSet::new()),
            What::Is(name, read) => {
                if let Some(listing) = &mut part.listing {
                    listing.insert(name.clone());
                }
                touched.extend(self.remove(&name));
                if let Some((group, value)) = read {
                    touched.insert(group.clone());
                    self.insert(name, at, group, value);
                }
            }
            What::Gone(name) => touched.extend(self.remove(&name)),
            What::Listed => {
                part.complete = true;
                let listed = part.listing.take().unwrap_or_default();
                let objects = self.objects.iter();
                let gone = objects
                    .filter(|(name, kept)| kept.part == at && !listed.contains(*name))
                    .map(|(name, _)| name.clone());
                for name in gone.collect::<Vec<_>>() {
                    touched.extend(self.remove(&name));
                }
            }
        }
        touched
    }

    fn insert(&mut self, name: ObjectName, part: usize, group: GroupName, value: T) {
        let names = self.of_group.entry(group.clone()).or_default();
        names.insert(name.clone());
        let kept = Kept { part, group, value };
        self.objects.insert(name, kept);
    }

    fn remove(&mut self, name: &ObjectName) -> Option<GroupName> {
        let group = self.objects.remove(name)?.group;
        if let Some(names) = self.of_group.get_mut(&group) {
            names.remove(name);
            if names.is_empty() {
                self.of_group.remove(&group);
            }
        }
        Some(group)
    }
}

#[cfg(test)]
mod tests;
