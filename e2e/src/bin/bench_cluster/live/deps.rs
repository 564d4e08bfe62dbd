//! A change of requirements: the deploy job installs from an index in the cluster.

use std::time::SystemTime;

use anyhow::Context as _;
use ramen_bench::report::Findings;
use ramen_e2e::PackageIndex;
use serde_json::json;

use super::subject::{Subject, last};
use super::{REPLICAS, Stage};
use crate::clock::seconds;

const ROUNDS: usize = 4;

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let rounds = stage.rounds(ROUNDS);
    let versions: Vec<String> = (1..=rounds).map(|n| format!("1.{n}")).collect();
    let packages: Vec<(&str, &str, &str)> = versions
        .iter()
        .flat_map(|version| {
            ["noodle", "broth", "egg"].map(|name| (name, version.as_str(), "GOOD = True\n"))
        })
        .collect();
    let index = PackageIndex::start(&stage.namespace, &packages).await?;
    let mut subject = Subject::start(stage, "deps", REPLICAS, |spec| {
        spec["network"]["egress"] = json!({ "allowedCIDRs": [format!("{}/32", index.address)] });
        spec["worker"] = json!({ "env": [{ "name": "PIP_INDEX_URL", "value": index.url }] });
    })
    .await?;
    let mut taken = Vec::new();
    for version in &versions {
        let (files, wanted) = subject.next();
        let mut files = files.to_vec();
        let requirements = ["noodle", "broth", "egg"].map(|name| format!("{name}=={version}\n"));
        files.push(("requirements.txt".to_owned(), requirements.concat()));
        // The answer needs the new packages.
        let source = &mut files
            .iter_mut()
            .find(|(path, _)| path.ends_with("version.py"))
            .context("a tool without its source")?
            .1;
        source.insert_str(0, "import noodle, broth, egg\n");
        let began = SystemTime::now();
        let commit = subject.host.push(&files)?;
        stage.hook(&subject.host.url()).await?;
        taken.push(seconds(began, last(&subject.answered(&wanted).await?)?));
        subject.at_rest(&commit).await?;
    }
    let worst = taken.iter().copied().fold(0.0, f64::max);
    subject.group.remove().await?;
    findings.add_value(
        "deps_s",
        worst,
        taken,
        format!(
            "the slowest of {rounds} changes of three requirements, wheels from an index in a pod, {REPLICAS} pods"
        ),
    );
    Ok(())
}
