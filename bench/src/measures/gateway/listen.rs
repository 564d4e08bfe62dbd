//! Ten thousand listeners that hear nothing, each with a connection of its own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::crowd::{Stub, name};
use crate::lab::Lab;
use crate::processes::{fds, rss_mib};
use crate::report::Findings;
use crate::servers::gateway::{Gateway, path};
use crate::stats::quantile;

const GROUPS: usize = 10;
/// Streams that open at once.
const OPENERS: usize = 64;
/// Longer than the pause between two signs of life on a stream, so that a wave of them is in it.
const WATCH: Duration = Duration::from_secs(16);
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);

const BODY: &str = r#"{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

pub(super) async fn idle(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let room = descriptors()?;
    let wanted = if lab.quick { 500 } else { 10_000 };
    ensure!(
        room > wanted + 100,
        "{wanted} streams need as many file descriptors here and in the gateway; the limit is {room} (ulimit -Hn)"
    );
    let stub = Stub::start().await?;
    let folder = lab.folder("listen")?;
    let streams = wanted.to_string();
    let env = [("RAMEN_CALLER_STREAMS", streams.as_str())];
    let gateway = Gateway::start(lab, &folder, &stub.groups(GROUPS), &env).await?;
    let before = rss_mib(gateway.pid)?;
    let open = open(&gateway, wanted).await?;
    ensure!(fds(gateway.pid)? >= wanted, "streams ended");
    let mut latencies = health(&gateway, if lab.quick { lab.load } else { WATCH }).await?;
    let after = rss_mib(gateway.pid)?;
    ensure!(fds(gateway.pid)? >= open.len(), "streams ended");
    latencies.sort_unstable();
    let note = format!("{wanted} streams on as many connections; without them {before:.0} MiB");
    findings.add("listen_mib", vec![after], note);
    let note = format!("{} looks beside them", latencies.len());
    let tail = quantile(&latencies, 0.99) / 1e3;
    findings.add("listen_health_p99_ms", vec![tail], note);
    Ok(())
}

/// As many descriptors as this process may have.
fn descriptors() -> anyhow::Result<usize> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of descriptors")?;
    Ok(maximum.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)))
}

async fn open(gateway: &Gateway, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    let mut openers = JoinSet::new();
    for first in 0..OPENERS {
        let (address, key) = (gateway.address.clone(), gateway.key.clone());
        openers.spawn(async move {
            let mut open = Vec::new();
            for n in (first..count).step_by(OPENERS) {
                open.push(listen(&address, &key, n % GROUPS).await?);
            }
            anyhow::Ok(open)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(open) = openers.join_next().await {
        all.extend(open??);
    }
    Ok(all)
}

/// One stream; it is open when its first event is there.
async fn listen(address: &str, key: &str, group: usize) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\ncontent-length: {}\r\n\r\n{BODY}",
        path(&name(group)),
        BODY.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    let acknowledged = async {
        loop {
            let mut piece = [0; 2048];
            let read = stream.read(&mut piece).await?;
            answer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&answer);
            if text.contains("subscriptions/acknowledged") {
                return Ok(());
            }
            if read == 0 || !"HTTP/1.1 200".starts_with(&text[..text.len().min(12)]) {
                bail!("a stream does not open: {text}");
            }
        }
    };
    tokio::time::timeout(PATIENCE, acknowledged)
        .await
        .context("a stream does not open")??;
    Ok(stream)
}

/// The times of looks at `/healthz`, one after the other on one connection, in microseconds.
async fn health(gateway: &Gateway, time: Duration) -> anyhow::Result<Vec<u32>> {
    let mut stream = TcpStream::connect(&gateway.address).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address);
    let (begin, mut latencies) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let started = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            ensure!(stream.read_buf(&mut answer).await? > 0, "health is cut off");
        }
        latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        tokio::time::sleep(PAUSE).await;
    }
    Ok(latencies)
}
