//! The measures, in the order in which they run. A part that fails is told at the end; the others still run.

/// Runs a part when one of its ids is wanted.
macro_rules! part {
    ($lab:ident, $findings:ident, $ids:expr, $run:path) => {
        if $lab.wants(&$ids) {
            eprintln!("bench: {}", $ids.join(", "));
            if let Err(error) = $run(&$lab, &mut $findings).await {
                $findings.fail(&$ids.join(", "), &error);
            }
        }
    };
}

mod client;
mod contest;
pub(crate) mod gateway;
mod isolation;
mod memory;
mod reload;
mod throughput;
mod up;

use std::path::PathBuf;

use anyhow::Context as _;

use crate::lab::{Lab, Options, root, write};
use crate::plot;
use crate::report::{Findings, Goal, Goals};

/// The id, unit and goal of every measure, in the order of the table.
const GOALS: Goals = &[
    ("x_grpcio", "ratio", Goal::AtLeast(9.0)),
    ("x_sdk", "ratio", Goal::AtLeast(45.0)),
    ("x_fastmcp", "ratio", Goal::AtLeast(75.0)),
    ("x_null", "ratio", Goal::AtLeast(0.65)),
    ("p50_x_null", "ratio", Goal::AtMost(1.3)),
    ("beside_spin", "ratio", Goal::AtLeast(0.6)),
    ("blocked_p99_ms", "ms", Goal::Below(5.0)),
    ("push_s", "s", Goal::Below(1.0)),
    ("deps_s", "s", Goal::Below(4.0)),
    ("reload_failed", "calls", Goal::AtMost(0.0)),
    ("reload_rss_pct", "%", Goal::AtMost(5.0)),
    ("front_mib", "MiB", Goal::Below(15.0)),
    ("host_mib", "MiB", Goal::Below(14.0)),
    ("respawn_ms", "ms", Goal::Below(100.0)),
    ("client_cold_ms", "ms", Goal::Below(30.0)),
];

/// The measures of the worker; the plot of the ratios is written after a full run.
pub(crate) async fn run(options: Options, svg: PathBuf) -> anyhow::Result<()> {
    let lab = Lab::new(options, &["ramen", "ramen-worker"])?;
    let mut findings = Findings::new(GOALS);
    part!(
        lab,
        findings,
        ["x_grpcio", "x_sdk", "x_fastmcp", "x_null", "p50_x_null"],
        throughput::run
    );
    part!(lab, findings, ["front_mib", "host_mib"], memory::run);
    part!(lab, findings, ["beside_spin"], isolation::beside_spin);
    part!(lab, findings, ["blocked_p99_ms"], isolation::blocked);
    part!(lab, findings, ["respawn_ms"], isolation::respawn);
    part!(lab, findings, ["reload_failed"], reload::under_load);
    part!(lab, findings, ["reload_rss_pct"], reload::growth);
    part!(lab, findings, ["push_s", "deps_s"], up::run);
    part!(lab, findings, ["client_cold_ms"], client::cold);
    if lab.is_full()
        && let Some(text) = plot::ratios(&findings)
    {
        write(&root().join(svg), &text)?;
    }
    finish(&lab, &mut findings, "worker.json")
}

/// Writes what was found, and prints it.
fn finish(lab: &Lab, findings: &mut Findings, file: &str) -> anyhow::Result<()> {
    findings.sort();
    let mut machine = crate::processes::machine();
    machine["python"] = lab.python_version.clone().into();
    machine["full"] = lab.is_full().into();
    let json =
        serde_json::to_string_pretty(&findings.json(&machine)).context("cannot write JSON")?;
    write(&lab.out.join(file), &(json + "\n"))?;
    print!("{}", findings.table());
    anyhow::ensure!(
        findings.missed.is_empty(),
        "some measures could not be taken"
    );
    Ok(())
}
