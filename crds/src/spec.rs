//! The spec as written. Every field is documented here: this is the API reference.

mod access;
mod network;
mod source;
mod upstream;
mod worker;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{AccessRule, AccessSpec, ClaimSpec};
pub use network::{EgressSpec, NetworkSpec};
pub use source::{GitRef, LocalRef, SourceSpec};
pub use upstream::{SecretKeyRef, UpstreamSpec, UpstreamValue};
pub use worker::{Autoscaling, EnvVar, RolloutSpec, WorkerSpec, ZoneSpec};

use crate::McpGroupStatus;

/// One git repository of Python functions, served to MCP clients.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ramen.dev",
    version = "v1alpha1",
    kind = "McpGroup",
    plural = "mcpgroups",
    singular = "mcpgroup",
    shortname = "rmg",
    category = "ramen",
    namespaced,
    status = "McpGroupStatus",
    derive = "PartialEq",
    validation = crate::rules::NAME,
    doc = "One git repository of Python functions, served to MCP clients.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Tools","type":"integer","jsonPath":".status.tools"}"#,
    printcolumn = r#"{"name":"Errors","type":"integer","jsonPath":".status.errorsTotal"}"#,
    printcolumn = r#"{"name":"Revision","type":"string","jsonPath":".status.revision.serving"}"#,
    printcolumn = r#"{"name":"Replicas","type":"string","jsonPath":".status.replicas"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct McpGroupSpec {
    /// Where the code comes from.
    pub source: SourceSpec,
    /// The keys that callers show. Without it a key is made and kept in the Secret
    /// `<group>-mcp-keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeysSpec>,
    /// Who may use which tools, resources and prompts at the gateway. Without it whoever has a key may
    /// use everything, and nobody else gets in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    /// Secrets whose keys the code can refer to as `{{$<group>.<KEY>}}`; each key becomes the
    /// variable `RAMEN_SECRET_<GROUP>__<KEY>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), transform = crate::rules::by_name)]
    pub secrets: Vec<LocalRef>,
    /// Who may reach the group, and what its code may reach.
    pub network: NetworkSpec,
    /// The zones that the group runs in. Without any there is one zone, `default`, with one replica.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = crate::rules::by_name)]
    pub zones: Vec<ZoneSpec>,
    /// How the workers run.
    #[serde(default)]
    pub worker: WorkerSpec,
    /// How a new revision goes into service.
    #[serde(default)]
    pub rollout: RolloutSpec,
    /// How many revisions behind the serving one are kept ready, so that a way back needs no deploy:
    /// 0 to 10, 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub history: Option<u32>,
    /// Other MCP servers, offered by the gateway beside the group's own tools. One that is down costs its own tools and
    /// nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = crate::rules::by_name)]
    pub upstreams: Vec<UpstreamSpec>,
}

/// The keys that callers show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeysSpec {
    /// A Secret of which every key holds one or more caller keys, one a line. Several are valid at
    /// once; changes count without a restart; an empty Secret lets nobody in.
    pub secret_ref: LocalRef,
}
