//! Calls per second and latency of several servers on the same work, in interleaved rounds.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;

use crate::lab::Lab;
use crate::load::{Target, closed};
use crate::processes::{children, cpu_seconds, pss_mib};
use crate::report::short;
use crate::stats::median;

const IN_FLIGHT: usize = 64;
/// Every answer of every server holds this.
const WANTED: &str = "\"42";

pub(super) struct Contestant {
    name: &'static str,
    pids: Vec<u32>,
    target: Target,
    body: Bytes,
    /// The part of its calls that may fail.
    forgiven: f64,
    rounds: Vec<Round>,
}

pub(super) struct Round {
    pub(super) many: f64,
    many_p50: f64,
    many_p99: f64,
    cpu_us: f64,
    one: f64,
    pub(super) one_p50: f64,
    one_p99: f64,
}

impl Contestant {
    /// A server of these processes (and those below them), and the message that it gets.
    pub(super) fn new(name: &'static str, pids: &[u32], target: Target, body: Bytes) -> Self {
        Self {
            name,
            pids: pids.to_vec(),
            target,
            body,
            forgiven: 0.0,
            rounds: Vec::new(),
        }
    }

    /// Some of its calls may fail; they count for nothing.
    pub(super) fn forgiven(mut self, part: f64) -> Self {
        self.forgiven = part;
        self
    }

    async fn measure(&self, lab: &Lab) -> anyhow::Result<Round> {
        let Self {
            name, target, body, ..
        } = self;
        let warm = lab.load.min(Duration::from_millis(300));
        closed(target, IN_FLIGHT, warm, body, WANTED)
            .await?
            .mostly_good(name, self.forgiven)?;
        let cpu = || self.pids.iter().copied().map(cpu_seconds).sum::<f64>();
        let before = cpu();
        let many = closed(target, IN_FLIGHT, lab.load, body, WANTED)
            .await?
            .mostly_good(name, self.forgiven)?;
        let cpu = cpu() - before;
        let one = closed(target, 1, lab.load, body, WANTED)
            .await?
            .mostly_good(name, self.forgiven)?;
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
}

/// Runs all rounds.
pub(super) async fn run(lab: &Lab, contestants: &mut [Contestant]) -> anyhow::Result<()> {
    let count = contestants.len();
    for round in 0..lab.rounds {
        for index in 0..count {
            // Each round starts with another server, so that no place in the order is anyone's.
            let contestant = &mut contestants[(index + round) % count];
            let measured = contestant.measure(lab).await?;
            contestant.rounds.push(measured);
        }
    }
    Ok(())
}

/// What `compare` makes of each round of two of them; nothing when one did not take part.
pub(super) fn rounds(
    contestants: &[Contestant],
    ours: &str,
    theirs: &str,
    compare: fn(&Round, &Round) -> f64,
) -> Vec<f64> {
    let of = |name: &str| {
        let found = contestants.iter().find(|c| c.name == name);
        found.map(|c| c.rounds.as_slice()).unwrap_or_default()
    };
    let pairs = of(ours).iter().zip(of(theirs));
    pairs.map(|(ours, theirs)| compare(ours, theirs)).collect()
}

/// For people.
pub(super) fn table(contestants: &[Contestant]) -> String {
    let mut text = format!(
        "{:<14} {:>10} {:>16} {:>7} {:>9} {:>14} {:>9}\n",
        "server", "calls/s", "p50/p99 ms", "CPU us", "calls/s", "p50/p99 us", "PSS MiB"
    );
    let _ = writeln!(
        text,
        "{:<14} {:>10} {:>16} {:>7} {:>9} {:>14}",
        "", "64 at once", "64", "64", "1 at once", "1"
    );
    for c in contestants {
        let of = |value: fn(&Round) -> f64| median(&c.rounds.iter().map(value).collect::<Vec<_>>());
        let all = c.pids.iter().flat_map(|pid| {
            let below = children(*pid).into_iter();
            std::iter::once(*pid).chain(below)
        });
        let pss: f64 = all.map(|pid| pss_mib(pid).unwrap_or_default()).sum();
        let _ = writeln!(
            text,
            "{:<14} {:>10.0} {:>16} {:>7.0} {:>9.0} {:>14} {:>9}",
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
