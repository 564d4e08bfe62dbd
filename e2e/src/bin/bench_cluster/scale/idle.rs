//! What the operator asks of the API server when nothing happens but that every source is looked at once a minute.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ramen_bench::processes::cpu_seconds;
use ramen_bench::report::Findings;
use ramen_e2e::{Account, Audit, Call, Operator};

use crate::clock::beat;

/// The sources' interval: each is looked at in it.
const WATCHED: Duration = Duration::from_mins(1);
/// Nothing was written for so long: it is at rest.
const STILL: Duration = Duration::from_secs(5);
/// For it to come to rest.
const LIMIT: Duration = Duration::from_mins(2);

/// A minute of the operator's life.
pub(crate) struct Idle {
    minutes: f64,
    /// Requests but watches, by verb and resource.
    calls: BTreeMap<(String, String), usize>,
    writes: usize,
    watches: usize,
    cpu_s: f64,
}

/// What the operator has asked for since.
fn of(audit: &Audit, account: &Account) -> anyhow::Result<Vec<Call>> {
    let user = format!("system:serviceaccount:{}:ramen-operator", account.namespace);
    let mut calls = audit.calls()?;
    calls.retain(|call| call.user == user);
    Ok(calls)
}

/// The lease is how a replica says that it lives: it is written as long as the operator runs, and is no group's.
fn is_lease(call: &Call) -> bool {
    call.resource == "leases"
}

pub(crate) async fn watch(
    operator: &Operator,
    account: &Account,
    quick: bool,
) -> anyhow::Result<Idle> {
    at_rest(account).await?;
    let pid = operator.pid().context("the operator has ended")?;
    let watched = if quick { WATCHED / 6 } else { WATCHED };
    let (audit, began, cpu) = (Audit::start()?, Instant::now(), cpu_seconds(pid));
    tokio::time::sleep(watched).await;
    let cpu_s = cpu_seconds(pid) - cpu;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let mut idle = Idle {
        minutes,
        calls: BTreeMap::new(),
        writes: 0,
        watches: 0,
        cpu_s,
    };
    for call in of(&audit, account)? {
        if call.verb == "watch" {
            idle.watches += 1;
            continue;
        }
        idle.writes += usize::from(call.writes() && !is_lease(&call));
        *idle.calls.entry((call.verb, call.resource)).or_default() += 1;
    }
    Ok(idle)
}

/// Waits until nothing is written any more.
async fn at_rest(account: &Account) -> anyhow::Result<()> {
    let (mut beat, began) = (beat(STILL), Instant::now());
    beat.tick().await;
    loop {
        let audit = Audit::start()?;
        beat.tick().await;
        let calls = of(&audit, account)?;
        let writes = calls.iter().filter(|call| call.writes() && !is_lease(call));
        let count = writes.count();
        if count == 0 {
            return Ok(());
        }
        if began.elapsed() > LIMIT {
            bail!(
                "the operator still writes {count} times in {STILL:?}, {LIMIT:?} after its start"
            );
        }
    }
}

impl Idle {
    /// CPU seconds for each second.
    pub(crate) fn cpu_per_second(&self) -> f64 {
        self.cpu_s / (self.minutes * 60.0)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of requests")]
    fn per_minute(&self, count: usize) -> f64 {
        count as f64 / self.minutes
    }

    pub(crate) fn tell(&self, findings: &mut Findings) {
        let all: usize = self.calls.values().sum();
        let mut note = format!(
            "every source looked at once a minute; besides, {} watches began or ended",
            self.watches
        );
        for ((verb, resource), times) in &self.calls {
            let _ = write!(note, ", {verb} {resource} {times}");
        }
        let writes = self.per_minute(self.writes);
        findings.add_value("idle_writes", writes, vec![writes], "besides the lease");
        let requests = self.per_minute(all);
        findings.add_value("idle_requests", requests, vec![requests], note);
    }

    /// For the table of costs.
    pub(crate) fn line(&self) -> String {
        let percent = self.cpu_s / self.minutes / 60.0 * 100.0;
        format!(
            "a minute at rest: {:.2} CPU seconds, {percent:.1} % of a core\n",
            self.cpu_s / self.minutes
        )
    }
}
