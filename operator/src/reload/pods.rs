//! The pods of a group that can be asked: those with an address that are not on their way out.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

use super::push::Target;
use crate::group::GroupKey;
use crate::names;

/// Lists them, ready ones first.
pub(super) async fn find(
    client: kube::Client,
    group: &GroupKey,
    port: u16,
) -> Result<Vec<Target>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client, &group.namespace);
    let labels = format!(
        "{}={},{}={}",
        names::LABEL_GROUP,
        group.name,
        names::LABEL_COMPONENT,
        names::COMPONENT_WORKER
    );
    let listed = pods.list(&ListParams::default().labels(&labels)).await?;
    Ok(targets(&listed.items, port))
}

fn targets(pods: &[Pod], port: u16) -> Vec<Target> {
    let mut targets: Vec<Target> = pods.iter().filter_map(|pod| target(pod, port)).collect();
    targets.sort_by_key(|target| (!target.ready, target.name.clone()));
    targets
}

fn target(pod: &Pod, port: u16) -> Option<Target> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Running") {
        return None;
    }
    let ip: IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    let ready = status.conditions.iter().flatten();
    let ready = ready
        .filter(|condition| condition.type_ == "Ready")
        .any(|condition| condition.status == "True");
    Some(Target {
        name: pod.metadata.name.clone().unwrap_or_default(),
        address: SocketAddr::new(ip, port),
        ready,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_run_are_asked_and_ready_ones_first() {
        let pod = |name: &str, phase: &str, ip: Option<&str>, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "status": {
                    "phase": phase, "podIP": ip,
                    "conditions": [{"type": "Ready", "status": ready}],
                },
            }))
            .unwrap()
        };
        let mut leaving = pod("leaving", "Running", Some("10.0.0.9"), "True");
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let pods = [
            pod("a", "Running", Some("10.0.0.1"), "False"),
            pod("c", "Running", Some("fd00::3"), "True"),
            pod("b", "Running", Some("10.0.0.2"), "True"),
            pod("pending", "Pending", None, "False"),
            pod("ended", "Succeeded", Some("10.0.0.4"), "False"),
            pod("odd", "Running", Some("no address"), "True"),
            leaving,
        ];
        let found = targets(&pods, 50051);
        let names: Vec<_> = found.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(found[1].address.to_string(), "[fd00::3]:50051");
    }
}
