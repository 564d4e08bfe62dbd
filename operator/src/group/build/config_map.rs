//! What pods serve, and what the operator remembers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::{Validated, Wanted, meta};
use crate::names::{self, child};

pub(super) fn build(group: &Validated, wanted: &Wanted) -> Vec<ConfigMap> {
    let name = &group.key.name;
    // Written by hand: these types always become JSON.
    let desired = wanted
        .desired
        .as_ref()
        .and_then(|desired| serde_json::to_string(desired).ok())
        .map(|text| map(group, child::desired(name), names::DESIRED_KEY, text));
    let memory = map(
        group,
        child::rollout(name),
        names::MEMORY_KEY,
        wanted.remembered.clone(),
    );
    std::iter::once(memory).chain(desired).collect()
}

fn map(group: &Validated, name: String, key: &str, text: String) -> ConfigMap {
    ConfigMap {
        metadata: meta(group, name, names::COMPONENT_WORKER, None),
        data: Some(BTreeMap::from([(key.to_owned(), text)])),
        ..ConfigMap::default()
    }
}
