//! Rights that are taken away and given back.

use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use ramen_e2e::{Audit, Group};
use serde_json::{Value, json};

use super::rig::{self, Rig, is, now, words};

/// Takes a resource out of the operator's rules, or gives all of them.
async fn without(rig: &Rig, resource: Option<&str>) -> anyhow::Result<()> {
    let restrict = |rule: &mut Value| {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|known| known.as_str() != resource);
        }
        rule["resources"] != json!([])
    };
    rig.account.restrict(&rig.namespace, restrict).await
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_right_that_is_missing_is_named_and_missed_no_more_when_it_is_back() {
    rig::on_paper(async |rig| {
        let (group, first) = rig.live("soup").await?;
        // Deploy jobs: what is pushed cannot be deployed, what serves goes on.
        without(rig, Some("jobs")).await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        let refused = group
            .until(|group| {
                let words = words(group, "Deployed");
                words.contains("jobs") && words.contains("forbidden")
            })
            .await?;
        assert!(
            ramen_e2e::serving(&refused).ends_with(&first),
            "{refused:?}"
        );
        assert!(refused.status.is_some_and(|status| status.tools == Some(1)));
        without(rig, None).await?;
        group.serves(&second).await?;

        // A kind of child: named in the condition, with verb and resource.
        without(rig, Some("services")).await?;
        rig.namespace
            .api::<Service>()
            .delete("soup-default", &DeleteParams::default())
            .await?;
        rig.operator.kill().await?;
        rig.operator.start()?;
        // It lists Services when it starts, and says in its log that it may not; the others it does list.
        without(rig, None).await?;
        rig.operator.ready().await?;
        group.serves(&second).await?;
        rig.namespace
            .until::<Service>("soup-default", |service: Option<&Service>| {
                service.is_some()
            })
            .await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_child_that_may_not_be_written_is_named_in_the_condition() {
    rig::on_paper(async |rig| {
        let commit = rig.push("one")?;
        let writes = ["create", "patch"];
        rig.account
            .restrict(&rig.namespace, |rule| {
                if rule["resources"] == json!(["networkpolicies"])
                    && let Some(verbs) = rule["verbs"].as_array_mut()
                {
                    verbs.retain(|verb| !writes.iter().any(|write| *verb == **write));
                }
                true
            })
            .await?;
        let group = rig.group("soup").await?;
        let refused = group
            .until(|group| is(group, "Ready", "False", "Forbidden"))
            .await?;
        let told = words(&refused, "Ready");
        assert!(
            told.contains("networkpolicies") && told.contains("patch"),
            "{told}"
        );
        without(rig, None).await?;
        group.serves(&commit).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn the_charts_rules_are_enough_for_everything_that_the_operator_asks() {
    rig::on_paper(async |rig| {
        let audit = Audit::start()?;
        let (group, _) = rig.live("soup").await?;
        let mut spec = Group::spec(&rig.git.url(), 1);
        spec["zones"] = json!([
            { "name": "a", "autoscaling": { "minReplicas": 1, "maxReplicas": 2 } },
            { "name": "b", "replicas": 2 },
        ]);
        let commit = rig.push("two")?;
        let zones = Group::apply(&rig.namespace, "zones", spec.clone()).await?;
        zones.serves(&commit).await?;
        // Both zones go, and another one comes: everything that is swept.
        spec["zones"] = json!([{ "name": "c" }]);
        let zones = Group::apply(&rig.namespace, "zones", spec).await?;
        zones.serves(&commit).await?;
        group.look(&now()).await?;
        group.serves(&commit).await?;
        let account = format!(
            "system:serviceaccount:{}:ramen-operator",
            rig.namespace.name
        );
        let mut calls = audit.calls()?;
        calls.retain(|call| call.user == account);
        assert!(calls.len() > 50, "only {} calls were seen", calls.len());
        calls.retain(|call| call.forbidden);
        assert!(calls.is_empty(), "{calls:#?}");
        Ok(())
    })
    .await;
}
