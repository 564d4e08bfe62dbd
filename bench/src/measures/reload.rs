//! Reloads: under load, and very many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use ramen_proto::v1::DesiredState;

use super::throughput::calculator;
use crate::grpc::tool_call;
use crate::lab::{Lab, answer};
use crate::load::paced;
use crate::processes::{entries, fds, hosts, rss_mib};
use crate::report::Findings;
use crate::servers::{Worker, deploy, desired};

const RATE: u32 = 500;

/// A worker that serves the first of two revisions of one group.
async fn two_revisions(lab: &Lab, name: &str) -> anyhow::Result<(Worker, [DesiredState; 2])> {
    let folder = lab.folder(name)?;
    let repo = lab.group(&format!("{name}-repo"))?;
    let first = deploy(lab, &repo, &folder).await?;
    answer(&repo, 2)?;
    let second = deploy(lab, &repo, &folder).await?;
    ensure!(
        first["code"] != second["code"],
        "both revisions have the same code layer"
    );
    let worker = Worker::start(lab, &folder, &first, &[]).await?;
    Ok((worker, [desired(&first), desired(&second)]))
}

pub(super) async fn under_load(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let (worker, revisions) = two_revisions(lab, "reload").await?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn({
        let (client, stop) = (worker.client().await?, stop.clone());
        async move { paced(&client, RATE, stop, &calculator(), "42").await }
    });
    let mut admin = worker.admin().await?;
    let mut client = worker.client().await?;
    let mut seconds = Vec::new();
    for index in 1..=lab.times(20) {
        let started = Instant::now();
        admin.reload(revisions[index % 2].clone()).await?;
        seconds.push(started.elapsed().as_secs_f64());
        let version = format!("version {}.", index % 2 + 1);
        client
            .tool("answer", &serde_json::json!({}), &version)
            .await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let outcome = load.await??;
    let note = format!(
        "{} calls at {:.0}/s (asked: {RATE}), p99 {:.1} ms; a reload takes {:.0} ms{}",
        outcome.calls,
        outcome.per_second(),
        outcome.quantile_us(0.99) / 1e3,
        crate::stats::median(&seconds) * 1e3,
        outcome
            .first_failure
            .as_ref()
            .map(|f| format!("; first failure: {f}"))
            .unwrap_or_default(),
    );
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    findings.add("reload_failed", vec![outcome.failed as f64], note);
    worker.stop().await
}

pub(super) async fn growth(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let (worker, revisions) = two_revisions(lab, "growth").await?;
    let mut admin = worker.admin().await?;
    let mut client = worker.client().await?;
    // Both revisions have served once and calls have been made: what a worker needs at all is not growth.
    for revision in [&revisions[1], &revisions[0]] {
        admin.reload(revision.clone()).await?;
        for _ in 0..1000 {
            client
                .call(tool_call("answer", &serde_json::json!({})))
                .await?;
        }
    }
    let before = settled(&worker).await?;
    let count = lab.times(500);
    for index in 1..=count {
        admin.reload(revisions[index % 2].clone()).await?;
        client
            .tool(
                "answer",
                &serde_json::json!({}),
                &format!("version {}.", index % 2 + 1),
            )
            .await?;
    }
    if count % 2 == 1 {
        admin.reload(revisions[0].clone()).await?;
    }
    let after = settled(&worker).await?;
    worker.stop().await?;
    // The goal is of both: a worker that leaves something behind has no growth to tell.
    let left = left_behind(&before, &after);
    ensure!(
        left.is_empty(),
        "left behind after {count} reloads: {}",
        left.join(", ")
    );
    let growth = (after.rss - before.rss) / before.rss * 100.0;
    let note = format!(
        "{count} reloads: {:.2} -> {:.2} MiB; nothing left behind",
        before.rss, after.rss
    );
    findings.add("reload_rss_pct", vec![growth], note);
    Ok(())
}

/// What there is more of than before.
fn left_behind(before: &Footprint, after: &Footprint) -> Vec<String> {
    [
        ("processes", before.hosts, after.hosts),
        ("open files", before.fds, after.fds),
        ("temporary files", before.temporary, after.temporary),
        ("unpacked layers", before.cache, after.cache),
    ]
    .into_iter()
    .filter(|(_, old, new)| new > old)
    .map(|(what, old, new)| format!("{what} {old} -> {new}"))
    .collect()
}

struct Footprint {
    rss: f64,
    hosts: usize,
    fds: usize,
    temporary: usize,
    cache: usize,
}

/// The worker's footprint once its drained generations are gone: when two looks in a row see the same processes.
async fn settled(worker: &Worker) -> anyhow::Result<Footprint> {
    let started = Instant::now();
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = hosts(worker.pid).len();
        if now == last || started.elapsed() > Duration::from_mins(1) {
            return Ok(Footprint {
                rss: rss_mib(worker.pid)?,
                hosts: now,
                fds: fds(worker.pid)?,
                temporary: entries(&worker.folder.join("tmp")).len(),
                cache: entries(&worker.folder.join("cache")).len(),
            });
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_there_is_more_of_is_left_behind() {
        let footprint = |hosts, fds, temporary, cache| Footprint {
            rss: 10.0,
            hosts,
            fds,
            temporary,
            cache,
        };
        let before = footprint(2, 30, 1, 2);
        assert!(left_behind(&before, &footprint(2, 29, 1, 2)).is_empty());
        assert_eq!(
            left_behind(&before, &footprint(3, 31, 2, 3)),
            [
                "processes 2 -> 3",
                "open files 30 -> 31",
                "temporary files 1 -> 2",
                "unpacked layers 2 -> 3"
            ]
        );
    }
}
