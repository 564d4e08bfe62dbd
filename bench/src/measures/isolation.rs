//! What one tool does to the others: burning CPU, blocking every thread, losing its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::throughput::calculator;
use crate::lab::Lab;
use crate::load::closed;
use crate::processes::hosts;
use crate::report::Findings;
use crate::servers::{Worker, deploy, signal};
use crate::stats::{median, quantile};

/// Callers of the calculator beside the one that burns CPU.
const CALLERS: usize = 4;

pub(super) async fn beside_spin(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = lab.folder("spin")?;
    let report = deploy(lab, &lab.group("spin-repo")?, &folder).await?;
    let worker = Worker::start(lab, &folder, &report, &[]).await?;
    let (target, body) = (worker.target(), calculator());
    closed(
        &target,
        CALLERS,
        lab.load.min(Duration::from_millis(300)),
        &body,
        "42",
    )
    .await?
    .good("calculator")?;
    let (mut ratios, mut alone_rates, mut tail) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lab.rounds {
        let alone = closed(&target, CALLERS, lab.load, &body, "42")
            .await?
            .good("calculator")?;
        let stop = Arc::new(AtomicBool::new(false));
        let spinner = tokio::spawn({
            let (mut client, stop) = (worker.client().await?, stop.clone());
            async move {
                let mut calls = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    client
                        .tool("spin", &json!({"milliseconds": 50}), "spun")
                        .await?;
                    calls += 1;
                }
                anyhow::Ok(calls)
            }
        });
        let beside = closed(&target, CALLERS, lab.load, &body, "42")
            .await?
            .good("calculator beside spin")?;
        stop.store(true, Ordering::Relaxed);
        ensure!(spinner.await?? > 0, "the spinning tool was never answered");
        ratios.push(beside.per_second() / alone.per_second());
        alone_rates.push(alone.per_second());
        tail.push(beside.quantile_us(0.99) / 1e3);
    }
    let note = format!(
        "alone {:.0} calls/s; beside, p99 {:.2} ms",
        median(&alone_rates),
        median(&tail)
    );
    findings.add("beside_spin", ratios, note);
    worker.stop().await
}

pub(super) async fn blocked(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    const THREADS: usize = 8;
    let folder = lab.folder("blocked")?;
    let report = deploy(lab, &lab.group("blocked-repo")?, &folder).await?;
    let worker = Worker::start(lab, &folder, &report, &[("RAMEN_HOST_THREADS", "8")]).await?;
    let all = hosts(worker.pid).len() * THREADS;
    let mut blocked = tokio::task::JoinSet::new();
    let client = worker.client().await?;
    for _ in 0..all {
        let mut client = client.clone();
        blocked.spawn(async move {
            client
                .tool("pause", &json!({"milliseconds": 600_000}), "rested")
                .await
        });
    }
    let mut admin = worker.admin().await?;
    let started = Instant::now();
    while (admin.status().await?.in_flight as usize) < all {
        ensure!(
            started.elapsed() < Duration::from_secs(20),
            "the blocking calls do not start"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The proof that no thread is free: a call that takes microseconds is not answered.
    let mut probe = worker.client().await?;
    if tokio::time::timeout(Duration::from_millis(500), probe.call(calculator()))
        .await
        .is_ok()
    {
        bail!("a call was answered although {all} calls should block every host thread");
    }
    let mut health = HealthClient::new(worker.client().await?.channel);
    let mut lister = worker.client().await?;
    let list = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let (mut rounds, mut p99s) = (Vec::new(), (Vec::new(), Vec::new()));
    for _ in 0..lab.rounds {
        let (mut healths, mut lists) = (Vec::new(), Vec::new());
        for _ in 0..lab.times(500) {
            let started = Instant::now();
            health
                .check(HealthCheckRequest {
                    service: String::new(),
                })
                .await
                .context("health")?;
            healths.push(micros(started));
            let started = Instant::now();
            lister.call(list.clone()).await.context("tools/list")?;
            lists.push(micros(started));
        }
        healths.sort_unstable();
        lists.sort_unstable();
        let (a, b) = (quantile(&healths, 0.99) / 1e3, quantile(&lists, 0.99) / 1e3);
        rounds.push(a.max(b));
        p99s.0.push(a);
        p99s.1.push(b);
    }
    let note = format!(
        "{all} threads blocked; p99 of health {:.2} ms, of tools/list {:.2} ms; the value is the larger",
        median(&p99s.0),
        median(&p99s.1)
    );
    findings.add("blocked_p99_ms", rounds, note);
    blocked.shutdown().await;
    drop(worker);
    Ok(())
}

fn micros(started: Instant) -> u32 {
    u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// With one host alone, so that no other one can answer in its place.
pub(super) async fn respawn(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = lab.folder("respawn")?;
    let report = deploy(lab, &lab.group("respawn-repo")?, &folder).await?;
    let worker = Worker::start(lab, &folder, &report, &[("RAMEN_HOSTS", "1")]).await?;
    let mut client = worker.client().await?;
    let arguments = json!({"var1": 6, "var2": 7, "func": "multiply"});
    let mut rounds = Vec::new();
    for _ in 0..lab.times(10) {
        client
            .tool("demo_calculator_tool", &arguments, "42")
            .await?;
        // Long enough apart that one death is not taken for a crash loop.
        tokio::time::sleep(Duration::from_secs(if lab.quick { 1 } else { 3 })).await;
        let [host] = hosts(worker.pid)[..] else {
            bail!("expected one host process")
        };
        let started = Instant::now();
        signal(host, rustix::process::Signal::KILL)?;
        // An answer of the host before it is dead does not count.
        while hosts(worker.pid).contains(&host) {
            tokio::task::yield_now().await;
        }
        while client
            .tool("demo_calculator_tool", &arguments, "42")
            .await
            .is_err()
        {
            ensure!(
                started.elapsed() < Duration::from_secs(20),
                "no good answer after the host was killed"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        rounds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    findings.add("respawn_ms", rounds, "one host in all (RAMEN_HOSTS=1)");
    worker.stop().await
}
