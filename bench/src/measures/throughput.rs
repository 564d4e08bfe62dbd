//! Calls per second and latency of our worker, its peers and the ceiling.

use std::time::Duration;

use bytes::Bytes;

use super::contest::{Contestant, rounds, run as contest, table};
use crate::grpc::tool_call;
use crate::lab::Lab;
use crate::report::Findings;
use crate::servers::{Server, Worker, deploy};

/// The HTTP peers accept connections before their application is up.
pub(super) const PEERS_START: Duration = Duration::from_secs(3);

pub(crate) fn calculator() -> Bytes {
    calculator_named("demo_calculator_tool")
}

/// The same by another name.
pub(super) fn calculator_named(tool: &str) -> Bytes {
    tool_call(
        tool,
        &serde_json::json!({"var1": 6, "var2": 7, "func": "multiply"}),
    )
}

pub(super) async fn run(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = lab.folder("throughput")?;
    let report = deploy(lab, &lab.group("throughput-repo")?, &folder).await?;
    let worker = Worker::start(lab, &folder, &report, &[]).await?;
    let null = Server::null().await?;
    let grpcio = Server::grpc_peer(lab, "grpcio_aio.py").await?;
    let sdk = Server::http_peer(lab, "mcp_sdk.py").await?;
    let fastmcp = Server::http_peer(lab, "fastmcp_server.py").await?;
    let one = |name, pid: u32, target| Contestant::new(name, &[pid], target, calculator());
    let mut contestants = vec![one("ramen", worker.pid, worker.target())];
    for (name, server) in [
        ("null", &null),
        ("grpcio aio", &grpcio),
        ("mcp sdk", &sdk),
        ("fastmcp", &fastmcp),
    ] {
        contestants.push(one(name, server.pid, server.target.clone()));
    }
    tokio::time::sleep(PEERS_START).await;
    contest(lab, &mut contestants).await?;
    for (id, other) in [
        ("x_grpcio", "grpcio aio"),
        ("x_sdk", "mcp sdk"),
        ("x_fastmcp", "fastmcp"),
        ("x_null", "null"),
    ] {
        let ratios = rounds(&contestants, "ramen", other, |ours, theirs| {
            ours.many / theirs.many
        });
        findings.add(id, ratios, "");
    }
    let latency = rounds(&contestants, "ramen", "null", |ours, theirs| {
        ours.one_p50 / theirs.one_p50
    });
    findings.add("p50_x_null", latency, "");
    findings.tables.push(table(&contestants));
    worker.stop().await
}
