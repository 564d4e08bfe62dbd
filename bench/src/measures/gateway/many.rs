//! A thousand groups behind one gateway: how soon their lists come, and what they weigh.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;

use super::crowd::{LIST, Stub, name, served};
use crate::api_server::ApiServer;
use crate::http::{Connection, request};
use crate::lab::Lab;
use crate::processes::rss_mib;
use crate::report::Findings;
use crate::servers::gateway::{Gateway, path};
use crate::servers::random_key;
use crate::stats::quantile;
use crate::stub::TOOLS;

/// Clients that list, one group after the other.
const CLIENTS: usize = 4;

pub(super) async fn lists(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let count = if lab.quick { 100 } else { 1000 };
    let stub = Stub::start().await?;
    let folder = lab.folder("many")?;
    let (groups, key) = (stub.groups(count), random_key("rmk_")?);
    let server = ApiServer::start(&groups, &key).await?;
    let gateway = Gateway::of_cluster(lab, &folder, &server, &key).await?;
    served(&gateway, count).await?;
    let requests: Arc<Vec<Vec<u8>>> = Arc::new(
        (0..count)
            .map(|n| {
                request(
                    &gateway.address,
                    &path(&name(n)),
                    Some(&gateway.key),
                    None,
                    LIST,
                )
            })
            .collect(),
    );
    // Every group is listed once, so that all connections to workers are there.
    let turn = Arc::new(AtomicUsize::new(0));
    pass(&gateway, &requests, &turn, Until::Calls(count)).await?;
    let (mut tails, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..lab.rounds {
        let mut latencies = pass(&gateway, &requests, &turn, Until::Time(lab.load)).await?;
        latencies.sort_unstable();
        tails.push(quantile(&latencies, 0.99) / 1e3);
        sizes.push(rss_mib(gateway.pid)?);
    }
    let note =
        format!("{count} groups of {TOOLS} tools, {CLIENTS} clients as fast as answers come");
    findings.add("list_p99_ms", tails, note);
    let note = format!("{count} groups, each with an open connection to its worker");
    findings.add("rss_mib", sizes, note);
    Ok(())
}

#[derive(Clone, Copy)]
enum Until {
    Calls(usize),
    Time(Duration),
}

/// Lists group after group; the latencies in microseconds.
async fn pass(
    gateway: &Gateway,
    requests: &Arc<Vec<Vec<u8>>>,
    turn: &Arc<AtomicUsize>,
    until: Until,
) -> anyhow::Result<Vec<u32>> {
    let (begin, first) = (Instant::now(), turn.load(Ordering::Relaxed));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut connection = Connection::connect(&gateway.address).await?;
        let (requests, turn) = (Arc::clone(requests), Arc::clone(turn));
        clients.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let n = turn.fetch_add(1, Ordering::Relaxed);
                let done = match until {
                    Until::Calls(calls) => n - first >= calls,
                    Until::Time(time) => begin.elapsed() >= time,
                };
                if done {
                    return anyhow::Ok(latencies);
                }
                let started = Instant::now();
                let answer = connection.send(&requests[n % requests.len()]).await;
                let answer = answer.with_context(|| format!("the list of group {n}"))?;
                latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
                let last = format!("\"tool_{}\"", TOOLS - 1);
                let whole = answer
                    .windows(last.len())
                    .any(|part| part == last.as_bytes());
                ensure!(whole, "the list of group {n} is not whole");
            }
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = clients.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}
