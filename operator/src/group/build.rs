//! Phase three, pure: all children of a group. One file per kind; each is a function of the group.

mod config_map;
pub(crate) mod deploy_job;
mod deployment;
mod gateway;
mod hpa;
mod network_policy;
mod pdb;
mod pod;
mod secrets;
mod service;
mod service_account;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use ramen_crds::Zone;

pub(crate) use self::network_policy::Network;
use super::Operator;
use super::rollout::Wanted;
use super::validate::Validated;
use crate::names::{self, child};

/// Built, not written yet.
pub(crate) enum Prepared {}
/// Written.
pub(crate) enum Written {}

/// All children but deploy jobs, in the order in which they are written: what pods need comes before
/// pods, so that they start once; the policy before what it guards.
pub(crate) struct Children<S> {
    pub(crate) service_account: ServiceAccount,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) config_maps: Vec<ConfigMap>,
    pub(crate) network_policies: Vec<NetworkPolicy>,
    pub(crate) services: Vec<Service>,
    pub(crate) pdbs: Vec<PodDisruptionBudget>,
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) hpas: Vec<HorizontalPodAutoscaler>,
    /// For gateways, in their namespace.
    pub(crate) gateway: Option<Secret>,
    pub(crate) state: PhantomData<S>,
}

/// Builds everything.
pub(super) fn build(group: &Validated, operator: &Operator, wanted: &Wanted) -> Children<Prepared> {
    let zones = &group.spec.zones;
    // Pods without anything to serve would only wait, and count as broken.
    let deployments = match &wanted.desired {
        Some(_) => zones
            .iter()
            .map(|zone| {
                deployment::build(
                    group,
                    operator,
                    wanted.image.as_deref().unwrap_or(group.image(operator)),
                    zone,
                )
            })
            .collect(),
        None => Vec::new(),
    };
    Children {
        service_account: service_account::build(group),
        secrets: secrets::build(group),
        config_maps: config_map::build(group, wanted),
        network_policies: network_policy::build(group, operator),
        services: zones
            .iter()
            .map(|zone| service::build(group, zone))
            .collect(),
        pdbs: zones
            .iter()
            .filter_map(|zone| pdb::build(group, zone))
            .collect(),
        deployments,
        hpas: zones
            .iter()
            .filter_map(|zone| hpa::build(group, zone))
            .collect(),
        gateway: operator
            .gateways
            .as_ref()
            .map(|namespace| gateway::build(group, namespace)),
        state: PhantomData,
    }
}

type Labels = BTreeMap<String, String>;

/// The labels that select the pods of a component, and of a zone of it. They never change.
fn selector(group: &Validated, component: &str, zone: Option<&Zone>) -> Labels {
    let mut labels = Labels::from([
        (names::LABEL_NAME.to_owned(), "ramen".to_owned()),
        (names::LABEL_COMPONENT.to_owned(), component.to_owned()),
        (names::LABEL_GROUP.to_owned(), group.key.name.clone()),
    ]);
    if let Some(zone) = zone {
        labels.insert(names::LABEL_ZONE.to_owned(), zone.name.to_string());
    }
    labels
}

/// The labels of a child.
fn labels(group: &Validated, component: &str, zone: Option<&Zone>) -> Labels {
    let mut labels = selector(group, component, zone);
    labels.insert(names::LABEL_INSTANCE.to_owned(), group.key.name.clone());
    labels.insert(
        names::LABEL_MANAGED_BY.to_owned(),
        names::OPERATOR.to_owned(),
    );
    labels
}

/// The metadata of a child: name, labels, owner.
fn meta(group: &Validated, name: String, component: &str, zone: Option<&Zone>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(group.key.namespace.clone()),
        labels: Some(labels(group, component, zone)),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{}/{}", ramen_crds::API_GROUP, ramen_crds::API_VERSION),
            kind: ramen_crds::KIND.to_owned(),
            name: group.key.name.clone(),
            uid: group.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// The metadata of a zone's child.
fn zone_meta(group: &Validated, zone: &Zone) -> ObjectMeta {
    let name = child::zone(&group.key.name, zone.name.as_str());
    meta(group, name, names::COMPONENT_WORKER, Some(zone))
}

#[cfg(test)]
mod tests;
