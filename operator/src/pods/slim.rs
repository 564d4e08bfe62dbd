//! Pods and Jobs as far as they are looked at: whatever else the API server sends is dropped while it is
//! read, so that thousands of them cost little.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A pod.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimPod {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: SlimSpec,
    pub(super) status: SlimStatus,
}

/// A Job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlimJob {
    pub(super) metadata: ObjectMeta,
    pub(super) status: SlimJobStatus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SlimSpec {
    pub(super) containers: Vec<SlimContainer>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SlimContainer {
    pub(super) image: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimStatus {
    pub(super) phase: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) conditions: Vec<SlimCondition>,
    pub(super) container_statuses: Vec<SlimContainerStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimJobStatus {
    pub(super) conditions: Vec<SlimCondition>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimContainerStatus {
    pub(super) restart_count: u32,
    pub(super) state: SlimState,
    pub(super) last_state: SlimState,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SlimState {
    pub(super) waiting: Option<SlimWaiting>,
    pub(super) terminated: Option<SlimTerminated>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SlimWaiting {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimTerminated {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) exit_code: i32,
    pub(super) finished_at: Option<Time>,
}

macro_rules! as_the_kind {
    ($($slim:ident is $kind:ident),* $(,)?) => {$(
        impl Resource for $slim {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                $kind::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                $kind::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                $kind::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )*};
}

as_the_kind!(SlimPod is Pod, SlimJob is Job);

/// A label's value.
pub(super) fn label<'m>(
    labels: Option<&'m BTreeMap<String, String>>,
    name: &str,
) -> Option<&'m str> {
    labels?.get(name).map(String::as_str)
}

/// Seconds since 1970; 0 when it is not said.
pub(super) fn seconds(time: Option<&Time>) -> i64 {
    time.map_or(0, |time| time.0.as_second())
}
