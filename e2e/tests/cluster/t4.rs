//! The whole of it, as a person has it: charts installed by helm, groups, pushes, calls, and policies that are enforced.

mod alone;
mod docs;
mod gateway;
mod hosts;
mod install;
mod network;
mod operators;
mod policy;
mod push;
mod rights;
mod roll;
mod secrets;
mod volume;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use ramen_e2e::{Namespace, tool};
use serde_json::json;

/// The tool `greet`: says which version it is, and to whom.
fn greeting(version: &str) -> [(String, String); 2] {
    let source = format!("def greet(name):\n    return f'{version} greets {{name}}'\n");
    tool("greet", &json!({ "name": { "type": "string" } }), &source)
}

/// Waits until it is so at a pod to which a Secret or `ConfigMap` has to come. The kubelet brings what has changed when it likes,
/// at most a minute or so later, and tells nobody: it does so at once for a pod whose annotations change, so each question
/// changes one.
async fn arrives(
    namespace: &Namespace,
    pod: &str,
    what: &str,
    ask: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let pods = namespace.api::<Pod>();
    let mut beat = tokio::time::interval(Duration::from_millis(200));
    for attempt in 0..300 {
        beat.tick().await;
        if ask().await? {
            return Ok(());
        }
        let nudge = json!({ "metadata": { "annotations": { "e2e/asked": attempt.to_string() } } });
        pods.patch(pod, &PatchParams::default(), &Patch::Merge(nudge))
            .await?;
    }
    anyhow::bail!("it does not come to {pod}: {what}")
}
