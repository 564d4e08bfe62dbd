//! What the operator leaves for gateways: one Secret for each group, in the gateways' own namespace. A gateway reads
//! these and no other Secret. They are part of the API between the two.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::validate::{Reach, SecretName, Upstream};

/// Component of these Secrets.
pub const COMPONENT: &str = "gateway-group";
/// Component of gateway pods.
pub const COMPONENT_PODS: &str = "gateway";
/// Value of `app.kubernetes.io/managed-by` on everything that the operator makes.
pub const MANAGED_BY: &str = "ramen-operator";
/// On these Secrets: the namespace of the group; its name is in [`LABEL_GROUP`](crate::labels::LABEL_GROUP).
pub const LABEL_NAMESPACE: &str = "ramen.dev/namespace";
/// On these Secrets: the uid of the group. Without the group of this uid they open nothing.
pub const LABEL_UID: &str = "ramen.dev/group-uid";
/// Entry: SHA-256 of each key of a caller in hex, one a line; after a blank its name, by which access rules know it.
pub const CALLERS: &str = "callers";
/// Entry: the gateway's own key at the workers.
pub const WORKER_KEY: &str = "worker-key";
/// Entry: the group's upstreams with their values filled in, JSON of a list of [`UpstreamEntry`]. Absent: none.
pub const UPSTREAMS: &str = "upstreams";
/// Name of the port of a group's Services that gateways call.
pub const PORT: &str = "grpc";

/// An upstream with its values filled in. Its `Debug` shows none of them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamEntry {
    /// Its name.
    pub name: String,
    /// Its endpoint, unless it is a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The program's arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Headers, or variables of the program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
    /// How long one request may take.
    pub timeout_secs: u64,
    /// Which tools are offered; all when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Why it cannot be used: a value is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl UpstreamEntry {
    /// Fills in the values of Secrets, looked up by Secret and key.
    pub fn new<'s>(
        upstream: &Upstream,
        look_up: impl Fn(&SecretName, &str) -> Option<&'s [u8]>,
    ) -> Self {
        let mut entry = Self {
            name: upstream.name.as_str().to_owned(),
            timeout_secs: upstream.timeout.as_secs(),
            allowed_tools: upstream.allowed_tools.clone(),
            ..Self::default()
        };
        let settings = match &upstream.reach {
            Reach::Http { url, headers } => {
                entry.url = Some(url.expose().to_string());
                headers
            }
            Reach::Command { command, args, env } => {
                entry.command = Some(command.clone());
                entry.args.clone_from(args);
                env
            }
        };
        match settings.resolve(look_up) {
            Ok(values) => {
                let values = values.into_iter();
                entry.values = values
                    .map(|(name, value)| (name, value.into_exposed()))
                    .collect();
            }
            Err(why) => entry.fault = Some(why),
        }
        entry
    }
}

impl fmt::Debug for UpstreamEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamEntry")
            .field("name", &self.name)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

/// The name of a group's Secret. No two groups have the same: a namespace holds no dot.
pub fn secret_name(namespace: &str, group: &str) -> String {
    format!("ramen-gateway.{namespace}.{group}")
}

/// Selects these Secrets.
pub fn secrets() -> String {
    format!(
        "app.kubernetes.io/managed-by={MANAGED_BY},{}={COMPONENT}",
        crate::labels::LABEL_COMPONENT
    )
}

/// Selects the `EndpointSlice`s of the Services of all groups: they carry the labels of their Service.
pub fn endpoints() -> String {
    format!(
        "app.kubernetes.io/managed-by={MANAGED_BY},{}={}",
        crate::labels::LABEL_COMPONENT,
        crate::labels::COMPONENT_WORKER
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_two_groups_are_never_the_same() {
        assert_ne!(secret_name("a-b", "c"), secret_name("a", "b-c"));
        assert!(secret_name(&"n".repeat(63), &"g".repeat(40)).len() < 253);
    }
}
