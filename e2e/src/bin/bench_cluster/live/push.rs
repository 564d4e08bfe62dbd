//! From a push and its hook to the first right answer of every pod, and where the time goes.

use std::time::SystemTime;

use ramen_bench::report::Findings;

use super::subject::{Subject, last};
use super::timeline::{self, Push};
use super::{REPLICAS, Stage};
use crate::clock::{quantile, seconds};

const PUSHES: usize = 20;

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let mut subject = Subject::start(stage, "push", REPLICAS, |_| {}).await?;
    let mut pushes = Vec::new();
    for _ in 0..stage.rounds(PUSHES) {
        let (files, wanted) = subject.next();
        let began = SystemTime::now();
        let commit = subject.host.push(&files)?;
        stage.hook(&subject.host.url()).await?;
        let hooked = SystemTime::now();
        let answers = subject.answered(&wanted).await?;
        subject.at_rest(&commit).await?;
        pushes.push(Push {
            commit,
            began,
            hooked,
            answers,
        });
    }
    subject.group.remove().await?;
    let mut taken = Vec::new();
    for push in &pushes {
        taken.push(seconds(push.began, last(&push.answers)?));
    }
    findings.add_value(
        "push_p95_s",
        quantile(&taken, 0.95),
        taken,
        format!(
            "{} pushes of code alone, {REPLICAS} pods, canary on; p95",
            pushes.len()
        ),
    );
    let log = timeline::operator_log(stage).await?;
    findings.tables.push(timeline::table(&pushes, &log));
    Ok(())
}
