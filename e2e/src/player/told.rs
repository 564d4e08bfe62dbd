//! What is told the API server of a pod, in the words of a kubelet.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// How a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its container runs; ready or not; restarted so often.
    Running { ready: bool, restarts: u32 },
    /// It ended for good.
    Ended { code: i32 },
    /// It was killed for its memory, for good.
    OutOfMemory,
    /// The kubelet ended it for what it used, and says this.
    Evicted(&'static str),
}

/// It has run to its end.
pub(super) fn ended(pod: &Pod) -> bool {
    crate::wait::finished(Some(pod))
}

/// Between two tries to reach the API server.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks the API server as a kubelet does: again and again while it is away. Ends with the player at the latest.
pub(super) async fn patiently<T, F>(ask: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    loop {
        match ask().await {
            Err(kube::Error::Api(status)) if status.code < 500 => {
                return Err(kube::Error::Api(status));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
            done => return done,
        }
    }
}

/// Tells it. A pod that is gone is told nothing.
pub(super) async fn tell(
    client: &Client,
    pod: &Pod,
    address: std::net::Ipv4Addr,
    state: State,
) -> anyhow::Result<()> {
    let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let patch = Patch::Merge(status(pod, address, state));
    let (name, params) = (pod.name_any(), PatchParams::default());
    match patiently(|| api.patch_status(&name, &params, &patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error).context("telling the status of a pod"),
    }
}

fn status(pod: &Pod, address: std::net::Ipv4Addr, state: State) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let killed = |reason: &str| json!({ "terminated": { "exitCode": 137, "reason": reason, "startedAt": now, "finishedAt": now } });
    let (phase, ready, restarts, container) = match state {
        State::Running { ready, restarts } => (
            "Running",
            ready,
            restarts,
            json!({ "running": { "startedAt": now } }),
        ),
        State::Ended { code } => (
            if code == 0 { "Succeeded" } else { "Failed" },
            false,
            0,
            json!({ "terminated": {
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                "startedAt": now, "finishedAt": now,
            }}),
        ),
        State::OutOfMemory => ("Failed", false, 0, killed("OOMKilled")),
        State::Evicted(_) => ("Failed", false, 0, killed("Error")),
    };
    let evicted = match state {
        State::Evicted(why) => Some(why),
        _ => None,
    };
    let spec = pod.spec.as_ref();
    let first = spec.and_then(|spec| spec.containers.first());
    let condition = |kind: &str, is: bool| json!({ "type": kind, "status": if is { "True" } else { "False" }, "lastTransitionTime": now });
    json!({
        // Of this very pod: one of the same name would have another uid.
        "metadata": { "uid": pod.uid() },
        "status": {
            "phase": phase,
            "reason": evicted.map(|_| "Evicted"),
            "message": evicted,
            "hostIP": "10.0.0.1",
            "podIP": address.to_string(),
            "podIPs": [{ "ip": address.to_string() }],
            "startTime": now,
            "conditions": [
                condition("PodScheduled", true),
                condition("Initialized", true),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
            "containerStatuses": [{
                "name": first.map(|container| container.name.as_str()).unwrap_or_default(),
                "image": first.and_then(|container| container.image.as_deref()).unwrap_or_default(),
                "imageID": "", "ready": ready, "restartCount": restarts, "started": ready,
                "state": container,
            }],
        },
    })
}
