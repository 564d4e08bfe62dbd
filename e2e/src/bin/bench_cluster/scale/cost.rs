//! What the operator costs: time, processor and memory.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ramen_bench::processes::{cpu_seconds, peak_rss_mib, rss_mib};
use ramen_bench::report::Findings;
use ramen_e2e::Operator;

use super::crowd::Crowd;
use super::idle::Idle;
use crate::clock::beat;

/// For a start.
const LIMIT: Duration = Duration::from_mins(5);

/// Since the start of the process.
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_s: f64,
    pub(crate) rss_mib: f64,
    pub(crate) peak_mib: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} s, {:.1} CPU seconds, {:.0} MiB (at most {:.0})",
            self.seconds, self.cpu_s, self.rss_mib, self.peak_mib
        )
    }
}

impl Cost {
    /// As it is now, `seconds` after the start.
    pub(crate) fn now(operator: &Operator, seconds: f64) -> anyhow::Result<Self> {
        let pid = operator.pid().context("the operator has ended")?;
        Ok(Self {
            seconds,
            cpu_s: cpu_seconds(pid),
            rss_mib: rss_mib(pid)?,
            peak_mib: peak_rss_mib(pid)?,
        })
    }
}

/// Restarts the operator; gives what it cost until every group was run, its source looked at and its pods told.
pub(crate) async fn restart(operator: &mut Operator, crowd: &Crowd) -> anyhow::Result<Cost> {
    operator.stop().await?;
    let began = Instant::now();
    operator.up().await?;
    // One page a second: it has some lines for each of a thousand groups, and what it costs is the operator's.
    let mut beat = beat(Duration::from_secs(1));
    let names = [
        "ramen_operator_groups",
        "ramen_operator_fetches_total",
        "ramen_operator_reloads_total",
    ];
    loop {
        beat.tick().await;
        let [run, looked, told] = operator.metrics(names).await?;
        #[expect(clippy::cast_precision_loss, reason = "counts of groups")]
        let reached = |value: f64, wanted: usize| value >= wanted as f64;
        if reached(run, crowd.count())
            && reached(looked, crowd.looked_at())
            && reached(told, crowd.serving())
        {
            return Cost::now(operator, began.elapsed().as_secs_f64());
        }
        if began.elapsed() > LIMIT {
            bail!(
                "after {LIMIT:?} {run} groups were run, {looked} sources looked at and the pods of {told} told"
            );
        }
    }
}

/// Tells what grows faster than the number of groups, and the table of costs.
pub(crate) fn tell(
    findings: &mut Findings,
    (few, small): (usize, &Cost),
    (many, large): (usize, &Cost),
    (empty, rest): (&Cost, &Cost),
    idle: &Idle,
) {
    #[expect(clippy::cast_precision_loss, reason = "counts of groups")]
    let (few, many) = (few as f64, many as f64);
    // What the minute brings, however long the start takes: looks at the sources.
    let start = |cost: &Cost, groups: f64| {
        cost.cpu_s - idle.cpu_per_second() * cost.seconds * groups / many
    };
    let cpu = (start(large, many) / many) / (start(small, few) / few);
    let rss = (large.rss_mib / many) / (small.rss_mib / few);
    let slope = ((large.rss_mib - empty.rss_mib) / many) / ((small.rss_mib - empty.rss_mib) / few);
    findings.add_value(
        "growth",
        cpu.max(rss),
        vec![cpu, rss],
        format!(
            "CPU seconds of a start, without what a minute at rest costs, and RSS after it, per group, {many} against {few}; \
             RSS without what the process takes by itself: {slope:.2}"
        ),
    );
    let row = |what: &str, cost: &Cost| {
        format!(
            "{what:<28} {:>8.1} {:>8.2} {:>9.0} {:>9.0}\n",
            cost.seconds, cost.cpu_s, cost.rss_mib, cost.peak_mib
        )
    };
    let mut table = format!(
        "{:<28} {:>8} {:>8} {:>9} {:>9}\n",
        "the operator", "s", "CPU s", "RSS MiB", "peak MiB"
    );
    table.push_str(&row("no groups", empty));
    table.push_str(&row(&format!("start with {few} groups"), small));
    table.push_str(&row(&format!("start with {many} groups"), large));
    table.push_str(&row(&format!("{many} groups at rest"), rest));
    table.push_str(&idle.line());
    findings.tables.push(table);
}
