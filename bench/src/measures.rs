//! The measures, in the order in which they run. A part that fails is told at the end; the others still run.

mod isolation;
mod memory;
mod reload;
mod throughput;
mod up;

use anyhow::Context as _;

use crate::lab::{Lab, Options, write};
use crate::plot;
use crate::report::Findings;

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

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let lab = Lab::new(options)?;
    let mut findings = Findings::default();
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
    findings.sort();
    let json = serde_json::to_string_pretty(&findings.json(&lab)).context("cannot write JSON")?;
    write(&lab.out.join("worker.json"), &(json + "\n"))?;
    if lab.is_full()
        && let Some(svg) = plot::ratios(&findings)
    {
        write(&lab.plot, &svg)?;
    }
    print!("{}", findings.table());
    anyhow::ensure!(
        findings.missed.is_empty(),
        "some measures could not be taken"
    );
    Ok(())
}
