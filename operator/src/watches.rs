//! What wakes a group: its own changes, those of its children, and those of Secrets that it refers to.
//! Children are kept as metadata alone, Deployments with their status.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, future, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource};
use ramen_crds::McpGroup;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::group::{Context, GroupKey, Guarded, Wake};
use crate::names;

/// Metadata of one kind.
pub type Metas<K> = Store<PartialObjectMeta<K>>;

/// What is known of the cluster without asking.
#[derive(Clone)]
pub struct Caches {
    /// The groups.
    pub groups: Store<DeserializeGuard<McpGroup>>,
    /// Deployments of ours.
    pub deployments: Store<Deployment>,
    /// All Secrets: groups refer to those of people.
    pub secrets: Metas<Secret>,
    /// Ours.
    pub config_maps: Metas<ConfigMap>,
    /// Ours.
    pub service_accounts: Metas<ServiceAccount>,
    /// Ours.
    pub services: Metas<Service>,
    /// Ours.
    pub network_policies: Metas<NetworkPolicy>,
    /// Ours.
    pub pdbs: Metas<PodDisruptionBudget>,
    /// Ours.
    pub hpas: Metas<HorizontalPodAutoscaler>,
}

/// A kind of children, and where its objects are kept.
pub trait Cached: Sized {
    /// The kind's name.
    const KIND: &'static str;

    /// The metadata of an object as the watch has seen it.
    fn seen(caches: &Caches, namespace: &str, name: &str) -> Option<ObjectMeta>;

    /// The metadata of all objects that are labelled as a group's.
    fn of_group(caches: &Caches, key: &GroupKey) -> Vec<ObjectMeta>;
}

fn is_of(meta: &ObjectMeta, key: &GroupKey) -> bool {
    meta.namespace.as_deref() == Some(&key.namespace)
        && group_of(meta).is_some_and(|name| name == key.name)
}

/// The group that owns an object. Labels may be edited; the owner says whose it is.
fn group_of(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.iter().flatten();
    let mut ours = owners.filter(|owner| {
        owner.controller == Some(true)
            && owner.kind == ramen_crds::KIND
            && owner.api_version.starts_with(ramen_crds::API_GROUP)
    });
    ours.next().map(|owner| owner.name.as_str())
}

macro_rules! cached {
    ($($kind:ident in $store:ident),* $(,)?) => {$(
        impl Cached for $kind {
            const KIND: &'static str = stringify!($kind);

            fn seen(caches: &Caches, namespace: &str, name: &str) -> Option<ObjectMeta> {
                let object = caches.$store.get(&ObjectRef::new(name).within(namespace))?;
                Some(object.metadata.clone())
            }

            fn of_group(caches: &Caches, key: &GroupKey) -> Vec<ObjectMeta> {
                let all = caches.$store.state();
                let ours = all.iter().filter(|object| is_of(&object.metadata, key));
                ours.map(|object| object.metadata.clone()).collect()
            }
        }
    )*};
}

cached!(
    Deployment in deployments,
    Secret in secrets,
    ConfigMap in config_maps,
    ServiceAccount in service_accounts,
    Service in services,
    NetworkPolicy in network_policies,
    PodDisruptionBudget in pdbs,
    HorizontalPodAutoscaler in hpas,
);

/// The writing ends of [`Caches`].
pub struct Writers {
    groups: reflector::store::Writer<DeserializeGuard<McpGroup>>,
    deployments: reflector::store::Writer<Deployment>,
    secrets: reflector::store::Writer<PartialObjectMeta<Secret>>,
    config_maps: reflector::store::Writer<PartialObjectMeta<ConfigMap>>,
    service_accounts: reflector::store::Writer<PartialObjectMeta<ServiceAccount>>,
    services: reflector::store::Writer<PartialObjectMeta<Service>>,
    network_policies: reflector::store::Writer<PartialObjectMeta<NetworkPolicy>>,
    pdbs: reflector::store::Writer<PartialObjectMeta<PodDisruptionBudget>>,
    hpas: reflector::store::Writer<PartialObjectMeta<HorizontalPodAutoscaler>>,
}

