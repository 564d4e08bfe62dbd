//! What the operator may do is what it does: its rules are compared with the API server's audit log.

use std::collections::BTreeSet;

use k8s_openapi::api::{core::v1::Secret, rbac::v1::Role};
use kube::api::DeleteParams;
use ramen_crds::McpGroup;
use ramen_e2e::{Audit, Call, GitHost, Group, Release, Tier, gone, with_temp_ns};
use serde_json::json;

use super::greeting;

/// Rights that the story below has no use for: what is taken over, or removed, when something is in the way.
const IN_NEED: &[(&str, &str)] = &[
    // Asked for only where `OwnerReferencesPermissionEnforcement` runs.
    ("mcpgroups/finalizers", "update"),
    // A job that is in the way, or that broke.
    ("jobs", "delete"),
    ("jobs", "patch"),
    // Why a job has no pod.
    ("events", "list"),
    // An event that comes again is counted.
    ("events", "patch"),
    // Children of a group that go while the group stays: these only with a change of its kind.
    ("serviceaccounts", "delete"),
    ("configmaps", "delete"),
    ("secrets", "delete"),
];

type Right = (String, String);

fn granted(role: &Role) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in role.rules.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            rights.extend(
                rule.verbs
                    .iter()
                    .map(|verb| (resource.clone(), verb.clone())),
            );
        }
    }
    rights
}

/// What an account had no right to. An operator of the whole cluster also writes into namespaces of earlier tests while
/// these end, and that is refused to everybody.
pub(super) fn refused(audit: &Audit, account: &str) -> anyhow::Result<Vec<Call>> {
    let calls = audit.calls()?.into_iter();
    Ok(calls
        .filter(|call| call.user == account && call.forbidden)
        .collect())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_every_right_is_used_and_none_is_missing() {
    with_temp_ns(Tier::T4, async |namespace| {
        let audit = Audit::start()?;
        let release = Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        namespace
            .apply::<Secret>("values", json!({ "stringData": { "TOKEN": "some value" } }))
            .await?;
        let mut spec = Group::spec(&git.url(), 2);
        spec["secrets"] = json!([{ "name": "values" }]);
        spec["zones"] = json!([
            { "name": "default", "replicas": 2 },
            { "name": "scaled", "autoscaling": { "minReplicas": 2, "maxReplicas": 3 } },
        ]);
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&first).await?;
        let second = git.push(&greeting("two"))?;
        group.look("two").await?;
        group.serves(&second).await?;
        // A zone less: its children are swept.
        group
            .patch(json!({ "zones": [{ "name": "default", "replicas": 1 }] }))
            .await?;
        namespace
            .until::<k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler>(
                "library-scaled",
                gone,
            )
            .await?;
        // Its policy, when its pods are gone.
        namespace
            .until::<k8s_openapi::api::networking::v1::NetworkPolicy>("library-scaled", gone)
            .await?;
        group.serves(&second).await?;
        namespace
            .api::<McpGroup>()
            .delete("library", &DeleteParams::default())
            .await?;
        namespace
            .until::<k8s_openapi::api::apps::v1::Deployment>("library-default", gone)
            .await?;
        let role = namespace.api::<Role>().get("ramen-operator").await?;
        let own = namespace.api::<Role>().get("ramen-operator-own").await?;
        // Watches are in the log once they have ended.
        let account = format!("system:serviceaccount:{}:ramen", namespace.name);
        let refused = refused(&audit, &account)?;
        // It takes the roles away before the pod has ended, so that what is refused from here on says nothing.
        release.uninstall().await?;
        assert_eq!(refused, [], "a right is missing");
        let calls = audit.calls()?;
        let ours: Vec<_> = calls.iter().filter(|call| call.user == account).collect();
        let used: BTreeSet<Right> = ours
            .iter()
            .filter(|call| !call.resource.starts_with('/'))
            .map(|call| (call.resource.clone(), call.verb.clone()))
            .collect();
        let mut all = granted(&role);
        all.extend(granted(&own));
        let in_need: BTreeSet<Right> = IN_NEED
            .iter()
            .map(|(resource, verb)| ((*resource).to_owned(), (*verb).to_owned()))
            .collect();
        // An apply of what is not there asks for both, and is logged as a patch.
        let applied = |(resource, verb): &Right| {
            verb == "create" && used.contains(&(resource.clone(), "patch".to_owned()))
        };
        let idle: Vec<_> = all
            .iter()
            .filter(|right| !used.contains(right) && !applied(right) && !in_need.contains(right))
            .collect();
        assert!(idle.is_empty(), "granted and not used: {idle:?}");
        Ok(())
    })
    .await;
}
