//! How the zones of a group do: as their Deployments tell, and their pods.

use k8s_openapi::api::apps::v1::Deployment;
use ramen_crds::{Replicas, ZoneStatus};
use ramen_group::Reason;

use crate::group::GroupKey;
use crate::group::convergence::Convergence;
use crate::group::health::Health;
use crate::group::rollout::Rollout;
use crate::group::validate::Validated;
use crate::names::{self, child};
use crate::pods::{PodView, refusal};
use crate::reasons;
use crate::watches::Caches;

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneView {
    pub(crate) name: String,
    /// There is a Deployment, and its status is about its spec of now.
    pub(crate) known: bool,
    pub(crate) wanted: u32,
    pub(crate) ready: u32,
    /// Pods of the newest template.
    pub(crate) rolled: u32,
    /// Pods that serve what is wanted, as far as is known.
    pub(crate) updated: u32,
    /// Pods of which it cannot be known: they do not answer the operator.
    pub(crate) unknown: u32,
    /// A pod that is not known to serve it, and why.
    pub(crate) behind: Option<String>,
    /// Reason and words of what holds pods up.
    pub(crate) problem: Option<(String, String)>,
}

/// The zones as they are; before the group starts pods, no Deployment is one of its own.
pub(super) fn see(
    caches: &Caches,
    group: &Validated,
    pods: &[PodView],
    rollout: Option<&Rollout>,
) -> Vec<ZoneView> {
    let starts = rollout.is_some_and(Rollout::starts_pods);
    let zones = group.spec.zones.iter().map(|zone| {
        let name = child::zone(&group.key.name, zone.name.as_str());
        let live = caches.deployments.get(&group.key.namespace, &name);
        let wanted = match zone.replicas {
            Replicas::Fixed(count) => Some(count),
            Replicas::Scaled { .. } => None,
        };
        let name = zone.name.to_string();
        let problem = problem_of(of_zone(pods, &name), rollout.map(Rollout::health));
        zone_view(name, wanted, live.as_deref().filter(|_| starts), problem)
    });
    zones.collect()
}

/// The zones that have Deployments, where it is not known which are wanted.
pub(super) fn live(
    caches: &Caches,
    key: &GroupKey,
    pods: &[PodView],
    rollout: Option<&Rollout>,
) -> Vec<ZoneView> {
    let deployments = caches.deployments.of(key);
    let zones = deployments.iter().filter_map(|live| {
        let name = live.metadata.labels.as_ref()?.get(names::LABEL_ZONE)?;
        let problem = problem_of(of_zone(pods, name), rollout.map(Rollout::health));
        Some(zone_view(name.clone(), None, Some(&**live), problem))
    });
    let mut zones: Vec<ZoneView> = zones.collect();
    zones.sort_by(|one, other| one.name.cmp(&other.name));
    zones
}

/// Fills in how many pods serve what is wanted. A process that has not heard of any pod yet goes by what was told of that
/// revision before.
pub(super) fn converge(
    zones: &mut [ZoneView],
    pods: &[PodView],
    convergence: &Convergence,
    told: &[ZoneStatus],
) {
    for zone in zones {
        let (serve, unasked) = convergence.count(of_zone(pods, &zone.name));
        let told = told.iter().find(|told| told.name == zone.name);
        let told = told.filter(|_| convergence.is_blank());
        zone.updated = serve + told.map_or(0, |told| told.updated.min(unasked));
        zone.unknown = convergence.unknown(of_zone(pods, &zone.name));
        zone.behind = convergence.behind(of_zone(pods, &zone.name));
    }
}

fn of_zone<'p>(pods: &'p [PodView], zone: &str) -> impl Iterator<Item = &'p PodView> {
    pods.iter()
        .filter(move |pod| pod.zone.as_deref() == Some(zone))
}

/// Why the pods of a Deployment do not come up in time, if one says so.
pub(crate) fn overdue(caches: &Caches, group: &Validated) -> Option<String> {
    group.spec.zones.iter().find_map(|zone| {
        let name = child::zone(&group.key.name, zone.name.as_str());
        let live = caches.deployments.get(&group.key.namespace, &name)?;
        let conditions = live.status.as_ref()?.conditions.as_ref()?;
        let late = conditions
            .iter()
            .find(|condition| condition.type_ == "Progressing" && condition.status == "False")?;
        late.message.clone()
    })
}

fn zone_view(
    name: String,
    wanted: Option<u32>,
    live: Option<&Deployment>,
    problem: Option<(String, String)>,
) -> ZoneView {
    let number = |n: Option<i32>| n.and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    let spec = live.and_then(|deployment| deployment.spec.as_ref());
    let status = live.and_then(|deployment| deployment.status.as_ref());
    let generation = live.and_then(|deployment| deployment.metadata.generation);
    ZoneView {
        known: status.is_some_and(|status| status.observed_generation >= generation),
        // A Deployment that says nothing wants one.
        wanted: wanted.unwrap_or_else(|| number(spec.and_then(|spec| spec.replicas).or(Some(1)))),
        ready: number(status.and_then(|status| status.ready_replicas)),
        rolled: number(status.and_then(|status| status.updated_replicas)),
        updated: 0,
        unknown: 0,
        behind: None,
        problem: live
            .and_then(refused)
            .or(problem)
            .or_else(|| live.and_then(late)),
        name,
    }
}

/// Pods that are not even made.
fn refused(live: &Deployment) -> Option<(String, String)> {
    let conditions = live.status.as_ref()?.conditions.as_ref()?;
    let bad = conditions
        .iter()
        .find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True")?;
    let (reason, message) = refusal(bad.message.as_deref().unwrap_or_default());
    Some((reason.to_owned(), format!("pods are refused: {message}")))
}

/// The Deployment gave up waiting.
fn late(live: &Deployment) -> Option<(String, String)> {
    let conditions = live.status.as_ref()?.conditions.as_ref()?;
    let bad = conditions
        .iter()
        .find(|condition| condition.type_ == "Progressing" && condition.status == "False")?;
    let reason = bad.reason.clone().unwrap_or_else(|| bad.type_.clone());
    Some((reason, bad.message.clone().unwrap_or_default()))
}

/// The worst that is known of any pod; the same whatever their order.
fn problem_of<'p>(
    pods: impl Iterator<Item = &'p PodView>,
    health: Option<&Health>,
) -> Option<(String, String)> {
    let pods = pods.filter(|pod| !pod.leaving && !pod.ready);
    let mut troubles: Vec<_> = pods
        .filter_map(|pod| {
            let ailment = health.and_then(|health| health.ailing(&pod.name));
            let (reason, message, kind) = match (&pod.trouble, ailment) {
                (Some(trouble), _) => (
                    trouble.reason.as_str(),
                    &trouble.message,
                    Some(trouble.kind),
                ),
                (None, Some(ailment)) if ailment.blames => {
                    (Reason::HostCrashed.as_str(), &ailment.message, None)
                }
                (None, Some(ailment)) => (reasons::PODS_NOT_READY, &ailment.message, None),
                (None, None) => return None,
            };
            Some((kind, &pod.name, reason, message))
        })
        .collect();
    troubles.sort_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
    let (_, name, reason, message) = troubles.first()?;
    Some(((*reason).to_owned(), format!("pod {name}: {message}")))
}

#[cfg(test)]
mod tests;
