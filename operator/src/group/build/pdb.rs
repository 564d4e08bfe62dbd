//! At most one pod of a zone is moved at once. None for a zone of a single pod: there is nothing to hold back.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ramen_crds::{Replicas, Zone};

use super::{Validated, selector, zone_meta};
use crate::names;

pub(super) fn build(group: &Validated, zone: &Zone) -> Option<PodDisruptionBudget> {
    // An autoscaled zone has several pods when it matters most, whatever its least number is.
    let most = match zone.replicas {
        Replicas::Fixed(count) => count,
        Replicas::Scaled { max, .. } => max,
    };
    (most > 1).then(|| PodDisruptionBudget {
        metadata: zone_meta(group, zone),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(selector(group, names::COMPONENT_WORKER, Some(zone))),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
