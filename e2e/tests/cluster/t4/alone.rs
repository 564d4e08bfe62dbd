//! What concerns the whole cluster. Nothing else runs beside these (`e2e/nextest.toml`).

use kube::api::DeleteParams;
use ramen_crds::McpGroup;
use ramen_e2e::{Audit, GitHost, Group, Release, Tier, kubectl, with_temp_ns};
use serde_json::json;

use super::{greeting, rights::refused};

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn with_the_scope_cluster_groups_of_other_namespaces_are_served() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({ "scope": "Cluster" })).await?;
        release.test().await?;
        let audit = Audit::start()?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let elsewhere = format!("{}-team", namespace.name);
        kubectl(&["create", "namespace", &elsewhere])
            .await?
            .good()?;
        let strict = [
            "label",
            "namespace",
            &elsewhere,
            "pod-security.kubernetes.io/enforce=restricted",
        ];
        kubectl(&strict).await?.good()?;
        let mut other = namespace.clone();
        other.name.clone_from(&elsewhere);
        let outcome = async {
            let group = Group::apply(&other, "library", Group::spec(&git.url(), 1)).await?;
            group.serves(&commit).await?;
            let (_, caller) = group.callers().await?.remove(0);
            assert_eq!(
                caller.tool("greet", json!({ "name": "Ana" })).await?,
                "one greets Ana"
            );
            // Before the namespace goes: what is made in one that ends is forbidden to everybody.
            let account = format!("system:serviceaccount:{}:ramen", namespace.name);
            assert_eq!(refused(&audit, &account)?, [], "a right is missing");
            other
                .api::<McpGroup>()
                .delete("library", &DeleteParams::default())
                .await?;
            anyhow::Ok(())
        }
        .await;
        kubectl(&["delete", "namespace", &elsewhere, "--wait=false"])
            .await?
            .good()?;
        outcome?;
        release.uninstall().await?;
        Ok(())
    })
    .await;
}
