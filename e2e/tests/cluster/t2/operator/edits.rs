//! Edits of the spec, and none.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Event,
};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Group, Request, available, comes_true,
    player::{Outcome, Paper, report},
};
use serde_json::json;

use super::{
    rig::{self, Rig, is},
    snapshot::jobs,
};

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops03_a_run_that_finds_everything_as_it_should_be_writes_nothing() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("soup").await?;
        // Events are sent beside the run that they tell of.
        let events = rig.namespace.api::<Event>();
        comes_true("it is told that the group serves", async || {
            let told = events.list(&ListParams::default()).await?;
            let told: Vec<_> = told
                .iter()
                .filter_map(|event| event.reason.as_deref())
                .collect();
            Ok(["Deployed", "Serving"]
                .iter()
                .all(|reason| told.contains(reason)))
        })
        .await?;
        at_rest(rig).await?;
        let (before, runs) = (writes(rig).len(), runs(rig).await?);
        // A run that nothing came of is woken by anything that happens to the object.
        let touch = json!({ "metadata": { "labels": { "touched": "yes" } } });
        let groups = rig.namespace.api::<McpGroup>();
        groups
            .patch(&group.name, &PatchParams::default(), &Patch::Merge(touch))
            .await?;
        let end = tokio::time::Instant::now() + Duration::from_secs(30);
        while self::runs(rig).await? <= runs {
            anyhow::ensure!(tokio::time::Instant::now() < end, "it did not run");
        }
        assert_eq!(writes(rig)[before..], []);
        let now = group.get().await?;
        let wanted = now.status.map(|status| status.conditions);
        // A start reads everything anew. What is there is there, and the status stays.
        rig.operator.stop().await?;
        rig.operator.up().await?;
        at_rest(rig).await?;
        let told = group.get().await?.status.map(|status| status.conditions);
        assert_eq!(wanted, told);
        Ok(())
    })
    .await;
}

/// Twenty looks at the count of runs, with an answer of the API server before each, are the same for two seconds: on a busy
/// machine a run may take longer to begin than all of these.
async fn at_rest(rig: &Rig) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + Duration::from_mins(1);
    let (mut quiet, mut since) = (0, tokio::time::Instant::now());
    let mut last = runs(rig).await?;
    while quiet < 20 || since.elapsed() < Duration::from_secs(2) {
        anyhow::ensure!(tokio::time::Instant::now() < end, "it never comes to rest");
        rig.namespace.client.apiserver_version().await?;
        let now = runs(rig).await?;
        quiet += 1;
        if now != last {
            (quiet, since) = (0, tokio::time::Instant::now());
        }
        last = now;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "a count of runs")]
#[expect(clippy::cast_sign_loss, reason = "a count of runs")]
async fn runs(rig: &Rig) -> anyhow::Result<u64> {
    let count = rig
        .operator
        .metric("ramen_operator_reconciles_total")
        .await?;
    Ok(count.unwrap_or_default() as u64)
}

fn writes(rig: &Rig) -> Vec<Request> {
    let mut seen = rig.proxy.seen();
    seen.retain(|request| request.writes() && !request.is_of("leases"));
    seen
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_zone_that_is_scaled_by_load_from_now_on_keeps_its_pods() {
    rig::on_paper(async |rig| {
        let commit = rig.push("one")?;
        let group = Group::apply(&rig.namespace, "soup", Group::spec(&rig.git.url(), 3)).await?;
        group.serves(&commit).await?;
        let pods = names(&group).await?;
        group
            .patch(json!({ "zones": [{
                "name": "default", "autoscaling": { "minReplicas": 2, "maxReplicas": 5 },
            }]}))
            .await?;
        rig.namespace
            .until::<HorizontalPodAutoscaler>(
                "soup-default",
                |scaler: Option<&HorizontalPodAutoscaler>| scaler.is_some(),
            )
            .await?;
        group.serves(&commit).await?;
        rig.namespace
            .until::<Deployment>("soup-default", available)
            .await?;
        assert_eq!(names(&group).await?, pods, "pods were ended or made");

        // From no pods at all, it must begin with one: an autoscaler leaves a zone without pods alone.
        for zone in [
            json!({ "name": "default", "replicas": 0 }),
            json!({ "name": "default", "autoscaling": { "minReplicas": 1, "maxReplicas": 5 } }),
        ] {
            group.patch(json!({ "zones": [zone] })).await?;
            group.serves(&commit).await?;
        }
        assert_eq!(names(&group).await?.len(), 1);
        Ok(())
    })
    .await;
}

async fn names(group: &Group) -> anyhow::Result<Vec<String>> {
    let pods = group.pods().await?;
    Ok(pods.iter().map(kube::ResourceExt::name_any).collect())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops09_an_image_that_changes_during_a_deploy_is_deployed_by_a_job_of_its_own() {
    // What is deployed with the first image never ends.
    let paper = Paper::new(|deploy| match deploy.image.as_str() {
        "localhost/worker:a" => Outcome::Hang,
        _ => Outcome::Report(report(deploy, &["say"])),
    });
    rig::with_paper(paper, async |rig| {
        let commit = rig.push("one")?;
        let mut spec = Group::spec(&rig.git.url(), 1);
        spec["worker"] = json!({ "image": "localhost/worker:a" });
        let group = Group::apply(&rig.namespace, "soup", spec).await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        let first = jobs(&group).await?;
        group
            .patch(json!({ "worker": { "image": "localhost/worker:b" } }))
            .await?;
        group.serves(&commit).await?;
        let pods = group.pods().await?;
        let image = |pod: &k8s_openapi::api::core::v1::Pod| {
            let spec = pod.spec.as_ref()?;
            spec.containers.first()?.image.clone()
        };
        for pod in &pods {
            assert_eq!(
                image(pod).as_deref(),
                Some("localhost/worker:b"),
                "{}",
                pod.name_any()
            );
        }
        // The old one is stopped: nobody waits for what comes of it.
        for job in first {
            rig.namespace
                .until::<k8s_openapi::api::batch::v1::Job>(&job, ramen_e2e::gone)
                .await?;
        }
        Ok(())
    })
    .await;
}
