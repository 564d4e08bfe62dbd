//! Pushes while the group is called all the time: no call may fail.

use std::collections::BTreeMap;

use anyhow::ensure;
use ramen_bench::report::Findings;
use ramen_e2e::Load;
use serde_json::json;

use super::subject::{Subject, TOOL};
use super::{REPLICAS, Stage};

const RELOADS: usize = 20;
/// In all pods together 210 a second: a machine that has much to do makes some late.
const CALLS_PER_POD: u32 = 70;

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let mut subject = Subject::start(stage, "reload", REPLICAS, |_| {}).await?;
    let load = Load::start(&subject.callers, TOOL, &json!({}), CALLS_PER_POD);
    let reloads = stage.rounds(RELOADS);
    let began = std::time::Instant::now();
    for _ in 0..reloads {
        let (files, wanted) = subject.next();
        let commit = subject.host.push(&files)?;
        stage.hook(&subject.host.url()).await?;
        subject.answered(&wanted).await?;
        subject.at_rest(&commit).await?;
    }
    let took = began.elapsed().as_secs_f64();
    let outcomes = load.stop().await;
    let right = |text: &str| {
        let number = text.strip_prefix('v').and_then(|n| n.parse::<usize>().ok());
        number.is_some_and(|n| n <= reloads)
    };
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in &outcomes {
        match &outcome.answer {
            Ok(text) if right(text) => {}
            Ok(text) => *failed.entry(format!("answered {text:?}")).or_default() += 1,
            Err(refusal) => *failed.entry(refusal.to_string()).or_default() += 1,
        }
    }
    ensure!(!outcomes.is_empty(), "no call was made");
    #[expect(clippy::cast_precision_loss, reason = "counts of calls")]
    let (all, count) = (outcomes.len() as f64, failed.values().sum::<usize>() as f64);
    let mut note = format!(
        "of {all} calls over {reloads} reloads of {REPLICAS} pods, {:.0} calls/s",
        all / took
    );
    for (what, times) in &failed {
        use std::fmt::Write as _;
        let _ = write!(note, "; {times} times: {what}");
    }
    subject.group.remove().await?;
    findings.add_value("reload_failed", count, vec![count], note);
    Ok(())
}
