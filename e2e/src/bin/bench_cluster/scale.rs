//! A thousand groups on an API server where nothing runs but our operator, a release build. Pods are played: deploy jobs
//! hand over reports, worker pods are said to be ready, and somebody answers the operator at the address of each.
//! Everything else is real: the controllers of Kubernetes, the git hosts, the operator's store, its rights (those of the
//! chart) and its requests.
//!
//! In every ten groups, nine serve a revision with ten tools in one pod. The tenth waits: for a Secret that is not there,
//! for a revision that deploys (its deploy failed), or for a repository that exists.

mod cost;
mod crowd;
mod idle;

use std::time::Instant;

use anyhow::Context as _;
use ramen_bench::report::Findings;
use ramen_e2e::player::{Containers, Player};
use ramen_e2e::{Account, Namespace, Operator, Tier, crd, with_temp_ns};

use self::cost::{Cost, restart};
use self::crowd::Crowd;
use crate::Options;

const IDS: [&str; 5] = [
    "idle_writes",
    "idle_requests",
    "rss_mib",
    "start_s",
    "growth",
];

pub(crate) async fn run(options: &Options, findings: &mut Findings) {
    if !options.wants(&IDS) {
        return;
    }
    with_temp_ns(Tier::T2, async |namespace| {
        if let Err(error) = measure(&namespace, options, findings).await {
            findings.fail(&IDS.join(", "), &error);
        }
        Ok(())
    })
    .await;
}

async fn measure(
    namespace: &Namespace,
    options: &Options,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let (few, many) = (options.groups.div_ceil(10), options.groups);
    crd(&namespace.client).await?;
    let account = Account::new(namespace, true).await?;
    let folder = tempfile::tempdir()?;
    let mut operator = Operator::new(&account, &account.server, &folder.path().join("operator"))?;
    operator.set("RAMEN_OPERATOR_LOG", "info");
    let mut crowd = Crowd::new(&namespace.client, &namespace.name).await?;
    let papers = Containers::Paper(crowd::paper());
    let _player = Player::start(&namespace.client, None, papers, folder.path().join("pods"))?;

    operator.up().await?;
    let empty = Cost::now(&operator, 0.0)?;
    crowd.grow(few).await?;
    crowd.settle(&operator).await?;
    let small = restart(&mut operator, &crowd).await?;
    eprintln!("bench: {few} groups: {small}");

    let began = Instant::now();
    crowd.grow(many).await?;
    crowd.settle(&operator).await?;
    let grown = began.elapsed().as_secs_f64();
    let large = restart(&mut operator, &crowd).await?;
    eprintln!("bench: {many} groups: {large}");
    let idle = idle::watch(&operator, &account, options.quick).await?;
    let rest = Cost::now(&operator, large.seconds)?;
    operator.stop().await.context("ending the operator")?;
    crowd.end().await?;

    findings.add("start_s", vec![large.seconds], format!(
        "{many} groups that were there before, to the last of them run, its source looked at and its pods told; {} of \
         them new at once took {grown:.0} s to rest",
        many - few
    ));
    findings.add(
        "rss_mib",
        vec![rest.rss_mib],
        format!(
            "{many} groups at rest; at most {:.0} MiB since the start",
            rest.peak_mib
        ),
    );
    idle.tell(findings);
    cost::tell(
        findings,
        (few, &small),
        (many, &large),
        (&empty, &rest),
        &idle,
    );
    Ok(())
}
