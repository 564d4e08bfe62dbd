//! The kind `McpGroup` (`ramen.dev/v1alpha1`): one git repository of Python functions, served to MCP
//! clients.
//!
//! Owns the types and the pure [`validate()`] from a spec as written to a [`ValidatedGroup`] of
//! newtypes; the operator and `ramen up` both start there. Must not know a client, async or I/O.

pub mod gateway;
pub mod labels;
mod names;
pub mod rules;
mod schema;
mod spec;
mod status;
pub mod validate;

pub use names::{API_GROUP, API_VERSION, KIND, MAX_GROUP_NAME, MAX_ZONE_NAME, secret_variables};
pub use schema::{UnknownField, crd, unknown_fields};
pub use spec::{
    AccessRule, AccessSpec, Autoscaling, ClaimSpec, EgressSpec, EnvVar, GitRef, KeysSpec, LocalRef,
    McpGroup, McpGroupSpec, NetworkSpec, RolloutSpec, SecretKeyRef, SourceSpec, UpstreamSpec,
    UpstreamValue, WorkerSpec, ZoneSpec,
};
pub use status::{
    DeployTimings, ErrorEntry, LastDeploy, McpGroupStatus, PackageStatus, RevisionStatus,
    ZoneStatus,
};
pub use validate::{
    Egress, GitUrl, GroupName, InnerPath, Interval, PythonVersion, Reach, RefSpec, Replicas,
    SecretName, Settings, SpecFault, Upstream, UpstreamName, UrlPolicy, ValidatedGroup, Zone,
    ZoneName, validate, validate_with,
};
