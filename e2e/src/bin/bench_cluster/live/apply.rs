//! A new group, from `kubectl apply` to `Ready`.

use std::time::SystemTime;

use ramen_bench::report::Findings;
use ramen_crds::McpGroup;
use ramen_e2e::{GitHost, Group, kubectl_with, tool};
use serde_json::json;

use super::Stage;
use crate::clock::seconds;

const ROUNDS: usize = 5;
/// As in the first example of the docs.
const REPLICAS: u32 = 2;

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let host = GitHost::http()?;
    let source = "def add(a, b):\n    return a + b\n";
    let integer = json!({ "type": "integer" });
    host.push(&tool("add", &json!({ "a": integer, "b": integer }), source))?;
    let mut taken = Vec::new();
    for n in 0..stage.rounds(ROUNDS) {
        let name = format!("new-{n}");
        let object = json!({
            "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
            "metadata": { "name": name, "namespace": stage.namespace.name },
            "spec": Group::spec(&host.url(), REPLICAS),
        });
        let group = Group {
            namespace: stage.namespace.clone(),
            name: name.clone(),
        };
        let began = SystemTime::now();
        kubectl_with(&["apply", "-f", "-"], &object.to_string())
            .await?
            .good()?;
        let ready = ramen_e2e::condition::<McpGroup>("Ready", "True");
        group.until(|group| ready(Some(group))).await?;
        taken.push(seconds(began, SystemTime::now()));
        group.remove().await?;
    }
    let worst = taken.iter().copied().fold(0.0, f64::max);
    findings.add_value(
        "apply_s",
        worst,
        taken,
        format!("the slowest of the groups, {REPLICAS} pods each, with the start of kubectl"),
    );
    Ok(())
}
