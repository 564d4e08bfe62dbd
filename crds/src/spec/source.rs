//! `source`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Secret or `ConfigMap` in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Where the code comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::source)]
pub struct SourceSpec {
    /// The repository: `https://…`, `http://…`, `ssh://…` or `git@host:path`. Credentials never stand
    /// in it; they come from `secretRef`.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// What to follow. Without it, the repository's default branch.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// The folder that holds `mcp/`, from the root of the repository. Without it, the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
    /// How often to look for something new, as `30s`, `5m` or `1h30m`: at least 30 seconds, 5 minutes
    /// when absent. A webhook makes it look at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub interval: Option<String>,
    /// How long one fetch may take: 1 second to 10 minutes, `60s` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub timeout: Option<String>,
    /// Credentials: `username` and `password`, or `bearerToken`, or `identity` with `known_hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
    /// Certificates to trust besides the system's: key `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<LocalRef>,
    /// Stop looking for something new. What serves goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// What to follow: at most one of the five.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::reference)]
pub struct GitRef {
    /// A branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub branch: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub tag: Option<String>,
    /// A range of versions; the highest tag in it is taken: `>=1.2, <2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// A full commit id, 40 or 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 40, max = 64))]
    pub commit: Option<String>,
    /// A tag or, where there is none of this name, a branch; or the full name of a ref: `refs/tags/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub name: Option<String>,
}
