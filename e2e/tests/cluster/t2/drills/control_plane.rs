//! What the control plane may do to the operator. Everything else in the cluster suffers, too: nothing runs beside these.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
    runtime::wait::await_condition,
};
use ramen_e2e::{
    Group, comes_true, crd, drill, gone,
    player::{Outcome, Paper, report},
    request,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    super::operator::{
        rig::{self, Rig, is, now},
        snapshot::{children, difference, jobs_for},
    },
    eventually,
};

/// Deploys that wait for permits.
fn gated() -> (Arc<Semaphore>, Paper) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let paper = Paper::new(move |deploy| {
        let done = Outcome::Report(report(deploy, &["say"]));
        Outcome::After(Arc::clone(&held), Box::new(done))
    });
    (gate, paper)
}

/// Pushes, and waits until the deploy job of it runs, at its gate.
async fn deploying(rig: &Rig, group: &Group, text: &str) -> anyhow::Result<String> {
    let commit = rig.push(text)?;
    group.look(&now()).await?;
    group
        .until(|group| is(group, "Reconciling", "True", "Deploying"))
        .await?;
    let jobs = ListParams::default().labels("app.kubernetes.io/component=deploy");
    let running = |pod: &Pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    comes_true("the deploy job runs", async || {
        let pods = rig.namespace.api::<Pod>().list(&jobs).await?.items;
        Ok(pods.iter().any(running))
    })
    .await?;
    Ok(commit)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_deploy_survives_the_api_server_and_etcd_being_killed_in_the_middle_of_it() {
    let (gate, paper) = gated();
    rig::with_paper(paper, async |rig| {
        gate.add_permits(1);
        let (group, _) = rig.live("soup").await?;
        let before = children(&group).await?;
        for component in ["kube-apiserver", "etcd"] {
            let commit = deploying(rig, &group, component).await?;
            drill("kill", component)?;
            // The report comes in while nobody can be told.
            gate.add_permits(1);
            eventually(|| async { group.get().await.map_err(kube_error) }).await?;
            rig.revived(group.serves(&commit)).await?;
            assert_eq!(jobs_for(&group, &commit).await?, 1);
        }
        let changed = difference(&before, &children(&group).await?);
        assert!(!changed.contains("only in"), "{changed}");
        Ok(())
    })
    .await;
}

fn kube_error(error: anyhow::Error) -> kube::Error {
    match error.downcast::<kube::Error>() {
        Ok(error) => error,
        Err(error) => kube::Error::Service(error.into()),
    }
}

/// etcd, as its own program `etcdctl` speaks to it.
async fn etcd(path: &str, body: Value) -> anyhow::Result<Value> {
    let url = format!("http://127.0.0.1:2379/v3/{path}");
    let answer = request("POST", &url, &[], body.to_string().as_bytes()).await?;
    anyhow::ensure!(answer.status == 200, "{url}: {answer:?}");
    Ok(serde_json::from_str(&answer.body)?)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_full_etcd_loses_nothing_that_was_under_way() {
    let (gate, paper) = gated();
    rig::with_paper(paper, async |rig| {
        gate.add_permits(1);
        let (group, _) = rig.live("soup").await?;
        let commit = deploying(rig, &group, "two").await?;
        let members = etcd("cluster/member/list", json!({})).await?;
        let member = members["members"][0]["ID"].clone();
        let alarm =
            |action: &str| json!({ "action": action, "memberID": member, "alarm": "NOSPACE" });
        etcd("maintenance/alarm", alarm("ACTIVATE")).await?;
        let refused = rig
            .namespace
            .apply::<ConfigMap>("no-room", json!({ "data": {} }))
            .await;
        let full = refused.err().map(|error| format!("{error:#}"));
        let tried = async {
            gate.add_permits(1);
            // It has the report and tries to write what follows from it.
            let before = rig.proxy.count();
            let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
            loop {
                let seen = rig.proxy.seen();
                let writes = seen[before..].iter().filter(|request| request.writes());
                if writes.filter(|request| !request.is_of("leases")).count() > 1 {
                    return Ok(());
                }
                anyhow::ensure!(
                    tokio::time::Instant::now() < end,
                    "it does not try to write"
                );
                tokio::task::yield_now().await;
            }
        };
        let tried: anyhow::Result<()> = tried.await;
        // First of all there must be room again, whatever was found.
        etcd("maintenance/alarm", alarm("DEACTIVATE")).await?;
        assert!(full.is_some_and(|full| full.contains("space exceeded")));
        tried?;
        rig.revived(group.serves(&commit)).await?;
        assert_eq!(jobs_for(&group, &commit).await?, 1);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_kind_that_is_removed_and_installed_again_is_looked_after_again() {
    rig::on_paper(async |rig| {
        let (_, commit) = rig.live("soup").await?;
        let all = Api::<CustomResourceDefinition>::all(rig.namespace.client.clone());
        let name = "mcpgroups.ramen.dev";
        all.delete(name, &DeleteParams::default()).await?;
        let removed = await_condition(all, name, gone);
        tokio::time::timeout(std::time::Duration::from_mins(1), removed)
            .await
            .context("the kind does not go away")??;
        // Its watch has nothing to watch; that is no reason to end.
        let before = rig.proxy.count();
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while !rig.proxy.seen()[before..]
            .iter()
            .any(|one| one.is_of("mcpgroups"))
        {
            anyhow::ensure!(
                tokio::time::Instant::now() < end,
                "it does not look for the kind"
            );
            tokio::task::yield_now().await;
        }
        assert!(rig.operator.runs()?, "the operator has ended");
        crd(&rig.namespace.client).await?;
        let group = rig.group("soup").await?;
        group.serves(&commit).await?;
        assert!(rig.operator.runs()?, "the operator has ended");
        Ok(())
    })
    .await;
}
