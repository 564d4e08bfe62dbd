//! What counts in the objects of the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::ObjectMeta;
use kube::core::{NotUsed, Object};
use ramen_client::config::Transport;
use ramen_crds::{gateway, labels};
use ramen_group::access::RuleText;
use ramen_group::{AccessRules, Cidr, CidrSet};
use ramen_redact::{KeyDigest, KeySet, SafeUrl, Secret};
use serde::Deserialize;

use crate::groups::GroupName;
use crate::upstreams::UpstreamSpec;

/// What an `McpGroup` asks for.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) uid: String,
    pub(super) ranges: CidrSet,
    pub(super) access: Option<Arc<AccessRules>>,
}

/// What the Secret of a group holds.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    pub(super) uid: String,
    pub(super) keys: KeySet,
    pub(super) worker_key: Secret,
    pub(super) upstreams: Vec<UpstreamSpec>,
}

/// The ready pods of a zone, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) zone: Option<String>,
    /// IPv4 comes first.
    pub(super) family: String,
    /// Pod and `address:port`.
    pub(super) ends: Vec<(String, String)>,
}

/// As much of a spec as counts here. A field that a newer version of the kind has is no fault.
#[derive(Debug, Deserialize)]
struct Spec {
    network: Network,
    access: Option<Access>,
}

/// Rules, unlike the rest, are read to the letter: what a newer version narrows with a field that is not known here
/// must not be wider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Access {
    #[serde(default)]
    rules: Vec<RuleText>,
}

#[derive(Debug, Deserialize)]
struct Network {
    #[serde(rename = "allowedCIDRs")]
    allowed_cidrs: Vec<String>,
}

/// Reads an `McpGroup`.
pub(super) fn asked(
    object: &Object<serde_json::Value, NotUsed>,
) -> Result<(GroupName, Asked), String> {
    let spec = Spec::deserialize(&object.spec)
        .map_err(|error| format!("its spec cannot be read: {error}"))?;
    let name = GroupName {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    };
    let ranges = spec.network.allowed_cidrs.iter().filter_map(|text| {
        text.parse::<Cidr>()
            .inspect_err(|error| {
                // The operator tells people; narrower than meant is the safe side.
                tracing::warn!(group = %name, %error, "a range of a group is left out");
            })
            .ok()
    });
    let access = spec.access.map(|access| AccessRules::new(access.rules));
    let access = access.transpose().map_err(|faults| {
        let told = faults.iter().map(|fault| {
            let (field, message) = (&fault.field, &fault.message);
            format!("spec.access.rules{field}: {message}")
        });
        told.collect::<Vec<_>>().join("; ")
    })?;
    let asked = Asked {
        access: access.map(Arc::new),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        ranges: ranges.collect(),
    };
    Ok((name, asked))
}

/// Reads the Secret that the operator left.
pub(super) fn credentials(secret: &KubeSecret) -> Result<(GroupName, Credentials), String> {
    let meta = &secret.metadata;
    let name = GroupName {
        namespace: label(meta, gateway::LABEL_NAMESPACE)?.to_owned(),
        name: label(meta, labels::LABEL_GROUP)?.to_owned(),
    };
    if meta.name.as_deref() != Some(&*gateway::secret_name(&name.namespace, &name.name)) {
        return Err("its name and its labels name two groups".to_owned());
    }
    let entry = |entry: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(entry));
        let text = data.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
        text.ok_or_else(|| format!("it has no entry `{entry}`"))
    };
    let mut keys = KeySet::empty();
    for line in entry(gateway::CALLERS)?.lines() {
        let (digest, name) = match line.trim().split_once(' ') {
            Some((digest, name)) => (digest, Some(name)),
            None => (line.trim(), None),
        };
        let digest = KeyDigest::from_hex(digest)
            .ok_or_else(|| format!("a line of `{}` is no digest", gateway::CALLERS))?;
        keys.add_digest(digest, name);
    }
    let credentials = Credentials {
        uid: label(meta, gateway::LABEL_UID)?.to_owned(),
        keys,
        worker_key: Secret::from(entry(gateway::WORKER_KEY)?.trim().to_owned()),
        upstreams: entry(gateway::UPSTREAMS)
            .map_or_else(|_| Vec::new(), |text| upstreams(&name, text)),
    };
    Ok((name, credentials))
}

/// The upstreams, with their values. A list that cannot be read costs the upstreams, not the group.
fn upstreams(group: &GroupName, text: &str) -> Vec<UpstreamSpec> {
    let Ok(entries) = serde_json::from_str::<Vec<gateway::UpstreamEntry>>(text) else {
        // What is wrong with it might quote a value.
        tracing::error!(%group, "the upstreams of a group cannot be read: is the operator of another version?");
        return Vec::new();
    };
    entries.into_iter().map(upstream).collect()
}

fn upstream(entry: gateway::UpstreamEntry) -> UpstreamSpec {
    let values = entry.values.into_iter();
    let values = values
        .map(|(name, value)| (name, Secret::from(value)))
        .collect();
    let transport = match (entry.fault, entry.url, entry.command) {
        (Some(fault), ..) => Err(fault),
        (None, Some(url), None) => SafeUrl::parse(&url)
            .map(|url| Transport::Http {
                url,
                headers: values,
            })
            .map_err(|error| format!("its url cannot be read: {error}")),
        (None, None, Some(command)) => Ok(Transport::Stdio {
            command,
            args: entry.args,
            env: values,
            cwd: None,
        }),
        _ => Err("it has neither a url nor a command".to_owned()),
    };
    let timeout = Duration::from_secs(entry.timeout_secs.max(1));
    UpstreamSpec::new(entry.name, transport, timeout, &entry.allowed_tools)
}

/// Reads a slice of the endpoints of a zone's Service.
pub(super) fn slice(slice: &EndpointSlice) -> Result<(GroupName, Slice), String> {
    let meta = &slice.metadata;
    let name = GroupName {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: label(meta, labels::LABEL_GROUP)?.to_owned(),
    };
    let mut ports = slice.ports.iter().flatten();
    let port = ports.find(|port| port.name.as_deref() == Some(gateway::PORT));
    // A Service without pods has a slice without ports.
    let port = port.and_then(|port| port.port);
    let ready = slice.endpoints.iter().filter(|end| is_ready(end));
    let ends = ready.filter_map(|end| {
        let address = end.addresses.first()?;
        let port = port?;
        let at = if address.contains(':') {
            format!("[{address}]:{port}")
        } else {
            format!("{address}:{port}")
        };
        let pod = end.target_ref.as_ref().and_then(|pod| pod.uid.clone());
        Some((pod.unwrap_or_else(|| at.clone()), at))
    });
    let found = Slice {
        zone: label(meta, labels::LABEL_ZONE).ok().map(str::to_owned),
        family: slice.address_type.clone(),
        ends: ends.collect(),
    };
    Ok((name, found))
}

/// Whether new calls may go there: one that is being ended is not ready.
fn is_ready(end: &Endpoint) -> bool {
    let conditions = end.conditions.as_ref();
    conditions
        .and_then(|conditions| conditions.ready)
        .unwrap_or(true)
}

fn label<'m>(meta: &'m ObjectMeta, label: &str) -> Result<&'m str, String> {
    let value = meta.labels.as_ref().and_then(|labels| labels.get(label));
    value
        .map(String::as_str)
        .ok_or_else(|| format!("it has no label `{label}`"))
}
