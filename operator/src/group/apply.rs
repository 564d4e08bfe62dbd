//! Phase four: writes what was built and is not as it should be, then removes what is left over. It decides
//! nothing about the group; at rest it sends no request at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher as _};
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use ramen_crds::gateway;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::build::{Children, Prepared, Written};
use super::dereference::owned;
use super::validate::Validated;
use super::{Context, GroupKey};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::names;
use crate::watches::{Cached, Caches};

/// What was written last of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Hash of what was sent.
    sent: u64,
    /// What the object was then.
    live: Live,
}

/// As much of an object as tells whether somebody changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Live {
    uid: String,
    version: u64,
    /// Changes with the spec alone, for kinds that have it.
    generation: Option<i64>,
    labels: u64,
}

impl Live {
    fn of(meta: &ObjectMeta) -> Self {
        let version = meta.resource_version.as_deref().unwrap_or_default();
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: version.parse().unwrap_or_default(),
            generation: meta.generation,
            labels: hash_of(&(meta.labels.as_ref(), format!("{:?}", meta.owner_references))),
        }
    }

    /// Whether what the watch shows is what was written, or older.
    fn holds(&self, seen: &ObjectMeta) -> bool {
        let seen = Self::of(seen);
        self.uid == seen.uid
            && (seen.version <= self.version
                || (self.generation.is_some()
                    && self.generation == seen.generation
                    && self.labels == seen.labels))
    }
}

fn hash_of(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// All that was applied, by kind and name.
pub(crate) type AppliedMap = BTreeMap<(&'static str, String), Applied>;

/// Writes all children and sweeps. The type of the result says that it was done.
pub(super) async fn apply(
    ctx: &Context,
    group: &Validated,
    children: Children<Prepared>,
    applied: &mut AppliedMap,
) -> Result<Children<Written>, Error> {
    let mut writer = Writer {
        client: &ctx.client,
        caches: &ctx.caches,
        metrics: &ctx.metrics,
        key: &group.key,
        uid: &group.uid,
        applied,
        produced: BTreeSet::new(),
    };
    // Without `..`: a kind that nobody writes does not compile.
    let Children {
        service_account,
        secrets,
        config_maps,
        network_policies,
        services,
        pdbs,
        deployments,
        hpas,
        gateway,
        state: PhantomData,
    } = children;
    writer.write(&service_account).await?;
    writer.write_all(&secrets).await?;
    if let Some(secret) = &gateway {
        writer.write_for_gateways(secret).await?;
    }
    writer.write_all(&config_maps).await?;
    writer.write_all(&network_policies).await?;
    writer.write_all(&services).await?;
    writer.write_all(&pdbs).await?;
    writer.write_all(&deployments).await?;
    writer.write_all(&hpas).await?;
    // Workloads go first, what guards them last.
    writer
        .sweep::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>()
        .await?;
    writer.sweep::<Deployment>().await?;
    writer
        .sweep::<k8s_openapi::api::policy::v1::PodDisruptionBudget>()
        .await?;
    writer
        .sweep::<k8s_openapi::api::core::v1::Service>()
        .await?;
    let alive = zones_alive(ctx, &group.key);
    writer
        .sweep_but::<NetworkPolicy>(&|meta| zone(meta).is_some_and(|zone| alive.contains(zone)))
        .await?;
    writer
        .sweep::<k8s_openapi::api::core::v1::ConfigMap>()
        .await?;
    writer.sweep::<Secret>().await?;
    writer
        .sweep::<k8s_openapi::api::core::v1::ServiceAccount>()
        .await?;
    let produced = std::mem::take(&mut writer.produced);
    applied.retain(|child, _| produced.contains(child));
    Ok(Children {
        service_account,
        secrets,
        config_maps,
        network_policies,
        services,
        pdbs,
        deployments,
        hpas,
        gateway,
        state: PhantomData,
    })
}

/// The zone of an object.
fn zone(meta: &ObjectMeta) -> Option<&str> {
    let labels = meta.labels.as_ref()?;
    labels.get(names::LABEL_ZONE).map(String::as_str)
}

/// Zones in which code of the group may run. A pod outlives its Deployment for as long as its calls may take, and what
/// guards it must outlive the pod: that is gone a while later, which wakes the group.
fn zones_alive(ctx: &Context, key: &GroupKey) -> BTreeSet<String> {
    let deployments = Deployment::of_group(&ctx.caches, key);
    let deployments = deployments.iter().filter_map(zone).map(str::to_owned);
    let pods = ctx.pods.workers(key).into_iter();
    deployments.chain(pods.filter_map(|pod| pod.zone)).collect()
}

pub(super) struct Writer<'a> {
    pub(super) client: &'a Client,
    pub(super) caches: &'a Caches,
    pub(super) metrics: &'a Metrics,
    pub(super) key: &'a GroupKey,
    pub(super) uid: &'a str,
    pub(super) applied: &'a mut AppliedMap,
    pub(super) produced: BTreeSet<(&'static str, String)>,
}

/// Where an object is written, and how it is known as ours.
#[derive(Clone, Copy)]
struct Place<'p> {
    namespace: &'p str,
    ours: &'p (dyn Fn(&ObjectMeta) -> bool + Sync),
}

/// A field that we write at times, and at times leave to somebody else.
#[derive(Debug)]
pub(crate) struct Handed {
    parent: &'static str,
    name: &'static str,
}

/// The number of pods: the autoscaler's, where there is one.
pub(crate) const REPLICAS: Handed = Handed {
    parent: "spec",
    name: "replicas",
};

/// Whether our last apply wrote this field.
fn owns(meta: &ObjectMeta, field: &Handed) -> bool {
    let (parent, name) = (format!("f:{}", field.parent), format!("f:{}", field.name));
    meta.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(names::MANAGER)
            && entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0[&parent].get(&name).is_some())
    })
}

