//! An API server that answers late, wrongly, or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::api::DeleteParams;
use ramen_e2e::{Fault, available};

use super::{
    rig,
    snapshot::{children, difference, jobs_for},
};

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops14_conflicts_refusals_and_lost_answers_end_in_the_same_group() {
    rig::on_paper(async |rig| {
        let (first, commit) = rig.live("zz-first").await?;
        let wanted = children(&first).await?;
        let struck = Arc::new(AtomicUsize::new(0));
        // Half of the writes go wrong, each time in another way. In an order without a period (multiples of the golden ratio): a
        // write that the operator does again and again, with its status between, would fall in step with every other one.
        let (mut place, counter) = (0_u64, Arc::clone(&struck));
        rig.proxy.script(move |request| {
            if !request.writes() || request.is_of("leases") {
                return None;
            }
            place = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
            if place > u64::MAX / 2 {
                return None;
            }
            let fault = match counter.fetch_add(1, Ordering::SeqCst) % 6 {
                0 => Fault::conflict(),
                1 => Fault::too_many(),
                2 => Fault::internal(),
                3 => Fault::Lose,
                4 => Fault::Close,
                _ => Fault::Answer(503, "ServiceUnavailable", "apiserver not ready".to_owned()),
            };
            Some(fault)
        });
        let group = rig.group("zz-faulty").await?;
        group.serves(&commit).await?;
        assert!(
            struck.load(Ordering::SeqCst) > 5,
            "hardly anything went wrong"
        );
        rig.proxy.heal();
        let found = children(&group).await?;
        assert_eq!(difference(&wanted, &found), "");
        assert_eq!(jobs_for(&group, &commit).await?, 1);
        assert!(rig.operator.runs()?, "the operator has ended");
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops14_a_server_that_refuses_everything_is_not_asked_in_a_hot_loop() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("soup").await?;
        rig.proxy.script(|_| Some(Fault::internal()));
        rig.proxy.cut();
        let began = rig.proxy.count();
        let hammered = tokio::time::timeout(Duration::from_secs(6), async {
            // Changes want to be acted on while nothing works.
            for n in 0.. {
                let commit = format!("{n:040x}");
                group.look(&commit).await?;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            anyhow::Ok(())
        });
        assert!(hammered.await.is_err());
        let asked = rig.proxy.count() - began;
        // Nine watches and one group, each with a pause that grows; far from one after the other.
        assert!(asked < 120, "{asked} requests in six seconds");
        rig.proxy.heal();
        let commit = rig.push("two")?;
        group.look(&rig::now()).await?;
        group.serves(&commit).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops14_watches_that_are_cut_or_too_old_begin_anew_without_harm() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("soup").await?;
        let before = children(&group).await?;
        let deployment = rig
            .namespace
            .api::<Deployment>()
            .get("soup-default")
            .await?;
        for round in 0..3 {
            // Cut, and the first watch of each kind after that says that its version is gone.
            let mut told = std::collections::HashSet::new();
            rig.proxy.script(move |request| {
                (request.watches() && told.insert(request.path.clone())).then_some(Fault::Gone)
            });
            rig.proxy.cut();
            let commit = rig.push(&format!("round {round}"))?;
            group.look(&rig::now()).await?;
            group.serves(&commit).await?;
        }
        rig.proxy.heal();
        let after = rig
            .namespace
            .api::<Deployment>()
            .get("soup-default")
            .await?;
        assert_eq!(deployment.metadata.uid, after.metadata.uid);
        assert_eq!(deployment.metadata.generation, after.metadata.generation);
        // What serves has changed, and nothing else.
        let changed = difference(&before, &children(&group).await?);
        let elsewhere = changed
            .lines()
            .filter(|line| !line.starts_with(' ') && !line.starts_with("ConfigMap"));
        assert_eq!(elsewhere.collect::<Vec<_>>(), [""; 0]);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn watches_that_lag_behind_do_not_make_it_write_twice_or_undo_anything() {
    rig::on_paper(async |rig| {
        // Everything that the operator reads is a second old.
        rig.proxy
            .script(|request| (!request.writes()).then_some(Fault::Late(Duration::from_secs(1))));
        rig.proxy.cut();
        let (group, _) = rig.live("soup").await?;
        let commit = rig.push("two")?;
        group.look(&rig::now()).await?;
        group.serves(&commit).await?;
        assert_eq!(jobs_for(&group, &commit).await?, 1);
        rig.proxy.heal();
        rig.namespace
            .api::<ConfigMap>()
            .delete("soup-desired", &DeleteParams::default())
            .await?;
        rig.namespace
            .until::<ConfigMap>("soup-desired", |map: Option<&ConfigMap>| {
                map.is_some_and(|map| map.metadata.deletion_timestamp.is_none())
            })
            .await?;
        rig.namespace
            .until::<Deployment>("soup-default", available)
            .await?;
        Ok(())
    })
    .await;
}
