//! The groups that are served: who may call them and where their workers are.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ramen_group::{AccessRules, CidrSet};
use ramen_redact::{KeySet, Secret};
use tokio::sync::watch;

use crate::listen::Changes;
use crate::names::GROUP_HEADER;
use crate::pool::{Credentials, Pool, WorkerTls};
use crate::upstreams::{Policy, UpstreamSpec, Upstreams};

/// Namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl GroupName {
    /// Where it is called.
    pub fn path(&self) -> String {
        format!("/{}/{}/mcp", self.namespace, self.name)
    }
}

/// Whether it is a DNS label: what namespaces and groups are called.
pub(crate) fn is_label(name: &str) -> bool {
    let inner = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    inner && !name.is_empty() && name.len() <= 63 && !name.starts_with('-') && !name.ends_with('-')
}

/// A group as a discovery finds it.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// Its name.
    pub name: GroupName,
    /// Keys of callers; none opens nothing.
    pub keys: KeySet,
    /// Who may use what; `None`: whoever has a key may use everything, and nobody else gets in.
    pub access: Option<Arc<AccessRules>>,
    /// Where callers may be.
    pub ranges: CidrSet,
    /// The gateway's key at its workers.
    pub worker_key: Secret,
    /// Its workers.
    pub workers: Vec<WorkerAt>,
    /// Other MCP servers that are offered beside its own tools.
    pub upstreams: Vec<UpstreamSpec>,
}

/// Where a worker is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerAt {
    /// `host:port`.
    pub address: String,
    /// Its zone, where zones have names.
    pub zone: Option<String>,
    /// How it is reached by TLS; else it speaks plain HTTP/2.
    pub tls: Option<Arc<WorkerTls>>,
}

impl From<String> for WorkerAt {
    fn from(address: String) -> Self {
        Self {
            address,
            zone: None,
            tls: None,
        }
    }
}

/// A group that is served.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: GroupName,
    /// Its workers.
    pub pool: Pool,
    /// Who hears of changes of its lists.
    pub changes: Changes,
    /// Other MCP servers that are offered with it.
    pub upstreams: Upstreams,
    access: watch::Sender<Arc<Access>>,
}

/// Who may call a group, and how the gateway calls its workers.
#[derive(Debug)]
pub struct Access {
    /// Keys of callers.
    pub keys: KeySet,
    /// Who may use what.
    pub rules: Option<Arc<AccessRules>>,
    /// Where callers may be.
    pub ranges: CidrSet,
    /// What workers want to see; `None` when the key is one that no header can carry.
    pub worker: Option<Credentials>,
}

impl Group {
    fn new(spec: &GroupSpec, policy: &Policy) -> Self {
        let changes = Changes::default();
        let upstreams = Upstreams::new(spec.name.to_string(), changes.sender());
        upstreams.set(&spec.upstreams, policy);
        let group = Self {
            name: spec.name.clone(),
            pool: Pool::new(&spec.workers),
            changes,
            upstreams,
            access: watch::Sender::new(Arc::new(Access::of(spec))),
        };
        group.tell_of_unknown_keys();
        group
    }

    fn set(&self, spec: &GroupSpec, policy: &Policy) {
        self.pool.set(&spec.workers);
        self.upstreams.set(&spec.upstreams, policy);
        let before = self.access.send_replace(Arc::new(Access::of(spec)));
        if before.keys != spec.keys || before.rules != spec.access {
            self.tell_of_unknown_keys();
        }
    }

    /// A key that rules name and that is not there opens nothing, and shuts out all others all the same.
    fn tell_of_unknown_keys(&self) {
        let access = self.access();
        let Some(rules) = access.rules.as_ref().filter(|_| !access.keys.is_empty()) else {
            return;
        };
        for (field, key) in rules.unknown_keys(|name| access.keys.has_name(name)) {
            tracing::warn!(
                group = %self.name,
                field,
                key,
                "an access rule names a key that the group does not have now: make it, or mend the name; its keys have the names of their files, or of the entries of their Secret"
            );
        }
    }

