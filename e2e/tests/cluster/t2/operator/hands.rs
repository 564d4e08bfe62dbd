//! What people do to a group and its children by hand.

use std::sync::Arc;

use futures::TryStreamExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
    runtime::{WatchStreamExt as _, watcher},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Group, gone,
    player::{Outcome, Paper, report},
    serving,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    rig::{self, Rig, is, now, words},
    snapshot::{children, difference, jobs},
};

/// Deletes an object and waits until there is another one of its name.
async fn deleted_comes_back<K>(rig: &Rig, name: &str) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let api = rig.namespace.api::<K>();
    let before = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::background()).await?;
    rig.namespace
        .until::<K>(name, |object: Option<&K>| {
            object.is_some_and(|object| object.uid().is_some() && object.uid() != before)
        })
        .await?;
    Ok(())
}

/// Edits an object and waits until the edit is gone.
async fn edit_is_undone<K>(
    rig: &Rig,
    name: &str,
    edit: Value,
    undone: impl Fn(&Value) -> bool,
) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let api = rig.namespace.api::<K>();
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    let edited = api.patch(name, &params, &Patch::Merge(&edit)).await?;
    assert!(
        !undone(&serde_json::to_value(&edited)?),
        "{edit} is no edit"
    );
    rig.namespace
        .until::<K>(name, |object: Option<&K>| {
            object.is_some_and(|object| serde_json::to_value(object).is_ok_and(|v| undone(&v)))
        })
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn children_that_are_deleted_or_edited_are_as_before() {
    Box::pin(rig::on_paper(async |rig| {
        let (group, commit) = rig.live("soup").await?;
        let before = children(&group).await?;
        let key = group.key().await?;
        deleted_comes_back::<Deployment>(rig, "soup-default").await?;
        deleted_comes_back::<Service>(rig, "soup-default").await?;
        deleted_comes_back::<NetworkPolicy>(rig, "soup-default").await?;
        deleted_comes_back::<NetworkPolicy>(rig, "soup-deploy-jobs-egress").await?;
        deleted_comes_back::<ConfigMap>(rig, "soup-desired").await?;
        deleted_comes_back::<ConfigMap>(rig, "soup-rollout").await?;
        deleted_comes_back::<ServiceAccount>(rig, "soup-worker").await?;
        deleted_comes_back::<Secret>(rig, "soup-admin-key").await?;
        deleted_comes_back::<Secret>(rig, "soup-artifact-token").await?;

        edit_is_undone::<Deployment>(
            rig,
            "soup-default",
            json!({ "spec": { "replicas": 3 } }),
            |object| object["spec"]["replicas"] == 1,
        )
        .await?;
        edit_is_undone::<NetworkPolicy>(
            rig,
            "soup-default",
            json!({ "spec": { "ingress": [{}] } }),
            |object| object["spec"]["ingress"] != json!([{}]),
        )
        .await?;
        edit_is_undone::<ConfigMap>(
            rig,
            "soup-desired",
            json!({ "data": { "desired.json": "{}" } }),
            |object| object["data"]["desired.json"] != "{}",
        )
        .await?;
        edit_is_undone::<Service>(
            rig,
            "soup-default",
            json!({ "metadata": { "labels": { "ramen.dev/group": "other" } } }),
            |object| object["metadata"]["labels"]["ramen.dev/group"] == "soup",
        )
        .await?;
        // A label that keeps the operator's watch from seeing it.
        edit_is_undone::<Deployment>(
            rig,
            "soup-default",
            json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": null } } }),
            |object| {
                object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "ramen-operator"
            },
        )
        .await?;
        rig.serves(&group, &commit).await?;
        assert_eq!(difference(&before, &children(&group).await?), "");
        // The callers' key was nobody's to change.
        assert_eq!(key, group.key().await?);
        Ok(())
    }))
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn an_object_of_somebody_else_is_neither_taken_over_nor_deleted() {
    rig::on_paper(async |rig| {
        let commit = rig.push("one")?;
        let theirs = json!({ "data": { "mine": "yes" } });
        rig.namespace
            .apply::<ConfigMap>("soup-rollout", theirs)
            .await?;
        let group = rig.group("soup").await?;
        let refused = group
            .until(|group| is(group, "Ready", "False", "ForeignObject"))
            .await?;
        assert!(
            words(&refused, "Ready").contains("soup-rollout"),
            "{refused:?}"
        );
        let map = rig.namespace.api::<ConfigMap>().get("soup-rollout").await?;
        assert_eq!(map.data.unwrap_or_default()["mine"], "yes");
        assert!(map.metadata.owner_references.is_none());

        // Out of the way, and it goes on by itself.
        rig.namespace
            .api::<ConfigMap>()
            .delete("soup-rollout", &DeleteParams::default())
            .await?;
        rig.serves(&group, &commit).await?;
        Ok(())
    })
    .await;
}

/// Deploys that never end.
fn hanging() -> Paper {
    Paper::new(|_| Outcome::Hang)
}

async fn no_children(group: &Group) -> anyhow::Result<()> {
    for job in jobs(group).await? {
        group.namespace.until::<Job>(&job, gone).await?;
    }
    for name in children(group).await?.keys() {
        let (kind, name) = name.split_once(' ').unwrap_or_default();
        let name = name.replace("GROUP", &group.name);
        match kind {
            "Deployment" => drop(group.namespace.until::<Deployment>(&name, gone).await?),
            "Secret" => drop(group.namespace.until::<Secret>(&name, gone).await?),
            "ConfigMap" => drop(group.namespace.until::<ConfigMap>(&name, gone).await?),
            "Service" => drop(group.namespace.until::<Service>(&name, gone).await?),
            "NetworkPolicy" => drop(group.namespace.until::<NetworkPolicy>(&name, gone).await?),
            "ServiceAccount" => drop(group.namespace.until::<ServiceAccount>(&name, gone).await?),
            other => anyhow::bail!("a child of kind {other}"),
        }
    }
    let of = ListParams::default().labels(&format!("ramen.dev/group={}", group.name));
    for pod in group.namespace.api::<Pod>().list(&of).await? {
        group.namespace.until::<Pod>(&pod.name_any(), gone).await?;
    }
    Ok(())
}

/// Waits for a deploy job: the status says that there is one before it is written.
async fn job_is_made(group: &Group) -> anyhow::Result<()> {
    let of = watcher::Config::default().labels(&format!("ramen.dev/group={}", group.name));
    let made = watcher(group.namespace.api::<Job>(), of).applied_objects();
    std::pin::pin!(made).try_next().await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops11_a_group_deleted_during_its_deploy_leaves_nothing_and_its_name_can_be_used_again() {
    Box::pin(rig::with_paper(hanging(), async |rig| {
        rig.push("one")?;
        let group = rig.group("soup").await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        job_is_made(&group).await?;
        rig.namespace
            .api::<McpGroup>()
            .delete("soup", &DeleteParams::default())
            .await?;
        rig.namespace.until::<McpGroup>("soup", gone).await?;
        no_children(&group).await?;

        let group = rig.group("soup").await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        job_is_made(&group).await?;
        assert_eq!(jobs(&group).await?.len(), 1);
        Ok(())
    }))
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_namespace_deleted_under_way_goes_away_and_is_no_error() {
    rig::with_paper(hanging(), async |rig| {
        // Not the operator's own, which holds its account and its lease.
        let doomed = rig.doomed_namespace().await?;
        rig.push("one")?;
        let spec = Group::spec(&rig.git.url(), 1);
        let group = Group::apply(&doomed, "soup", spec).await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        let all = Api::<Namespace>::all(rig.namespace.client.clone());
        all.delete(&doomed.name, &DeleteParams::default()).await?;
        let gone = kube::runtime::wait::await_condition(all, &doomed.name, gone);
        tokio::time::timeout(std::time::Duration::from_mins(2), gone).await??;
        assert!(rig.operator.runs()?, "the operator has ended");
        let log = rig.operator.log();
        let failed = log
            .lines()
            .filter(|line| line.contains("a run failed"))
            .collect::<Vec<_>>();
        assert_eq!(failed, [""; 0]);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn suspend_during_a_deploy_lets_it_end_and_starts_nothing_until_resumed() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let paper = Paper::new(move |deploy| {
        let done = Outcome::Report(report(deploy, &["say"]));
        Outcome::After(Arc::clone(&held), Box::new(done))
    });
    rig::with_paper(paper, async |rig| {
        let first = rig.push("one")?;
        let group = rig.group("soup").await?;
        group
            .until(|group| is(group, "Reconciling", "True", "Deploying"))
            .await?;
        group
            .patch(json!({ "source": { "suspend": true } }))
            .await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        gate.add_permits(1);
        rig.serves(&group, &first).await?;
        // Nothing is made of the request, and the group says why.
        let held = group
            .until(|group| is(group, "SourceFetched", "True", "Suspended"))
            .await?;
        assert!(serving(&held).ends_with(&first));
        let acted_on = held.status.and_then(|status| status.last_requested_at);
        assert_eq!(acted_on, None);
        let before = jobs(&group).await?;
        assert_eq!(before.len(), 1, "{before:?}");

        gate.add_permits(1);
        group
            .patch(json!({ "source": { "suspend": false } }))
            .await?;
        rig.serves(&group, &second).await?;
        assert_ne!(jobs(&group).await?, before);
        Ok(())
    })
    .await;
}
