//! What the operator leaves for gateways: one Secret for each group, in the gateways' own namespace. A gateway reads
//! these and no other Secret. They are part of the API between the two.

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
/// Entry: SHA-256 of each key of a caller in hex, one a line.
pub const CALLERS: &str = "callers";
/// Entry: the gateway's own key at the workers.
pub const WORKER_KEY: &str = "worker-key";
/// Name of the port of a group's Services that gateways call.
pub const PORT: &str = "grpc";

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
