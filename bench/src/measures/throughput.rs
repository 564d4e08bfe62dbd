//! Calls per second and latency of our worker, its peers and the ceiling, in interleaved rounds.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;

use crate::grpc::tool_call;
use crate::lab::Lab;
use crate::load::{Target, closed};
use crate::processes::{cpu_seconds, pss_mib};
use crate::report::{Findings, short};
use crate::servers::{Server, Worker, deploy};
use crate::stats::median;

const IN_FLIGHT: usize = 64;
/// Every answer of every server holds this.
const WANTED: &str = "\"42";

struct Contestant {
    name: &'static str,
    pid: u32,
    target: Target,
    rounds: Vec<Round>,
}

struct Round {
    many: f64,
    many_p50: f64,
    many_p99: f64,
    cpu_us: f64,
    one: f64,
    one_p50: f64,
    one_p99: f64,
}

pub(crate) fn calculator() -> Bytes {
    tool_call(
        "demo_calculator_tool",
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
    let mut contestants = vec![Contestant {
        name: "ramen",
        pid: worker.pid,
        target: worker.target(),
        rounds: Vec::new(),
    }];
    for (name, server) in [
        ("null", &null),
        ("grpcio aio", &grpcio),
        ("mcp sdk", &sdk),
        ("fastmcp", &fastmcp),
    ] {
        contestants.push(Contestant {
            name,
            pid: server.pid,
            target: server.target.clone(),
            rounds: Vec::new(),
        });
    }
    let body = calculator();
    // The HTTP peers accept connections before their application is up.
    tokio::time::sleep(Duration::from_secs(3)).await;
    for round in 0..lab.rounds {
        let count = contestants.len();
        for index in 0..count {
            // Each round starts with another server, so that no place in the order is anyone's.
            let contestant = &mut contestants[(index + round) % count];
            contestant
                .rounds
                .push(measure(lab, contestant, &body).await?);
        }
    }
    ratios(findings, &contestants);
    findings.tables.push(table(&contestants));
    worker.stop().await
}

async fn measure(lab: &Lab, contestant: &Contestant, body: &Bytes) -> anyhow::Result<Round> {
    let Contestant {
        name, pid, target, ..
    } = contestant;
    let warm = lab.load.min(Duration::from_millis(300));
    closed(target, IN_FLIGHT, warm, body, WANTED)
        .await?
        .good(name)?;
    let before = cpu_seconds(*pid);
    let many = closed(target, IN_FLIGHT, lab.load, body, WANTED)
        .await?
        .good(name)?;
    let cpu = cpu_seconds(*pid) - before;
    let one = closed(target, 1, lab.load, body, WANTED)
        .await?
        .good(name)?;
    Ok(Round {
        many: many.per_second(),
        many_p50: many.quantile_us(0.5),
        many_p99: many.quantile_us(0.99),
        cpu_us: cpu * 1e6 / (many.per_second() * many.seconds),
        one: one.per_second(),
        one_p50: one.quantile_us(0.5),
        one_p99: one.quantile_us(0.99),
    })
}

fn ratios(findings: &mut Findings, contestants: &[Contestant]) {
    let per_round = |other: &str, value: fn(&Round) -> f64| -> Vec<f64> {
        let rounds = |name: &str| {
            contestants
                .iter()
                .find(|c| c.name == name)
                .map(|c| c.rounds.as_slice())
                .unwrap_or_default()
        };
        rounds("ramen")
            .iter()
            .zip(rounds(other))
            .map(|(ours, theirs)| value(ours) / value(theirs))
            .collect()
    };
    findings.add("x_grpcio", per_round("grpcio aio", |r| r.many), "");
    findings.add("x_sdk", per_round("mcp sdk", |r| r.many), "");
    findings.add("x_fastmcp", per_round("fastmcp", |r| r.many), "");
    findings.add("x_null", per_round("null", |r| r.many), "");
    findings.add("p50_x_null", per_round("null", |r| r.one_p50), "");
}

fn table(contestants: &[Contestant]) -> String {
    let mut text = format!(
        "{:<11} {:>10} {:>16} {:>7} {:>9} {:>14} {:>9}\n",
        "server", "calls/s", "p50/p99 ms", "CPU us", "calls/s", "p50/p99 us", "PSS MiB"
    );
    let _ = writeln!(
        text,
        "{:<11} {:>10} {:>16} {:>7} {:>9} {:>14}",
        "", "64 at once", "64", "64", "1 at once", "1"
    );
    for c in contestants {
        let of = |value: fn(&Round) -> f64| median(&c.rounds.iter().map(value).collect::<Vec<_>>());
        let mut pss = pss_mib(c.pid).unwrap_or(f64::NAN);
        for child in crate::processes::children(c.pid) {
            pss += pss_mib(child).unwrap_or_default();
        }
        let _ = writeln!(
            text,
            "{:<11} {:>10.0} {:>16} {:>7.0} {:>9.0} {:>14} {:>9}",
            c.name,
            of(|r| r.many),
            format!(
                "{}/{}",
                short(of(|r| r.many_p50) / 1e3),
                short(of(|r| r.many_p99) / 1e3)
            ),
            of(|r| r.cpu_us),
            of(|r| r.one),
            format!("{:.0}/{:.0}", of(|r| r.one_p50), of(|r| r.one_p99)),
            short(pss),
        );
    }
    text
}
