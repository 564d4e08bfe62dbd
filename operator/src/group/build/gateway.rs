//! What a gateway needs to know of a group and must not look up itself: digests of the callers' keys, and its own key
//! at the workers. One Secret in the gateways' namespace, so that a gateway reads Secrets nowhere else.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use ramen_crds::gateway;

use super::{Validated, meta};
use crate::names;

/// Digests beyond these are left out: a Secret holds 1 MiB.
const MAX_KEYS: usize = 10_000;

/// Builds it, for the gateways in this namespace.
pub(super) fn build(group: &Validated, namespace: &str) -> Secret {
    let callers = group.callers.digests().iter();
    let mut digests: Vec<String> = callers
        .map(|digest| match group.callers.name_of(digest) {
            Some(name) => format!("{} {name}", digest.to_hex()),
            None => digest.to_hex(),
        })
        .collect();
    // Whichever order the entries came in, the same keys are the same text.
    digests.sort_unstable();
    if digests.len() > MAX_KEYS {
        tracing::warn!(
            keys = digests.len(),
            most = MAX_KEYS,
            "more keys than gateways are told of"
        );
        digests.truncate(MAX_KEYS);
    }
    let entries = [
        (gateway::CALLERS, digests.join("\n")),
        (gateway::WORKER_KEY, group.own.gateway.expose().clone()),
    ];
    let data = entries.map(|(name, value)| (name.to_owned(), ByteString(value.into_bytes())));
    let mut data = BTreeMap::from(data);
    if !group.upstreams.is_empty() {
        let upstreams = serde_json::to_vec(&group.upstreams).unwrap_or_default();
        data.insert(gateway::UPSTREAMS.to_owned(), ByteString(upstreams));
    }
    Secret {
        metadata: metadata(group, namespace),
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn metadata(group: &Validated, namespace: &str) -> ObjectMeta {
    let name = gateway::secret_name(&group.key.namespace, &group.key.name);
    let mut meta = meta(group, name, gateway::COMPONENT, None);
    // Owners are of one namespace; elsewhere it is swept by its labels.
    if namespace != group.key.namespace {
        meta.owner_references = None;
        meta.namespace = Some(namespace.to_owned());
    }
    let labels = meta.labels.get_or_insert_default();
    labels.insert(
        gateway::LABEL_NAMESPACE.to_owned(),
        group.key.namespace.clone(),
    );
    labels.insert(gateway::LABEL_UID.to_owned(), group.uid.clone());
    debug_assert_eq!(labels[names::LABEL_MANAGED_BY], gateway::MANAGED_BY);
    meta
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ramen_redact::KeyDigest;
    use serde_json::json;

    use super::*;
    use crate::group::dereference::{Referenced, SecretData};
    use crate::group::validate::tests::{data, referenced, validated};

    fn text(secret: &Secret, entry: &str) -> String {
        let data = secret.data.as_ref().unwrap();
        String::from_utf8(data[entry].0.clone()).unwrap()
    }

    fn callers(extra: serde_json::Value, referenced: Referenced) -> Vec<String> {
        let secret = build(&validated(extra, referenced), "gateways");
        text(&secret, gateway::CALLERS)
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    }

    fn digests(keys: &[&str]) -> Vec<String> {
        let mut digests: Vec<_> = keys.iter().map(|key| KeyDigest::of(key).to_hex()).collect();
        digests.sort();
        digests
    }

    #[test]
    fn it_holds_digests_of_callers_keys_and_no_key_but_the_gateways() {
        let secret = build(&validated(json!({}), referenced()), "gateways");
        assert_eq!(
            secret.metadata.name.as_deref(),
            Some("ramen-gateway.team-a.calc")
        );
        assert_eq!(secret.metadata.namespace.as_deref(), Some("gateways"));
        assert_eq!(secret.metadata.owner_references, None);
        let labels = secret.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[gateway::LABEL_NAMESPACE], "team-a");
        assert_eq!(labels[gateway::LABEL_UID], "u-1");
        assert_eq!(labels["ramen.dev/group"], "calc");
        assert_eq!(text(&secret, gateway::WORKER_KEY), "rmk_gateway");
        let callers = text(&secret, gateway::CALLERS);
        let digest = KeyDigest::of("rmk_caller").to_hex();
        assert_eq!(
            callers,
            format!("{digest} key"),
            "by the name that rules know"
        );
        assert!(!callers.contains("rmk_"));
    }

    #[test]
    fn in_the_groups_own_namespace_the_group_owns_it() {
        let secret = build(&validated(json!({}), referenced()), "team-a");
        assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, "u-1");
    }

    #[test]
    fn keys_that_somebody_added_to_our_secret_count_and_the_gateways_does_not() {
        let found = SecretData(
            [
                ("key", "rmk_caller"),
                ("gateway", "rmk_gateway"),
                ("next", "rmk_next\n# none\n"),
                (".hidden", "rmk_hidden"),
            ]
            .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
            .into(),
        );
        let referenced = Referenced {
            own_keys: Some(Arc::new(found)),
            ..referenced()
        };
        assert_eq!(
            callers(json!({}), referenced),
            digests(&["rmk_caller", "rmk_next"])
        );
    }

    #[test]
    fn it_holds_the_upstreams_with_their_values_and_says_which_is_missing() {
        let with = |key: &str| json!({"name": "X", "secretRef": {"name": "s", "key": key, "prefix": "Bearer "}});
        let upstreams = json!({"upstreams": [
            {"name": "a", "url": "https://mcp.example/mcp", "headers": [with("there")]},
            {"name": "b", "url": "https://mcp.example/mcp", "headers": [with("missing")]},
        ]});
        let referenced = Referenced {
            upstreams: BTreeMap::from([("s".to_owned(), Some(data(&[("there", "t0ken")])))]),
            ..referenced()
        };
        let validated = validated(upstreams, referenced);
        assert!(!format!("{validated:?}").contains("t0ken"));
        let secret = build(&validated, "gateways");
        let all: Vec<gateway::UpstreamEntry> =
            serde_json::from_str(&text(&secret, gateway::UPSTREAMS)).unwrap();
        assert_eq!(all[0].values["X"], "Bearer t0ken");
        assert_eq!(all[0].timeout_secs, 60);
        let fault = all[1].fault.as_deref().unwrap();
        assert_eq!(fault, "X: the key missing of the Secret s is not there");
        assert!(
            !build(&plain(), "gateways")
                .data
                .unwrap()
                .contains_key(gateway::UPSTREAMS)
        );
    }

    fn plain() -> Validated {
        validated(json!({}), referenced())
    }

    #[test]
    fn a_named_secret_alone_says_who_may_call() {
        let named = json!({"keys": {"secretRef": {"name": "our-keys"}}});
        let with = |entries: &[(&str, &str)]| Referenced {
            keys: Some(Some(data(entries))),
            ..referenced()
        };
        let two = with(&[("alice", "rmk_a"), ("bob", "rmk_b\nrmk_a")]);
        assert_eq!(callers(named.clone(), two), digests(&["rmk_a", "rmk_b"]));
        // An empty one lets nobody in.
        assert_eq!(callers(named, with(&[])), digests(&[]));
    }
}
