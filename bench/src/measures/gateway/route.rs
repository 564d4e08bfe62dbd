//! From a change of where groups are to the first call that goes there.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::crowd::{Stub, name};
use crate::http::{Connection, request};
use crate::lab::Lab;
use crate::report::Findings;
use crate::servers::gateway::{Gateway, Group, path};

const LIST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const PATIENCE: Duration = Duration::from_secs(30);

/// A group is added to the file of groups; beside it are the many that are there already.
pub(super) async fn file(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let count = if lab.quick { 100 } else { 1000 };
    let stub = Stub::start().await?;
    let folder = lab.folder("route")?;
    let mut groups = stub.groups(count);
    let gateway = Gateway::start(lab, &folder, &groups, &[]).await?;
    let mut rounds = Vec::new();
    for n in count..count + lab.times(20) {
        groups.push(Group {
            name: name(n),
            worker_key: format!("rmk_worker_{n}"),
            workers: vec![stub.worker(n)],
        });
        let request = request(
            &gateway.address,
            &path(&name(n)),
            Some(&gateway.key),
            None,
            LIST,
        );
        ensure!(
            !is_served(&gateway, &request).await?,
            "served before it is there"
        );
        gateway.serve(&groups)?;
        let changed = Instant::now();
        while !is_served(&gateway, &request).await? {
            ensure!(
                changed.elapsed() < PATIENCE,
                "the new group is never served"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        rounds.push(changed.elapsed().as_secs_f64() * 1e3);
    }
    let note = format!("a group more in the file of {count}");
    findings.add("route_ms", rounds, note);
    Ok(())
}

async fn is_served(gateway: &Gateway, request: &[u8]) -> anyhow::Result<bool> {
    let mut connection = Connection::connect(&gateway.address)
        .await
        .context("cannot connect to the gateway")?;
    // A group that is not there is refused.
    Ok(connection.send(request).await.is_ok())
}
