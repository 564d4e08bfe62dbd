//! `zones`, `worker` and `rollout`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LocalRef;

/// A zone: a set of equal pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::zone)]
pub struct ZoneSpec {
    /// Its name, part of the names of its objects: 1 to 16 small letters, digits and `-`.
    #[schemars(length(min = 1, max = 16))]
    pub name: String,
    /// How many pods: 0 to 100, 1 when absent. Not together with `autoscaling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: Option<u32>,
    /// Let the load decide how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Labels of the nodes to run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 253}))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints to tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// CPU, memory and ephemeral storage of the worker container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// How the load decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::autoscaling)]
pub struct Autoscaling {
    /// At least: 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub min_replicas: u32,
    /// At most: 1 to 100, not below `minReplicas`.
    #[schemars(range(min = 1, max = 100))]
    pub max_replicas: u32,
    /// CPU use to aim at, in per cent of the request: 10 to 100, 70 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 100))]
    pub target_cpu_percent: Option<u32>,
}

/// An environment variable of the worker container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::variable)]
pub struct EnvVar {
    /// Its name; not `RAMEN_…`, which other fields set, and not `LD_…`.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Its value. No secrets: use `secrets`.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub value: String,
}

/// How the workers run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::worker)]
pub struct WorkerSpec {
    /// The image; without it the operator's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<LocalRef>,
    /// The Python version, `3.11` to `3.14`; without it the newest that the image (or the machine)
    /// has a host for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 8))]
    pub python: Option<String>,
    /// Host processes, each with one Python: 1 to 64. Without it one for each CPU, at least 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub hosts: Option<u32>,
    /// Threads of each host, the calls that it runs at once: 1 to 256, 8 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub threads: Option<u32>,
    /// Calls under way in one pod before more are refused: 1 to 65536, 256 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_inflight: Option<u32>,
    /// How long a call may take: 1 second to 1 hour, `120s` when absent. A tool's own
    /// `timeout_seconds` comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub call_timeout: Option<String>,
    /// Variables for the code, where they win over `mcp/env.yaml`, and for the installer (`PIP_INDEX_URL`, …). The code does not
    /// see those of the installer alone, `PIP_…` and `UV_…`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = crate::rules::by_name)]
    pub env: Vec<EnvVar>,
    /// Let the deploy step build packages that have no wheel; that runs their code.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_sdist: bool,
    /// How long resolving, installing and importing may take together: 10 seconds to 2 hours, `10m`
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub deploy_timeout: Option<String>,
    /// Labels to add to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 253}))]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations to add to the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub pod_annotations: BTreeMap<String, String>,
    /// The pods' priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// The pods' runtime class, such as gVisor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
}

/// How a new revision goes into service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = crate::rules::rollout)]
pub struct RolloutSpec {
    /// One pod first, with a smoke test, then the others.
    pub canary: bool,
    /// How long the pods have to load a revision: 10 seconds to 1 hour, `5m` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub timeout: Option<String>,
    /// Go back to the revision before when the new one does not come up.
    pub auto_rollback: bool,
}

impl Default for RolloutSpec {
    fn default() -> Self {
        Self {
            canary: true,
            timeout: None,
            auto_rollback: true,
        }
    }
}
