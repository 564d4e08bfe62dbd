//! Two replicas, of which one writes.

use k8s_openapi::api::coordination::v1::Lease;
use ramen_e2e::{Proxy, Request};

use super::rig::{self, now};

/// What was written through it, in order. Events tell what was.
fn writes(proxy: &Proxy) -> Vec<Request> {
    let mut seen = proxy.seen();
    seen.retain(|request| request.writes() && !request.is_of("events"));
    seen
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn who_cannot_renew_its_lease_ends_and_the_other_writes_from_then_on() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("soup").await?;
        let proxy = Proxy::start().await?;
        let mut standby = rig.operator.replica("two")?;
        standby.reaches(&proxy.url());
        standby.up().await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        rig.serves(&group, &second).await?;
        let idle = writes(&proxy);
        assert!(idle.is_empty(), "without the lease: {idle:?}");

        // Nothing that it asks is done or answered any more, a renewal as little as a write.
        rig.proxy.freeze();
        let well = rig.operator.ended().await?;
        assert!(!well, "to lose the lease is no good end");
        assert!(rig.operator.log().contains("was lost"));
        let before = writes(&rig.proxy).len();
        rig.namespace
            .until::<Lease>("ramen-operator", |lease: Option<&Lease>| {
                let spec = lease.and_then(|lease| lease.spec.as_ref());
                spec.and_then(|spec| spec.holder_identity.as_deref()) == Some("two")
            })
            .await?;
        let third = rig.push("three")?;
        group.look(&now()).await?;
        rig.serves(&group, &third).await?;
        let done = writes(&proxy);
        let first = done.first();
        assert!(
            first.is_some_and(|first| first.is_of("leases")),
            "before it had the lease: {first:?}"
        );
        assert!(done.iter().any(|request| request.is_of("mcpgroups")));
        assert_eq!(writes(&rig.proxy).len(), before, "two have written");
        assert!(standby.stop().await?);
        Ok(())
    })
    .await;
}