#[cfg(test)]
impl Writers {
    pub(crate) fn accounts(
        &mut self,
    ) -> &mut reflector::store::Writer<PartialObjectMeta<ServiceAccount>> {
        &mut self.service_accounts
    }

    pub(crate) fn maps(&mut self) -> &mut reflector::store::Writer<PartialObjectMeta<ConfigMap>> {
        &mut self.config_maps
    }
}

impl Caches {
    /// Empty caches, and what fills them.
    pub fn new() -> (Self, Writers) {
        let (groups, to_groups) = reflector::store();
        let (deployments, to_deployments) = reflector::store();
        let (secrets, to_secrets) = reflector::store();
        let (config_maps, to_config_maps) = reflector::store();
        let (service_accounts, to_service_accounts) = reflector::store();
        let (services, to_services) = reflector::store();
        let (network_policies, to_network_policies) = reflector::store();
        let (pdbs, to_pdbs) = reflector::store();
        let (hpas, to_hpas) = reflector::store();
        (
            Self {
                groups,
                deployments,
                secrets,
                config_maps,
                service_accounts,
                services,
                network_policies,
                pdbs,
                hpas,
            },
            Writers {
                groups: to_groups,
                deployments: to_deployments,
                secrets: to_secrets,
                config_maps: to_config_maps,
                service_accounts: to_service_accounts,
                services: to_services,
                network_policies: to_network_policies,
                pdbs: to_pdbs,
                hpas: to_hpas,
            },
        )
    }

    /// Waits until every first list is done.
    pub async fn ready(&self) -> Result<(), reflector::store::WriterDropped> {
        self.groups.wait_until_ready().await?;
        self.deployments.wait_until_ready().await?;
        self.secrets.wait_until_ready().await?;
        self.config_maps.wait_until_ready().await?;
        self.service_accounts.wait_until_ready().await?;
        self.services.wait_until_ready().await?;
        self.network_policies.wait_until_ready().await?;
        self.pdbs.wait_until_ready().await?;
        self.hpas.wait_until_ready().await
    }

    /// The groups that refer to a Secret.
    fn refer_to(&self, namespace: &str, secret: &str) -> Vec<GroupKey> {
        let groups = self.groups.state();
        groups
            .iter()
            .filter_map(|guarded| guarded.0.as_ref().ok())
            .filter(|group| group.metadata.namespace.as_deref() == Some(namespace))
            .filter(|group| references(group).any(|name| name == secret))
            .filter_map(|group| Some(GroupKey::new(namespace, group.metadata.name.as_deref()?)))
            .collect()
    }
}

/// The names of the Secrets that a group refers to.
fn references(group: &McpGroup) -> impl Iterator<Item = &str> {
    let spec = &group.spec;
    let named = spec.keys.as_ref().map(|keys| &keys.secret_ref);
    let named = named
        .into_iter()
        .chain(&spec.source.secret_ref)
        .chain(&spec.source.ca_secret_ref)
        .chain(&spec.secrets);
    named.map(|reference| reference.name.as_str())
}

