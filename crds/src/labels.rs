//! Labels, annotations and conditions by which anybody finds the parts of a group: the operator writes them, `ramen status`
//! and people's own tools read them. They are part of the API.

/// On every child: the group.
pub const LABEL_GROUP: &str = "ramen.dev/group";
/// On pods: the zone.
pub const LABEL_ZONE: &str = "ramen.dev/zone";
/// On pods and jobs: `worker` or `deploy`.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// Component of worker pods.
pub const COMPONENT_WORKER: &str = "worker";
/// Component of deploy jobs.
pub const COMPONENT_DEPLOY: &str = "deploy";
/// On an `McpGroup`: any new value makes the operator look at the source, and try again what failed.
pub const REQUESTED_AT: &str = "ramen.dev/requested-at";
/// On an `McpGroup`: a new value makes the operator look at the source. Written by a replica that does not
/// hold the lease when a hook reaches it.
pub const HINTED_AT: &str = "ramen.dev/hinted-at";
/// Reason of the Event of an `McpGroup` that a hook made the operator look at.
pub const HOOK_RECEIVED: &str = "HookReceived";
/// On an `McpGroup`: any new value makes the operator throw away the callers' key that it made, and make another.
pub const ROTATE_KEYS_AT: &str = "ramen.dev/rotate-keys-at";
/// On an `McpGroup`: who changed it last over the operations of the gateway. The fingerprint of a key, never a key.
pub const CHANGED_BY: &str = "ramen.dev/changed-by";
/// On an `McpGroup`: when that was.
pub const CHANGED_AT: &str = "ramen.dev/changed-at";
/// On the Secret `<group>-mcp-keys`: the value of [`ROTATE_KEYS_AT`] that its key was made for.
pub const KEY_MADE_FOR: &str = "ramen.dev/key-made-for";

/// Types of conditions. The last four are always there; the first two only while they are true, as kstatus has it.
pub mod condition {
    /// Something new is under way.
    pub const RECONCILING: &str = "Reconciling";
    /// Nothing goes on before somebody changes something.
    pub const STALLED: &str = "Stalled";
    /// The wanted pods serve a revision.
    pub const READY: &str = "Ready";
    /// The source could be asked.
    pub const SOURCE_FETCHED: &str = "SourceFetched";
    /// The newest revision was deployed.
    pub const DEPLOYED: &str = "Deployed";
    /// All wanted pods answer.
    pub const WORKERS_AVAILABLE: &str = "WorkersAvailable";
}
