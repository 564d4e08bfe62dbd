//! `network`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may reach the group, and what its code may reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::network)]
pub struct NetworkSpec {
    /// Addresses and ranges that may call: `10.0.0.0/8`, `203.0.113.7`, `2001:db8::/32`. Must be
    /// given; `0.0.0.0/0` and `::/0` let everybody call (who still needs a key).
    #[serde(rename = "allowedCIDRs")]
    #[schemars(length(min = 1, max = 128), inner(length(min = 1, max = 64)))]
    pub allowed_cidrs: Vec<String>,
    /// How many proxies stand before the workers and write `x-forwarded-for`: 0 (none; the header is
    /// ignored) to 8. With 1 the right-most address counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 8))]
    pub trusted_proxy_hops: Option<u8>,
    /// What the code may reach. Without it: DNS, the package index (deploy only) and the artifact
    /// store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressSpec>,
}

/// What the code may reach.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::egress)]
pub struct EgressSpec {
    /// Everything but the cloud's metadata addresses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Ranges that may be reached besides what is always needed.
    #[serde(
        default,
        rename = "allowedCIDRs",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 128), inner(length(min = 1, max = 64)))]
    pub allowed_cidrs: Vec<String>,
    /// TCP ports of those ranges; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 65535)))]
    pub ports: Vec<u16>,
}