/// Starts all watches; they end with the set. Groups themselves are woken by the caller's stream.
pub(crate) fn start(
    client: &Client,
    namespaces: &[String],
    ctx: &Arc<Context>,
    writers: Writers,
    tasks: &mut JoinSet<()>,
) {
    let (caches, wake) = (&ctx.caches, &ctx.wake);
    let ours = watcher::Config::default().labels(&format!(
        "{}={}",
        names::LABEL_MANAGED_BY,
        names::OPERATOR
    ));
    let mut children = Children {
        client,
        namespaces,
        caches,
        wake,
        tasks,
    };
    children.full(writers.deployments, &ours);
    children.meta(writers.secrets, &watcher::Config::default());
    children.meta(writers.config_maps, &ours);
    children.meta(writers.service_accounts, &ours);
    children.meta(writers.services, &ours);
    children.meta(writers.network_policies, &ours);
    children.meta(writers.pdbs, &ours);
    children.meta(writers.hpas, &ours);
    let groups =
        each::<DeserializeGuard<McpGroup>>(client, namespaces, &watcher::Config::default());
    let groups = groups.default_backoff().modify(|guarded| {
        if let Ok(group) = &mut guarded.0 {
            group.metadata.managed_fields = None;
        }
    });
    let groups = reflector::reflector(writers.groups, groups);
    let ctx = Arc::clone(ctx);
    tasks.spawn(groups.for_each(move |event| {
        match event {
            Ok(Event::Apply(guarded) | Event::InitApply(guarded)) => {
                if let Some(key) = key_of(guarded.meta()) {
                    ctx.wake.wake(&key);
                }
            }
            Ok(Event::Delete(guarded)) => {
                if let Some(key) = key_of(guarded.meta()) {
                    ctx.forget(&key);
                }
            }
            Ok(Event::InitDone) => ctx.retain(&|key| {
                let reference = ObjectRef::new(&key.name).within(&key.namespace);
                ctx.caches.groups.get(&reference).is_some()
            }),
            Ok(Event::Init) => {}
            Err(error) => tracing::warn!(%error, "the watch of McpGroups broke off; it goes on"),
        }
        future::ready(())
    }));
}

fn key_of(meta: &ObjectMeta) -> Option<GroupKey> {
    Some(GroupKey::new(meta.namespace.clone()?, meta.name.clone()?))
}

/// One stream of events over some namespaces, or all of them.
fn each<K>(
    client: &Client,
    namespaces: &[String],
    config: &watcher::Config,
) -> stream::BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource<Scope = NamespaceResourceScope>
        + Stub
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
    K::DynamicType: Default,
{
    if let [namespace] = namespaces {
        return watch(Api::namespaced(client.clone(), namespace), config.clone()).boxed();
    }
    if namespaces.is_empty() {
        return watch(Api::all(client.clone()), config.clone()).boxed();
    }
    let streams: Vec<_> = namespaces
        .iter()
        .map(|namespace| {
            let api = Api::namespaced(client.clone(), namespace);
            (namespace.clone(), watch(api, config.clone()).boxed())
        })
        .collect();
    joined(streams).boxed()
}

/// An object of which only the metadata is known: enough to remove it from a cache.
trait Stub {
    fn stub(meta: ObjectMeta) -> Self;
}

impl<K> Stub for PartialObjectMeta<K> {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            types: None,
            _phantom: std::marker::PhantomData,
        }
    }
}

impl Stub for Deployment {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }
}

impl Stub for Guarded {
    fn stub(metadata: ObjectMeta) -> Self {
        Self(Err(kube::core::error_boundary::InvalidObject {
            error: "removed".to_owned(),
            metadata,
        }))
    }
}

/// One namespace's part of a joined stream.
#[derive(Default)]
struct Part {
    done: bool,
    there: BTreeSet<String>,
    /// A list that is made again.
    again: Option<BTreeSet<String>>,
}

