//! A push without a hook. It is made right after a look at the repository, so the next look is an interval away; what is
//! beyond that interval counts.

use std::time::{Duration, SystemTime};

use anyhow::ensure;
use futures::future::try_join_all;
use ramen_bench::report::Findings;
use serde_json::json;

use super::subject::{Subject, last};
use super::{REPLICAS, Stage};
use crate::clock::{beat, seconds};

/// The shortest that the kind allows.
const INTERVAL: Duration = Duration::from_secs(30);
/// Groups that are pushed to side by side; their looks are spread by the operator's jitter.
const GROUPS: usize = 3;

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let mut subjects = Vec::new();
    for n in 0..stage.rounds(GROUPS) {
        let name = format!("poll-{n}");
        let start = Subject::start(stage, &name, REPLICAS, |spec| {
            spec["source"]["interval"] = json!(format!("{}s", INTERVAL.as_secs()));
        });
        subjects.push(start.await?);
    }
    let groups = subjects.len();
    let taken = try_join_all(subjects.into_iter().map(one)).await?;
    let worst = taken.iter().copied().fold(f64::MIN, f64::max);
    findings.add_value(
        "poll_s",
        worst,
        taken,
        format!(
            "the slowest of {groups} pushes, each made right after a look, {REPLICAS} pods; beyond the interval of {} s",
            INTERVAL.as_secs()
        ),
    );
    Ok(())
}

async fn one(mut subject: Subject) -> anyhow::Result<f64> {
    let looks = subject.host.looks();
    let mut beat = beat(Duration::from_millis(20));
    let end = tokio::time::Instant::now() + 2 * INTERVAL;
    while subject.host.looks() == looks {
        ensure!(
            tokio::time::Instant::now() < end,
            "the repository was not looked at for {:?}",
            2 * INTERVAL
        );
        beat.tick().await;
    }
    let (files, wanted) = subject.next();
    let began = SystemTime::now();
    subject.host.push(&files)?;
    let answered = last(&subject.answered(&wanted).await?)?;
    subject.group.remove().await?;
    Ok(seconds(began, answered) - INTERVAL.as_secs_f64())
}
