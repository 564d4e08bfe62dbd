//! The status as the operator writes it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator found and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = crate::rules::not_seen_yet)]
pub struct McpGroupStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Reconciling`, `Stalled`, `SourceFetched`, `Deployed`, `WorkersAvailable`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = crate::rules::by_type)]
    pub conditions: Vec<Condition>,
    /// Which revision is where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<RevisionStatus>,
    /// Number of tools that serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<u32>,
    /// Ready and wanted pods of all zones: `3/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub replicas: Option<String>,
    /// The errors list of the last attempt: at most 50 entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub errors: Vec<ErrorEntry>,
    /// How many entries the errors list has in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_total: Option<u32>,
    /// The packages of the serving revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub packages: Vec<PackageStatus>,
    /// The zones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub zones: Vec<ZoneStatus>,
    /// The last deploy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_deploy: Option<LastDeploy>,
    /// The last value of the annotation `ramen.dev/requested-at` that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_requested_at: Option<String>,
}

/// Which revision is where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RevisionStatus {
    /// What answers calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub serving: Option<String>,
    /// What was tried last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub attempted: Option<String>,
    /// What answered calls before: what a roll back goes to. Absent when nothing else is kept ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub previous: Option<String>,
    /// Where the source's ref points.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub observed: Option<String>,
}

/// An entry of the errors list, cut to 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorEntry {
    /// `tools/calc`; absent for the group as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub package: Option<String>,
    /// One word; the errors page has the fix.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// In words.
    #[schemars(length(max = 512))]
    pub message: String,
    /// The file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub path: Option<String>,
    /// The line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A package of the serving revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageStatus {
    /// `tool`, `resource` or `prompt`.
    #[schemars(length(max = 16))]
    pub kind: String,
    /// Its name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// Whether it serves.
    pub ok: bool,
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneStatus {
    /// Its name.
    #[schemars(length(max = 16))]
    pub name: String,
    /// Wanted pods.
    pub replicas: u32,
    /// Pods that answer.
    pub ready: u32,
    /// Pods that serve the wanted revision.
    pub updated: u32,
}

/// The last deploy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastDeploy {
    /// Of which revision.
    #[schemars(length(max = 512))]
    pub revision: String,
    /// `ok`, `partial` or `failed`.
    #[schemars(length(max = 16))]
    pub outcome: String,
    /// Where the time went.
    pub timings: DeployTimings,
}

/// Milliseconds in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeployTimings {
    /// Fetching.
    pub fetch_ms: u64,
    /// Resolving the requirements.
    pub resolve_ms: u64,
    /// Installing them.
    pub install_ms: u64,
    /// Importing and checking the packages.
    pub import_ms: u64,
    /// Golden calls.
    pub tests_ms: u64,
    /// All.
    pub total_ms: u64,
}