/// Joins streams of several namespaces into one that a cache understands: one `Init`, one `InitDone`
/// when all first lists are done. A list that is made again later comes as single changes.
fn joined<K>(
    streams: Vec<(
        String,
        stream::BoxStream<'static, watcher::Result<Event<K>>>,
    )>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Stub + Send + 'static,
{
    let mut parts: Vec<(String, Part)> = Vec::new();
    let mut tagged = Vec::new();
    for (n, (namespace, stream)) in streams.into_iter().enumerate() {
        parts.push((namespace, Part::default()));
        tagged.push(stream.map(move |event| (n, event)).boxed());
    }
    let events = stream::select_all(tagged)
        .flat_map(move |(n, event)| stream::iter(join_one(&mut parts, n, event)));
    stream::once(future::ready(Ok(Event::Init))).chain(events)
}

fn join_one<K: Resource + Stub>(
    parts: &mut [(String, Part)],
    n: usize,
    event: watcher::Result<Event<K>>,
) -> Vec<watcher::Result<Event<K>>> {
    let listed = parts.iter().all(|(_, part)| part.done);
    let Some((namespace, part)) = parts.get_mut(n) else {
        return Vec::new();
    };
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Ok(Event::Init) => {
            part.again = part.done.then(BTreeSet::new);
            Vec::new()
        }
        Ok(Event::InitApply(object) | Event::Apply(object)) => {
            part.there.insert(name(&object));
            if let Some(again) = &mut part.again {
                again.insert(name(&object));
            }
            vec![Ok(if listed {
                Event::Apply(object)
            } else {
                Event::InitApply(object)
            })]
        }
        Ok(Event::InitDone) => {
            if let Some(again) = part.again.take() {
                let gone = part.there.difference(&again).map(|name| {
                    Ok(Event::Delete(K::stub(ObjectMeta {
                        name: Some(name.clone()),
                        namespace: Some(namespace.clone()),
                        ..ObjectMeta::default()
                    })))
                });
                let gone = gone.collect();
                part.there = again;
                return gone;
            }
            part.done = true;
            if parts.iter().all(|(_, part)| part.done) {
                vec![Ok(Event::InitDone)]
            } else {
                Vec::new()
            }
        }
        Ok(Event::Delete(object)) => {
            part.there.remove(&name(&object));
            vec![Ok(Event::Delete(object))]
        }
        Err(error) => vec![Err(error)],
    }
}

struct Children<'a> {
    client: &'a Client,
    namespaces: &'a [String],
    caches: &'a Caches,
    wake: &'a Wake,
    tasks: &'a mut JoinSet<()>,
}

impl Children<'_> {
    /// Watches the metadata of a kind.
    fn meta<K>(
        &mut self,
        writer: reflector::store::Writer<PartialObjectMeta<K>>,
        config: &watcher::Config,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let events = each::<PartialObjectMeta<K>>(self.client, self.namespaces, config);
        let events = events.default_backoff().modify(|object| {
            object.metadata.managed_fields = None;
            object.metadata.annotations = None;
        });
        self.follow(
            reflector::reflector(writer, events),
            K::kind(&()).into_owned(),
        );
    }

    /// Watches a kind with its status; what is not looked at is dropped.
    fn full(&mut self, writer: reflector::store::Writer<Deployment>, config: &watcher::Config) {
        let events = each::<Deployment>(self.client, self.namespaces, config);
        let events = events.default_backoff().modify(|deployment| {
            deployment.metadata.managed_fields = None;
            deployment.metadata.annotations = None;
            if let Some(spec) = &mut deployment.spec {
                spec.template = k8s_openapi::api::core::v1::PodTemplateSpec::default();
            }
        });
        self.follow(
            reflector::reflector(writer, events),
            "Deployment".to_owned(),
        );
    }

    /// Wakes whoever a change is about. First lists wake nobody: every group runs at the start.
    fn follow<K>(
        &mut self,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        kind: String,
    ) where
        K: Resource + Send + 'static,
    {
        let (caches, wake) = (self.caches.clone(), self.wake.clone());
        let secrets = kind == "Secret";
        self.tasks.spawn(events.for_each(move |event| {
            match event {
                Ok(Event::Apply(object) | Event::Delete(object)) => {
                    let meta = object.meta();
                    let namespace = meta.namespace.as_deref().unwrap_or_default();
                    if let Some(name) = group_of(meta) {
                        wake.wake(&GroupKey::new(namespace, name));
                    } else if secrets {
                        let name = meta.name.as_deref().unwrap_or_default();
                        for key in caches.refer_to(namespace, name) {
                            wake.wake(&key);
                        }
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, kind, "a watch broke off; it goes on"),
            }
            future::ready(())
        }));
    }
}

#[cfg(test)]
mod tests;
