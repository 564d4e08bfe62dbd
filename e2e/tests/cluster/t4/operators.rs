//! Two operators: one writes, and the other goes on when it is gone.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::api::{DeleteParams, ListParams};
use ramen_e2e::{Audit, GitHost, Group, Release, Tier, gone, with_temp_ns};
use serde_json::json;

use super::{greeting, rights::refused, volume::Volume};

fn holder(lease: &Lease) -> String {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.clone())
        .unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn of_two_operators_one_writes_and_the_other_takes_over() {
    with_temp_ns(Tier::T4, async |namespace| {
        let volume = Volume::make(&namespace).await?;
        let mut values = Volume::values();
        values["replicas"] = json!(2);
        Release::install(&namespace, values).await?;
        let audit = Audit::start()?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&first).await?;

        let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
        let pods = namespace.api::<Pod>();
        assert_eq!(pods.list(&ours).await?.items.len(), 2);
        let lease = namespace.api::<Lease>().get("ramen-operator").await?;
        let leader = holder(&lease);
        let account = format!("system:serviceaccount:{}:ramen", namespace.name);
        assert_eq!(refused(&audit, &account)?, [], "a right is missing");

        pods.delete(&leader, &DeleteParams::default().grace_period(0))
            .await?;
        namespace.until::<Pod>(&leader, gone).await?;
        let second = git.push(&greeting("two"))?;
        group.look("two").await?;
        group.serves(&second).await?;
        let lease = namespace.api::<Lease>().get("ramen-operator").await?;
        assert_ne!(holder(&lease), leader);
        let (_, caller) = group.callers().await?.remove(0);
        assert_eq!(
            caller.tool("greet", json!({ "name": "Ana" })).await?,
            "two greets Ana"
        );

        volume.remove().await?;
        Ok(())
    })
    .await;
}
