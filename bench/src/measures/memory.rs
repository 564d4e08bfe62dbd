//! Memory of an idle worker: nothing called yet, everything loaded.

use std::time::Duration;

use anyhow::ensure;

use crate::lab::Lab;
use crate::processes::{hosts, pss_mib, rss_mib};
use crate::report::Findings;
use crate::servers::{Worker, deploy};

pub(super) async fn run(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = lab.folder("memory")?;
    let report = deploy(lab, &lab.group("memory-repo")?, &folder).await?;
    let (mut front, mut each) = (Vec::new(), Vec::new());
    for _ in 0..lab.times(3) {
        let worker = Worker::start(lab, &folder, &report, &[]).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        front.push(rss_mib(worker.pid)?);
        let found = hosts(worker.pid);
        ensure!(!found.is_empty(), "the worker has no host process");
        for host in found {
            each.push(pss_mib(host)?);
        }
        worker.stop().await?;
    }
    findings.add("front_mib", front, "");
    findings.add("host_mib", each, "");
    Ok(())
}