    /// Lets nobody in any more: calls that still run are withheld, streams end.
    fn close(&self, policy: &Policy) {
        self.upstreams.set(&[], policy);
        let closed = Access {
            keys: KeySet::empty(),
            rules: None,
            ranges: CidrSet::default(),
            worker: None,
        };
        self.access.send_replace(Arc::new(closed));
    }

    /// Who may call it, as of now.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.borrow())
    }

    /// Tells when that changes.
    pub(crate) fn watch_access(&self) -> watch::Receiver<Arc<Access>> {
        self.access.subscribe()
    }
}

impl Access {
    fn of(spec: &GroupSpec) -> Self {
        Self {
            keys: spec.keys.clone(),
            rules: spec.access.clone(),
            ranges: spec.ranges.clone(),
            worker: Credentials::new(spec.worker_key.expose(), &spec.name.name),
        }
    }
}

/// All groups. A group that comes or goes needs no restart.
#[derive(Debug, Clone, Default)]
pub struct Groups(Arc<All>);

#[derive(Debug, Default)]
struct All {
    groups: RwLock<HashMap<GroupName, Arc<Group>>>,
    /// Whoever discovers them has not seen all of them yet.
    incomplete: AtomicBool,
    /// A path that is not that of a group, though one may be called so.
    reserved: OnceLock<&'static str>,
    policy: Policy,
}

