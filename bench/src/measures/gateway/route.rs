//! From a change of an `EndpointSlice` to the first answer of the pod that it names.

use std::time::Instant;

use anyhow::ensure;

use super::crowd::{Stub, is_served, name, served};
use crate::api_server::ApiServer;
use crate::lab::Lab;
use crate::report::Findings;
use crate::servers::gateway::Gateway;
use crate::servers::random_key;

/// The groups have their pods one after the other; a call to one that has none waits for it.
pub(super) async fn slices(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let count = if lab.quick { 100 } else { 1000 };
    let changed = lab.times(20);
    let stub = Stub::start().await?;
    let folder = lab.folder("route")?;
    let (mut groups, key) = (stub.groups(count), random_key("rmk_")?);
    for group in &mut groups[..changed] {
        group.workers.clear();
    }
    let server = ApiServer::start(&groups, &key).await?;
    let gateway = Gateway::of_cluster(lab, &folder, &server, &key).await?;
    served(&gateway, count).await?;
    let mut rounds = Vec::new();
    for (n, group) in groups[..changed].iter_mut().enumerate() {
        group.workers.push(stub.worker(n));
        let begin = Instant::now();
        server.move_to(group);
        let answered = is_served(&gateway, &name(n)).await?;
        rounds.push(begin.elapsed().as_secs_f64() * 1e3);
        ensure!(answered, "the group has no worker");
    }
    let note = format!(
        "an EndpointSlice gets its first pod, one of {count} groups; the first answer of that pod"
    );
    findings.add("route_ms", rounds, note);
    Ok(())
}