/// What a child must be able to do.
pub(super) trait Child:
    Cached
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
{
}

impl<K> Child for K where
    K: Cached
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
{
}

impl Writer<'_> {
    async fn write_all<K: Child>(&mut self, children: &[K]) -> Result<(), Error> {
        for child in children {
            self.write(child).await?;
        }
        Ok(())
    }

    /// Writes a child unless it is as it should be.
    pub(super) async fn write<K: Child>(&mut self, child: &K) -> Result<(), Error> {
        let name = child.meta().name.clone().unwrap_or_default();
        let seen = K::seen(self.caches, &self.key.namespace, &name);
        let uid = self.uid;
        let place = Place {
            namespace: &self.key.namespace,
            ours: &|meta| owned(meta, uid),
        };
        self.put(child, name, seen, place).await
    }

    /// Writes the Secret of the gateways' namespace. There its labels say whose it is: owners are of one namespace.
    async fn write_for_gateways(&mut self, secret: &Secret) -> Result<(), Error> {
        let meta = &secret.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let namespace = meta.namespace.clone().unwrap_or_default();
        let seen = self.caches.gateways.get(&namespace, &name);
        let seen = seen.map(|object| object.metadata.clone());
        let labels = meta.labels.as_ref();
        let same = |meta: &ObjectMeta, label: &str| {
            let of = |labels: Option<&BTreeMap<String, String>>| labels?.get(label).cloned();
            of(meta.labels.as_ref()) == of(labels)
        };
        let place = Place {
            namespace: &namespace,
            // Not by uid: a group that was removed and made again takes its predecessor's.
            ours: &|meta| {
                same(meta, names::LABEL_MANAGED_BY)
                    && same(meta, names::LABEL_COMPONENT)
                    && same(meta, gateway::LABEL_NAMESPACE)
                    && same(meta, names::LABEL_GROUP)
            },
        };
        self.put(secret, name, seen, place).await
    }

    async fn put<K: Child>(
        &mut self,
        child: &K,
        name: String,
        seen: Option<ObjectMeta>,
        place: Place<'_>,
    ) -> Result<(), Error> {
        let id = (K::KIND, name.clone());
        self.produced.insert(id.clone());
        let body = serde_json::to_vec(child)
            .map_err(|error| Error::Internal(format!("{} {name}: {error}", K::KIND)))?;
        let sent = hash_of(&body);
        if let (Some(applied), Some(seen)) = (self.applied.get(&id), &seen)
            && applied.sent == sent
            && applied.live.holds(seen)
        {
            return Ok(());
        }
        let api: Api<K> = Api::namespaced(self.client.clone(), place.namespace);
        self.refuse_foreign(&api, &name, seen, &place).await?;
        let params = PatchParams::apply(names::MANAGER).force();
        if let Some(handed) = K::handed_over(child) {
            self.hand_over(&api, &name, handed).await?;
        }
        let written = api.patch(&name, &params, &Patch::Apply(child)).await;
        let mut written = written.map_err(|error| self.failed::<K>("apply", &name, error))?;
        written.stamp();
        self.metrics.wrote(K::KIND, "apply");
        tracing::debug!(kind = K::KIND, name, "applied");
        let live = Live::of(written.meta());
        self.applied.insert(id, Applied { sent, live });
        Ok(())
    }

    /// A field that was ours and is not written any more would go back to its default: before that,
    /// somebody else is made its owner as it is.
    async fn hand_over<K: Child>(
        &self,
        api: &Api<K>,
        name: &str,
        field: &Handed,
    ) -> Result<(), Error> {
        let live = api.get_opt(name).await;
        let live = live.map_err(|error| self.failed::<K>("read", name, error))?;
        let Some(live) = live.filter(|live| owns(live.meta(), field)) else {
            return Ok(());
        };
        let live = serde_json::to_value(&live)
            .map_err(|error| Error::Internal(format!("{} {name}: {error}", K::KIND)))?;
        let value = &live[field.parent][field.name];
        if *value == json!(0) {
            // No pods: an autoscaler would take that for its own switch, and leave it so for ever.
            return Ok(());
        }
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name},
            field.parent: {field.name: value},
        });
        let params = PatchParams::apply(names::HANDOVER_MANAGER).force();
        let handed = api.patch(name, &params, &Patch::Apply(&body)).await;
        handed.map_err(|error| self.failed::<K>("hand over", name, error))?;
        self.metrics.wrote(K::KIND, "apply");
        Ok(())
    }

    /// An object of that name that is not this group's is left alone.
    async fn refuse_foreign<K: Child>(
        &self,
        api: &Api<K>,
        name: &str,
        seen: Option<ObjectMeta>,
        place: &Place<'_>,
    ) -> Result<(), Error> {
        let seen = match seen {
            Some(seen) => Some(seen),
            // Not among ours: look once before it is made.
            None => api
                .get_metadata_opt(name)
                .await
                .map_err(|error| self.failed::<K>("read", name, error))?
                .map(|object| object.metadata),
        };
        match seen {
            Some(meta) if !(place.ours)(&meta) => Err(Error::Foreign {
                object: format!("{} {}/{name}", K::KIND, place.namespace),
            }),
            _ => Ok(()),
        }
    }

    /// Removes what is labelled as this group's and was not produced now.
    pub(super) async fn sweep<K: Child>(&mut self) -> Result<(), Error> {
        self.sweep_but::<K>(&|_| false).await
    }

    /// The same, but for what is needed still: a later run removes it.
    pub(super) async fn sweep_but<K: Child>(
        &mut self,
        needed: &(dyn Fn(&ObjectMeta) -> bool + Sync),
    ) -> Result<(), Error> {
        for meta in K::of_group(self.caches, self.key) {
            let name = meta.name.clone().unwrap_or_default();
            let labels = meta.labels.as_ref();
            let component = labels.and_then(|labels| labels.get(names::LABEL_COMPONENT));
            // The token of a deploy job is the job's matter.
            if component.is_some_and(|component| component == names::COMPONENT_DEPLOY)
                || self.produced.contains(&(K::KIND, name.clone()))
                || !owned(&meta, self.uid)
                || meta.deletion_timestamp.is_some()
                || needed(&meta)
            {
                continue;
            }
            let api: Api<K> = Api::namespaced(self.client.clone(), &self.key.namespace);
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: meta.uid.clone(),
                    ..Preconditions::default()
                }),
                ..DeleteParams::background()
            };
            match api.delete(&name, &params).await {
                Ok(_) => {
                    self.metrics.wrote(K::KIND, "delete");
                    tracing::info!(kind = K::KIND, name, "removed what is no longer wanted");
                }
                // Gone already, or another one of that name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(self.failed::<K>("delete", &name, error)),
            }
        }
        Ok(())
    }

    fn failed<K: Child>(&self, verb: &'static str, name: &str, source: kube::Error) -> Error {
        Error::Api {
            verb,
            object: format!("{} {}/{name}", K::KIND, self.key.namespace),
            source: Box::new(source),
        }
    }
}

#[cfg(test)]
mod tests;
