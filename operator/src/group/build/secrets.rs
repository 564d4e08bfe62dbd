//! The Secrets that the operator makes: callers' and gateway's key, the key of `ramen.v1.Admin`, the token
//! for reading layers.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ramen_redact::Secret as Value;

use super::{Validated, meta};
use crate::names::{self, child};

pub(super) fn build(group: &Validated) -> Vec<Secret> {
    let own = &group.own;
    let name = &group.key.name;
    let mut keys = vec![(names::GATEWAY_KEY, &own.gateway)];
    if group.spec.keys.is_none() {
        keys.push((names::KEY_KEY, &own.caller));
    }
    let mut keys = secret(group, child::keys(name), &keys);
    if let Some(token) = &own.made_for {
        let annotation = (names::KEY_MADE_FOR.to_owned(), token.clone());
        keys.metadata.annotations = Some(BTreeMap::from([annotation]));
    }
    let mut secrets = vec![
        keys,
        secret(
            group,
            child::admin_key(name),
            &[(names::KEY_KEY, &own.admin)],
        ),
    ];
    if let Some(token) = &own.artifacts {
        let entries = [(names::TOKEN_KEY, token)];
        secrets.push(secret(group, child::artifact_token(name), &entries));
    }
    secrets
}

fn secret(group: &Validated, name: String, entries: &[(&str, &Value)]) -> Secret {
    let data: BTreeMap<_, _> = entries
        .iter()
        .map(|(key, value)| {
            let value = ByteString(value.expose().clone().into_bytes());
            ((*key).to_owned(), value)
        })
        .collect();
    Secret {
        metadata: meta(group, name, names::COMPONENT_WORKER, None),
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}
