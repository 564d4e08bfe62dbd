//! What wakes a group: its own changes, those of its children, and those of Secrets that it refers to.
//! Children are kept as metadata alone, Deployments with their status.

mod joined;
mod kept;

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures::{Stream, StreamExt as _, future};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use ramen_crds::{McpGroup, UpstreamSpec};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

pub(crate) use self::joined::{Stub, each};
pub(crate) use self::kept::Filling;
use self::kept::{Kept, cache};
use crate::gateways;
use crate::group::{Context, GroupKey, Handed, REPLICAS, Wake};
use crate::names;

/// Objects in an answer to a list. They are read whole before anything is left out of them, and what that
/// takes stays with the process: at the usual 500 it was most of its memory.
pub(crate) const PAGE: u32 = 50;

/// Metadata of one kind.
pub type Metas<K> = Kept<PartialObjectMeta<K>>;

/// What is known of the cluster without asking.
#[derive(Clone)]
pub struct Caches {
    /// The groups.
    pub groups: Store<DeserializeGuard<McpGroup>>,
    /// Deployments of ours.
    pub deployments: Kept<Deployment>,
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
    pub hpas: Kept<HorizontalPodAutoscaler>,
    /// Those that gateways read; see `crate::gateways`.
    pub gateways: Metas<Secret>,
}

/// A kind of children, and where its objects are kept.
pub(crate) trait Cached: Sized {
    /// The kind's name.
    const KIND: &'static str;

    /// The metadata of an object as the watch has seen it.
    fn seen(caches: &Caches, namespace: &str, name: &str) -> Option<ObjectMeta>;

    /// The metadata of all objects that a group owns.
    fn of_group(caches: &Caches, key: &GroupKey) -> Vec<ObjectMeta>;

    /// Makes the generation say whether the spec is another one, for a kind that has none: its version
    /// changes with every change of its status.
    fn stamp(&mut self) {}

    /// A field that this object leaves to somebody else.
    fn handed_over(&self) -> Option<&'static Handed> {
        None
    }
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
    ($($kind:ident in $store:ident $({ $($more:tt)* })?),* $(,)?) => {$(
        impl Cached for $kind {
            const KIND: &'static str = stringify!($kind);

            fn seen(caches: &Caches, namespace: &str, name: &str) -> Option<ObjectMeta> {
                Some(caches.$store.get(namespace, name)?.metadata.clone())
            }

            fn of_group(caches: &Caches, key: &GroupKey) -> Vec<ObjectMeta> {
                let ours = caches.$store.of(key);
                ours.iter().map(|object| object.metadata.clone()).collect()
            }

            $($($more)*)?
        }
    )*};
}

cached!(
    Deployment in deployments {
        fn handed_over(&self) -> Option<&'static Handed> {
            let spec = self.spec.as_ref()?;
            spec.replicas.is_none().then_some(&REPLICAS)
        }
    },
    Secret in secrets,
    ConfigMap in config_maps,
    ServiceAccount in service_accounts,
    Service in services,
    NetworkPolicy in network_policies,
    PodDisruptionBudget in pdbs,
    HorizontalPodAutoscaler in hpas {
        fn stamp(&mut self) {
            let spec = serde_json::to_vec(&self.spec).unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            spec.hash(&mut hasher);
            self.metadata.generation = Some(hasher.finish().cast_signed());
        }
    },
);

/// The writing ends of [`Caches`].
pub struct Writers {
    groups: reflector::store::Writer<DeserializeGuard<McpGroup>>,
    deployments: Filling<Deployment>,
    secrets: Filling<PartialObjectMeta<Secret>>,
    config_maps: Filling<PartialObjectMeta<ConfigMap>>,
    service_accounts: Filling<PartialObjectMeta<ServiceAccount>>,
    services: Filling<PartialObjectMeta<Service>>,
    network_policies: Filling<PartialObjectMeta<NetworkPolicy>>,
    pdbs: Filling<PartialObjectMeta<PodDisruptionBudget>>,
    hpas: Filling<HorizontalPodAutoscaler>,
    gateways: Filling<PartialObjectMeta<Secret>>,
}

#[cfg(test)]
impl Writers {
    pub(crate) fn secrets(&mut self) -> &mut Filling<PartialObjectMeta<Secret>> {
        &mut self.secrets
    }

    /// Shows an object of the API server, by its path.
    pub(crate) fn show(&mut self, path: &str, object: serde_json::Value) {
        self.tell(path, object, true);
    }

    /// It is gone.
    pub(crate) fn hide(&mut self, path: &str, object: serde_json::Value) {
        self.tell(path, object, false);
    }

    fn tell(&mut self, path: &str, mut object: serde_json::Value, there: bool) {
        object["metadata"]["namespace"] = "team-a".into();
        macro_rules! tell {
            ($writer:ident) => {{
                let object = serde_json::from_value(object).unwrap();
                let event = if there {
                    Event::Apply(object)
                } else {
                    Event::Delete(object)
                };
                self.$writer.apply_watcher_event(&event);
            }};
        }
        let kind = path.rsplit('/').nth(1).unwrap_or_default();
        match kind {
            "secrets" => tell!(secrets),
            "configmaps" => tell!(config_maps),
            "serviceaccounts" => tell!(service_accounts),
            "services" => tell!(services),
            "networkpolicies" => tell!(network_policies),
            "poddisruptionbudgets" => tell!(pdbs),
            "deployments" => tell!(deployments),
            "horizontalpodautoscalers" => {
                let mut object: HorizontalPodAutoscaler = serde_json::from_value(object).unwrap();
                object.stamp();
                self.hpas.apply_watcher_event(&Event::Apply(object));
            }
            _ => {}
        }
    }