impl Groups {
    /// No groups yet, with this said about their upstreams.
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(All {
            policy,
            ..All::default()
        }))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<GroupName, Arc<Group>>> {
        self.0.groups.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<GroupName, Arc<Group>>> {
        self.0
            .groups
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether all groups that there are have been seen: before that nobody should be sent here.
    pub fn set_complete(&self, complete: bool) {
        self.0.incomplete.store(!complete, Ordering::Release);
    }

    /// Whether all groups that there are have been seen.
    pub fn is_complete(&self) -> bool {
        !self.0.incomplete.load(Ordering::Acquire)
    }

    /// From now on something else is at this path; a group of that path is called by the header alone, and that is told.
    pub(crate) fn reserve(&self, path: &'static str) {
        let groups = self.write();
        // It is the same one whenever this is asked.
        let _ = self.0.reserved.set(path);
        for name in groups.keys() {
            self.tell_of_path(name);
        }
    }

    fn tell_of_path(&self, name: &GroupName) {
        let path = name.path();
        if self.0.reserved.get().is_some_and(|taken| *taken == path) {
            tracing::warn!(
                group = %name,
                %path,
                header = GROUP_HEADER,
                "the path of this group is that of the platform's operations; it is called at /mcp, where the header names it"
            );
        }
    }

    /// Serves exactly these groups from now on. Groups that stay keep their connections.
    pub fn replace(&self, specs: &[GroupSpec]) {
        let policy = &self.0.policy;
        let mut groups = self.write();
        let wanted: HashSet<_> = specs.iter().map(|spec| &spec.name).collect();
        groups.retain(|name, group| {
            let stays = wanted.contains(name);
            if !stays {
                group.close(policy);
            }
            stays
        });
        for spec in specs {
            self.put(&mut groups, spec);
        }
    }

    /// Serves this group, or serves it differently.
    pub fn set(&self, spec: &GroupSpec) {
        self.put(&mut self.write(), spec);
    }

    fn put(&self, groups: &mut HashMap<GroupName, Arc<Group>>, spec: &GroupSpec) {
        let policy = &self.0.policy;
        if let Some(group) = groups.get(&spec.name) {
            group.set(spec, policy);
        } else {
            self.tell_of_path(&spec.name);
            groups.insert(spec.name.clone(), Arc::new(Group::new(spec, policy)));
        }
    }

    /// Serves this group no more.
    pub fn remove(&self, name: &GroupName) {
        let removed = self.write().remove(name);
        if let Some(group) = removed {
            group.close(&self.0.policy);
        }
    }

    /// All groups, in no order.
    pub fn all(&self) -> Vec<Arc<Group>> {
        let groups = self.read();
        groups.values().cloned().collect()
    }

    /// The group at `/namespace/name/mcp`.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Group>> {
        let name = GroupName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let groups = self.read();
        groups.get(&name).cloned()
    }

    /// The group that a `ramen-group` header names: `namespace/name`, or a name that only one has.
    pub fn named(&self, header: &str) -> Option<Arc<Group>> {
        if let Some((namespace, name)) = header.split_once('/') {
            return self.get(namespace, name);
        }
        let groups = self.read();
        let mut found = groups.values().filter(|group| group.name.name == header);
        let group = found.next()?;
        found.next().is_none().then(|| Arc::clone(group))
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use ramen_group::access::RuleText;

    use super::*;
    use crate::logs::Log;

    fn spec(namespace: &str, name: &str, key: &str) -> GroupSpec {
        GroupSpec {
            name: GroupName {
                namespace: namespace.into(),
                name: name.into(),
            },
            keys: KeySet::from_lines(key),
            access: None,
            ranges: CidrSet::default(),
            worker_key: "rmk_worker".into(),
            workers: Vec::new(),
            upstreams: Vec::new(),
        }
    }

    #[test]
    fn groups_come_go_and_stay() {
        let groups = Groups::default();
        groups.replace(&[spec("a", "x", "rmk_1"), spec("a", "y", "rmk_1")]);
        let before = groups.get("a", "x").unwrap();
        groups.replace(&[spec("a", "x", "rmk_2"), spec("b", "x", "rmk_1")]);
        let after = groups.get("a", "x").unwrap();
        assert!(Arc::ptr_eq(&before, &after), "its connections stay");
        assert!(after.access().keys.admits("rmk_2") && !after.access().keys.admits("rmk_1"));
        assert!(groups.get("a", "y").is_none());
        groups.remove(&before.name);
        assert!(
            before.access().keys.is_empty(),
            "what still runs is withheld"
        );
    }

    #[test]
    fn a_name_alone_is_enough_when_one_group_has_it() {
        let groups = Groups::default();
        groups.replace(&[spec("a", "x", ""), spec("b", "x", ""), spec("b", "y", "")]);
        assert_eq!(groups.named("y").unwrap().name.to_string(), "b/y");
        assert_eq!(groups.named("a/x").unwrap().name.to_string(), "a/x");
        assert!(groups.named("x").is_none() && groups.named("").is_none());
    }

    #[test]
    fn a_key_that_rules_name_and_that_is_not_there_is_told_when_one_of_them_changes() {
        let (log, _guard) = Log::begin();
        let told = || log.count("an access rule names a key");
        let mut ghostly = spec("a", "x", "");
        let rule = |key: &str| RuleText {
            keys: vec![key.to_owned()],
            tools: vec!["*".to_owned()],
            ..RuleText::default()
        };
        let rules = |key: &str| Some(Arc::new(AccessRules::new(vec![rule(key)]).unwrap()));
        let groups = Groups::default();
        ghostly.access = rules("ghost");
        groups.set(&ghostly);
        assert_eq!(told(), 0, "no key is locked out");
        ghostly.keys.add_named(Some("ci"), "rmk_1");
        groups.set(&ghostly);
        groups.set(&ghostly);
        assert_eq!(told(), 1, "{}", log.text());
        assert_eq!(log.count("ghost"), 1, "{}", log.text());
        ghostly.access = rules("ci");
        groups.set(&ghostly);
        assert_eq!(told(), 1);
        ghostly.access = rules("ghost");
        groups.set(&ghostly);
        assert_eq!(told(), 2);
    }

    #[test]
    fn a_worker_key_is_never_shown() {
        let group = Group::new(&spec("a", "x", "rmk_1"), &Policy::default());
        let shown = format!("{group:?} {:?}", spec("a", "x", ""));
        assert!(!shown.contains("rmk_worker"), "{shown}");
    }
}
