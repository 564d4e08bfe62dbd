//! Our gateway and worker against servers and a gateway in Python, all over Streamable HTTP.

use anyhow::ensure;

use crate::lab::Lab;
use crate::measures::contest::{Contestant, rounds, run as contest, table};
use crate::measures::throughput::{PEERS_START, calculator, calculator_named};
use crate::report::Findings;
use crate::servers::contextforge::ContextForge;
use crate::servers::gateway::{Gateway, Group};
use crate::servers::{Server, Worker, deploy};

const GROUP: &str = "bench";

/// A worker of the calculator with a gateway in front.
struct Ours {
    worker: Worker,
    gateway: Gateway,
}

impl Ours {
    async fn start(lab: &Lab, name: &str) -> anyhow::Result<Self> {
        let folder = lab.folder(name)?;
        let report = deploy(lab, &lab.group(&format!("{name}-repo"))?, &folder).await?;
        let worker = Worker::start(lab, &folder, &report, &[]).await?;
        let group = Group {
            name: GROUP.to_owned(),
            worker_key: worker.key.clone(),
            workers: vec![worker.address.clone()],
        };
        let folder = lab.folder(&format!("{name}-gateway"))?;
        let gateway = Gateway::start(lab, &folder, &[group], &[]).await?;
        Ok(Self { worker, gateway })
    }

    fn contestant(&self) -> Contestant {
        let pids = [self.gateway.pid, self.worker.pid];
        Contestant::new("ramen", &pids, self.gateway.target(GROUP), calculator())
    }
}

pub(super) async fn servers(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let ours = Ours::start(lab, "servers").await?;
    let worker = &ours.worker;
    let mut contestants = vec![
        ours.contestant(),
        Contestant::new("worker alone", &[worker.pid], worker.target(), calculator()),
    ];
    let mut peers = Vec::new();
    for (name, script) in [("mcp sdk", "mcp_sdk.py"), ("fastmcp", "fastmcp_server.py")] {
        let server = Server::http_peer(lab, script).await?;
        let target = server.target.clone();
        contestants.push(Contestant::new(name, &[server.pid], target, calculator()));
        peers.push(server);
    }
    tokio::time::sleep(PEERS_START).await;
    contest(lab, &mut contestants).await?;
    for (id, other) in [("x_sdk", "mcp sdk"), ("x_fastmcp", "fastmcp")] {
        let ratios = rounds(&contestants, "ramen", other, |ours, theirs| {
            ours.many / theirs.many
        });
        findings.add(id, ratios, "64 in flight, Streamable HTTP");
    }
    let added = rounds(&contestants, "ramen", "worker alone", |with, without| {
        (with.one_p50 - without.one_p50) / 1e3
    });
    findings.add("added_p50_ms", added, "one in flight");
    findings.tables.push(table(&contestants));
    ours.worker.stop().await
}

pub(super) async fn contextforge(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let ours = Ours::start(lab, "gateways").await?;
    let upstream = Server::http_peer(lab, "mcp_sdk.py").await?;
    tokio::time::sleep(PEERS_START).await;
    let peer = ContextForge::start(lab, &upstream.target).await?;
    let theirs = Contestant::new(
        "contextforge",
        &[peer.server.pid, upstream.pid],
        peer.server.target.clone(),
        calculator_named(&peer.tool),
    )
    // Under 64 calls at once some run into its own time limits.
    .forgiven(0.1);
    let mut contestants = vec![ours.contestant(), theirs];
    contest(lab, &mut contestants).await?;
    let ratios = rounds(&contestants, "ramen", "contextforge", |ours, theirs| {
        ours.many / theirs.many
    });
    ensure!(!ratios.is_empty(), "no round was measured");
    let note = format!(
        "64 in flight; ContextForge with {}, in front of the mcp SDK's server",
        peer.database
    );
    findings.add("x_contextforge", ratios, note);
    findings.tables.push(table(&contestants));
    ours.worker.stop().await
}