    pub(crate) fn deployments(&mut self) -> &mut Filling<Deployment> {
        &mut self.deployments
    }

    pub(crate) fn hpas(&mut self) -> &mut Filling<HorizontalPodAutoscaler> {
        &mut self.hpas
    }

    pub(crate) fn groups(&mut self) -> &mut reflector::store::Writer<DeserializeGuard<McpGroup>> {
        &mut self.groups
    }

    pub(crate) fn accounts(&mut self) -> &mut Filling<PartialObjectMeta<ServiceAccount>> {
        &mut self.service_accounts
    }

    pub(crate) fn gateways(&mut self) -> &mut Filling<PartialObjectMeta<Secret>> {
        &mut self.gateways
    }

    pub(crate) fn maps(&mut self) -> &mut Filling<PartialObjectMeta<ConfigMap>> {
        &mut self.config_maps
    }
}

impl Caches {
    /// Empty caches, and what fills them.
    pub fn new() -> (Self, Writers) {
        let (groups, to_groups) = reflector::store();
        let (deployments, to_deployments) = cache();
        let (secrets, to_secrets) = cache();
        let (config_maps, to_config_maps) = cache();
        let (service_accounts, to_service_accounts) = cache();
        let (services, to_services) = cache();
        let (network_policies, to_network_policies) = cache();
        let (pdbs, to_pdbs) = cache();
        let (hpas, to_hpas) = cache();
        let (gateways, to_gateways) = cache();
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
                gateways,
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
                gateways: to_gateways,
            },
        )
    }

    /// Waits until every first list is done.
    pub async fn ready(&self) -> Result<(), reflector::store::WriterDropped> {
        self.groups.wait_until_ready().await?;
        self.deployments.ready().await?;
        self.secrets.ready().await?;
        self.config_maps.ready().await?;
        self.service_accounts.ready().await?;
        self.services.ready().await?;
        self.network_policies.ready().await?;
        self.pdbs.ready().await?;
        self.gateways.ready().await?;
        self.hpas.ready().await
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
    let of_upstreams = spec.upstreams.iter().flat_map(UpstreamSpec::secrets);
    let of_upstreams = of_upstreams.map(|reference| reference.name.as_str());
    named
        .map(|reference| reference.name.as_str())
        .chain(of_upstreams)
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
    let all = watcher::Config::default().page_size(PAGE);
    let ours = all
        .clone()
        .labels(&format!("{}={}", names::LABEL_MANAGED_BY, names::OPERATOR));
    let mut children = Children {
        client,
        namespaces,
        caches,
        wake,
        tasks,
    };
    children.whole(writers.deployments, &ours, |deployment: &mut Deployment| {
        if let Some(spec) = &mut deployment.spec {
            spec.template = PodTemplateSpec::default();
        }
    });
    children.meta(writers.secrets, &all);
    children.meta(writers.config_maps, &ours);
    children.meta(writers.service_accounts, &ours);
    children.meta(writers.services, &ours);
    children.meta(writers.network_policies, &ours);
    children.meta(writers.pdbs, &ours);
    children.whole(writers.hpas, &ours, |hpa: &mut HorizontalPodAutoscaler| {
        hpa.status = None;
        hpa.stamp();
    });
    match &ctx.operator.gateways {
        Some(namespace) => gateways::start(client, namespace, ctx, writers.gateways, tasks),
        // Nothing is listed; nothing is waited for.
        None => writers.gateways.finish(),
    }
    let groups = each::<DeserializeGuard<McpGroup>>(client, namespaces, &all);
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

/// Whether an object of which only the metadata is known was changed by somebody: with a generation, its
/// version changes with its status alone, which decides nothing here.
fn differs<K: Resource>(old: &K, new: &K) -> bool {
    let mut old = old.meta().clone();
    if old.generation.is_some() {
        old.resource_version
            .clone_from(&new.meta().resource_version);
    }
    old != *new.meta()
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
    fn meta<K>(&mut self, filling: Filling<PartialObjectMeta<K>>, config: &watcher::Config)
    where
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
        self.follow(filling.fill(events, differs), K::kind(&()).into_owned());
    }

    /// Watches a kind whole, but for what `drop` drops because nobody looks at it.
    fn whole<K>(
        &mut self,
        filling: Filling<K>,
        config: &watcher::Config,
        drop: impl Fn(&mut K) + Send + 'static,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Stub
            + Clone
            + Debug
            + PartialEq
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let events = each::<K>(self.client, self.namespaces, config);
        let events = events.default_backoff().modify(move |object| {
            object.meta_mut().managed_fields = None;
            object.meta_mut().annotations = None;
            drop(object);
        });
        let differs = |old: &K, new: &K| {
            let mut old = old.clone();
            old.meta_mut()
                .resource_version
                .clone_from(&new.meta().resource_version);
            old != *new
        };
        self.follow(filling.fill(events, differs), K::kind(&()).into_owned());
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
