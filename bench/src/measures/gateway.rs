//! The measures of the gateway, the bridge and the client (`make bench-gateway`).

mod auth;
mod bridge;
mod crowd;
mod listen;
mod many;
mod route;
mod versus;

use super::{client, finish};
use crate::lab::{Lab, Options};
use crate::report::{Findings, Goal, Goals};

/// The id, unit and goal of every measure, in the order of the table.
const GOALS: Goals = &[
    ("x_sdk", "ratio", Goal::AtLeast(20.0)),
    ("x_fastmcp", "ratio", Goal::AtLeast(35.0)),
    ("x_contextforge", "ratio", Goal::AtLeast(30.0)),
    ("added_p50_ms", "ms", Goal::AtMost(0.25)),
    ("list_p99_ms", "ms", Goal::Below(5.0)),
    ("rss_mib", "MiB", Goal::Below(150.0)),
    ("route_ms", "ms", Goal::Below(200.0)),
    ("listen_mib", "MiB", Goal::Below(250.0)),
    ("listen_health_p99_ms", "ms", Goal::Below(10.0)),
    ("auth_us", "us", Goal::Below(10.0)),
    ("bridge_added_ms", "ms", Goal::AtMost(0.3)),
    ("client_cold_ms", "ms", Goal::Below(30.0)),
];

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let lab = Lab::new(options, &["ramen", "ramen-worker", "ramen-gateway"])?;
    let mut findings = Findings::new(GOALS);
    part!(
        lab,
        findings,
        ["x_sdk", "x_fastmcp", "added_p50_ms"],
        versus::servers
    );
    part!(lab, findings, ["x_contextforge"], versus::contextforge);
    part!(lab, findings, ["list_p99_ms", "rss_mib"], many::lists);
    part!(lab, findings, ["route_ms"], route::slices);
    part!(
        lab,
        findings,
        ["listen_mib", "listen_health_p99_ms"],
        listen::idle
    );
    part!(lab, findings, ["auth_us"], auth::callers);
    part!(lab, findings, ["bridge_added_ms"], bridge::added);
    part!(lab, findings, ["client_cold_ms"], client::cold);
    finish(&lab, &mut findings, "gateway.json")
}
