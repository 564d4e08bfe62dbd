//! Real pods: the charts as a person installs them, groups with three replicas, a git host and a package index inside the
//! cluster. The operator and the workers are release builds, in the images that the cluster has loaded.

mod apply;
mod deps;
mod poll;
mod push;
mod reload;
mod subject;
mod timeline;
mod workers;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use ramen_bench::report::Findings;
use ramen_e2e::{Namespace, Release, Tier, with_temp_ns};
use serde_json::json;

use crate::Options;
use crate::measures::part;

/// Pods of a group that is pushed to.
pub(crate) const REPLICAS: u32 = 3;
/// For anything that should take seconds.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// The webhook receiver: its file is `<receiver>.<sender>`.
const RECEIVER: &str = "bench";
const TOKEN: &str = "a token of the benchmark";

/// Where everything runs.
pub(crate) struct Stage {
    pub(crate) namespace: Namespace,
    pub(crate) quick: bool,
    hooks: String,
}

pub(crate) async fn run(options: &Options, findings: &mut Findings) {
    with_temp_ns(Tier::T3, async |namespace| {
        match Stage::set_up(namespace, options.quick).await {
            Ok(stage) => measure(&stage, options, findings).await,
            Err(error) => findings.fail("the part with real pods", &error),
        }
        Ok(())
    })
    .await;
}

async fn measure(stage: &Stage, options: &Options, findings: &mut Findings) {
    part!(
        options,
        findings,
        ["push_p95_s"],
        push::run(stage, findings)
    );
    part!(
        options,
        findings,
        ["reload_failed"],
        reload::run(stage, findings)
    );
    part!(options, findings, ["deps_s"], deps::run(stage, findings));
    part!(options, findings, ["apply_s"], apply::run(stage, findings));
    part!(options, findings, ["poll_s"], poll::run(stage, findings));
    part!(
        options,
        findings,
        ["workers"],
        workers::run(stage, findings)
    );
}

impl Stage {
    async fn set_up(namespace: Namespace, quick: bool) -> anyhow::Result<Self> {
        let receivers = json!({ "stringData": { format!("{RECEIVER}.gitlab"): TOKEN } });
        namespace.apply::<Secret>("hooks", receivers).await?;
        let values = json!({ "webhooks": { "enabled": true, "secretName": "hooks" } });
        Release::install(&namespace, values).await?;
        let hooks = format!("{}-hooks", Release::NAME);
        let service = namespace.api::<Service>().get(&hooks).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        let address = address.context("the Service of the webhook receiver has no address")?;
        Ok(Self {
            hooks: format!("http://{address}:8082/v1/hooks/{RECEIVER}"),
            namespace,
            quick,
        })
    }

    /// Tells the operator of a push, as GitLab does.
    pub(crate) async fn hook(&self, url: &str) -> anyhow::Result<()> {
        let body = json!({
            "object_kind": "push", "ref": "refs/heads/main", "project": { "git_http_url": url },
        });
        let headers = [
            ("x-gitlab-event", "Push Hook"),
            ("x-gitlab-token", TOKEN),
            ("content-type", "application/json"),
        ];
        let body = body.to_string();
        let answer = ramen_e2e::request("POST", &self.hooks, &headers, body.as_bytes()).await?;
        ensure!(
            answer.status == 202,
            "the hook was answered with {}: {}",
            answer.status,
            answer.body
        );
        Ok(())
    }

    /// Rounds of a measure.
    pub(crate) fn rounds(&self, full: usize) -> usize {
        if self.quick { 2 } else { full }
    }
}
