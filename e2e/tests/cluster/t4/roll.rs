//! What rolls worker pods and what does not, and that neither loses a call.

use std::{env, process::Command};

use anyhow::ensure;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams},
};
use ramen_e2e::{
    Caller, GRPC, GitHost, Group, HttpCaller, Load, Refusal, Release, Tier, available, gone,
    name_image, with_temp_ns,
};
use serde_json::json;
use tonic::Code;

use super::{gateway, greeting, volume::Volume};

async fn uids(group: &Group) -> anyhow::Result<Vec<Option<String>>> {
    Ok(group.pods().await?.iter().map(ResourceExt::uid).collect())
}

/// The operator's pods, and their image.
async fn operators(group: &Group) -> anyhow::Result<Vec<(Option<String>, String)>> {
    let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
    let listed = group.namespace.api::<Pod>().list(&ours).await?;
    let mut pods = listed.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let named = pods.iter().map(|pod| {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let image = container.and_then(|container| container.image.clone());
        (pod.uid(), image.unwrap_or_default())
    });
    Ok(named.collect())
}

/// The commit whose operator is in the cluster as `localhost/ramen-operator:earlier`; `e2e/run.sh` keeps it.
fn kept() -> Option<String> {
    env::var("RAMEN_EARLIER").ok()
}

/// The chart as an earlier commit has it: that of the operator that was kept, else the last but one that changed charts, so that there is
/// a difference.
fn earlier_chart() -> anyhow::Result<tempfile::TempDir> {
    let top = ramen_e2e::chart("..");
    let folder = tempfile::tempdir()?;
    let script = "
        set -eu
        commit=${3:-$(git -C \"$1\" log -2 --format=%H -- charts/ramen | tail -1)}
        git -C \"$1\" archive \"$commit\" charts | tar -x -C \"$2\"
    ";
    let output = Command::new("sh")
        .args(["-c", script, "earlier"])
        .arg(&top)
        .arg(folder.path())
        .args(kept())
        .output()?;
    ensure!(
        output.status.success() && folder.path().join("charts/ramen/Chart.yaml").is_file(),
        "no earlier commit's chart can be had (a whole clone is needed): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(folder)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn an_upgrade_of_the_operator_rolls_no_worker_and_loses_no_call() {
    with_temp_ns(Tier::T4, async |namespace| {
        ramen_e2e::crds().await?;
        let earlier = earlier_chart()?;
        // With a store that is lost with the pod, workers would have to wait for new tokens to it.
        let volume = Volume::make(&namespace).await?;
        let chart = earlier.path().join("charts/ramen");
        let mut values = Volume::values();
        if kept().is_some() {
            values["image"] = json!({ "tag": "earlier" });
        }
        let mut release = Release::install_chart(&namespace, &chart, values).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 2)).await?;
        group.serves(&first).await?;
        let (workers, before) = (uids(&group).await?, operators(&group).await?);
        let load = Load::start(
            &group.callers().await?,
            "greet",
            &json!({ "name": "Ana" }),
            20,
        );

        // Whatever the charts' difference is, the operator's pod is a new one.
        let values = json!({
            "image": { "tag": "dev" }, "podAnnotations": { "e2e": "upgraded" },
        });
        let chart = ramen_e2e::chart("ramen");
        release.upgrade_chart(&chart, values).await?;
        let after = operators(&group).await?;
        assert!(!after.is_empty() && !before.is_empty());
        for (pod, image) in &after {
            assert!(before.iter().all(|(earlier, _)| earlier != pod));
            assert!(image.ends_with(":dev"), "{image}");
        }
        let tag = if kept().is_some() { ":earlier" } else { ":dev" };
        assert!(before.iter().all(|(_, image)| image.ends_with(tag)));
        // The new one works: a push goes live.
        let second = git.push(&greeting("two"))?;
        group.look("two").await?;
        group.serves(&second).await?;

        let outcomes = load.stop().await;
        let failed: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.answer.is_err())
            .collect();
        assert!(failed.is_empty() && !outcomes.is_empty(), "{failed:?}");
        // Where that is meant, it belongs into docs/cluster/upgrade.md, and the operator that was kept is of no use any more.
        assert_eq!(
            uids(&group).await?,
            workers,
            "this operator makes other worker pods than that of {}",
            kept().unwrap_or_default()
        );
        volume.remove().await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops13_another_worker_image_rolls_the_pods_with_what_was_deployed_with_it_and_loses_no_call()
 {
    with_temp_ns(Tier::T4, async |namespace| {
        let other = "localhost/ramen-worker:other";
        name_image(Release::WORKER, other)?;
        Release::install(&namespace, gateway::two()).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 2)).await?;
        group.serves(&commit).await?;
        let before = uids(&group).await?;
        let urls = gateway::both(&namespace).await?;
        let caller = HttpCaller::new("", &namespace.name, "library", &group.key().await?);
        gateway::each_answers(&caller, &urls).await?;
        let round = gateway::Round::start(&caller, urls);
        round.goes_on().await?;
        group.patch(json!({ "worker": { "image": other } })).await?;
        let rolled = |deployment: Option<&Deployment>| {
            let template =
                deployment.and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
            let image = template.and_then(|spec| spec.containers[0].image.as_deref());
            image == Some(other) && available(deployment)
        };
        namespace
            .until::<Deployment>("library-default", rolled)
            .await?;
        group.serves(&commit).await?;
        let pods = group.pods().await?;
        assert_eq!(pods.len(), 2);
        for pod in &pods {
            assert!(
                !before.contains(&pod.uid()),
                "{} is one of before",
                pod.name_any()
            );
        }
        for (_, caller) in group.callers().await? {
            assert_eq!(
                caller.tool("greet", json!({ "name": "Ana" })).await?,
                "one greets Ana"
            );
        }
        // Callers never noticed: pods that end say so on their connections, and answer what they have begun.
        round.goes_on().await?;
        let ended = round.stop().await;
        let lost = gateway::failures(&ended)?;
        ensure!(
            lost.is_empty(),
            "{} of {}: {lost:?}",
            lost.len(),
            ended.len()
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_worker_that_is_killed_under_load_takes_only_its_own_calls_with_it() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 3)).await?;
        group.serves(&commit).await?;
        let load = Load::start(
            &group.callers().await?,
            "greet",
            &json!({ "name": "Ana" }),
            20,
        );
        let (victim, _) = group.addresses().await?.remove(0);
        let pods = namespace.api::<Pod>();
        pods.delete(&victim, &DeleteParams::default().grace_period(0))
            .await?;
        namespace.until::<Pod>(&victim, gone).await?;
        group.serves(&commit).await?;
        let outcomes = load.stop().await;
        for outcome in &outcomes {
            let fine = match &outcome.answer {
                Ok(text) => text == "one greets Ana",
                // A broken connection, and nothing else.
                Err(Refusal::Status(code, _)) => {
                    outcome.pod == victim
                        && matches!(code, Code::Unavailable | Code::Cancelled | Code::Unknown)
                }
                Err(_) => false,
            };
            assert!(fine, "{outcome:?}");
        }
        // The new one answers, with the same key.
        let key = group.key().await?;
        for (pod, address) in group.addresses().await? {
            assert_ne!(pod, victim);
            let caller = Caller::connect(&format!("{address}:{GRPC}"), &key).await?;
            assert_eq!(
                caller.tool("greet", json!({ "name": "Bo" })).await?,
                "one greets Bo"
            );
        }
        Ok(())
    })
    .await;
}
