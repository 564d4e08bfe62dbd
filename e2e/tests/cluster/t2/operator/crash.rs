//! The operator is killed after every write that it makes.

use ramen_e2e::{Fault, Group, Request};

use super::{
    rig::{self, Rig},
    snapshot::{children, difference, jobs, jobs_for},
};

/// More writes than a reconcile has.
const MANY: usize = 80;

/// Counted: its lease is renewed by the clock, and events tell what was.
fn counts(request: &Request) -> bool {
    request.writes() && !request.is_of("leases") && !request.is_of("events")
}

/// Kills the operator right after its `n`th write from now on, whose answer it never sees, and starts it again. False when
/// the revision serves before it has written so often.
async fn killed_after(
    rig: &mut Rig,
    n: usize,
    group: &Group,
    commit: &str,
) -> anyhow::Result<bool> {
    tokio::select! {
        () = rig.proxy.frozen() => {}
        served = group.serves(commit) => {
            served?;
            return Ok(false);
        }
    }
    eprintln!("killed after write {n} of {}", group.name);
    rig.operator.kill().await?;
    rig.proxy.heal();
    rig.operator.up().await?;
    Ok(true)
}

fn freeze_at(rig: &Rig, n: usize) {
    let mut written = 0;
    rig.proxy.script(move |request| {
        written += usize::from(counts(request));
        (counts(request) && written == n).then_some(Fault::Freeze)
    });
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops12_a_new_group_comes_up_whatever_write_the_operator_is_killed_after() {
    rig::on_paper(async |rig| {
        let (first, commit) = rig.live("zz-first").await?;
        let wanted = children(&first).await?;
        for n in 1.. {
            assert!(n < MANY, "the operator never stops writing");
            freeze_at(rig, n);
            let group = rig.group(&format!("zz-{n:03}")).await?;
            if !killed_after(rig, n, &group, &commit).await? {
                assert!(n > 10, "only {n} writes were seen");
                break;
            }
            rig.serves(&group, &commit).await?;
            let found = children(&group).await?;
            assert_eq!(difference(&wanted, &found), "", "after write {n}");
            // Killed in the middle of it, it goes on with the job that it had begun.
            assert_eq!(jobs(&group).await?.len(), 1, "after write {n}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops12_a_push_comes_into_service_whatever_write_the_operator_is_killed_after() {
    rig::on_paper(async |rig| {
        let (group, _) = rig.live("zz-first").await?;
        for n in 1.. {
            assert!(n < MANY, "the operator never stops writing");
            let commit = rig.push(&format!("push {n}"))?;
            freeze_at(rig, n);
            group.look(&rig::now()).await?;
            if !killed_after(rig, n, &group, &commit).await? {
                assert!(n > 3, "only {n} writes were seen");
                break;
            }
            rig.serves(&group, &commit).await?;
            assert_eq!(jobs_for(&group, &commit).await?, 1, "after write {n}");
        }
        rig.proxy.heal();
        let fresh = rig.group("zz-fresh").await?;
        let commit = rig.push("the last")?;
        for group in [&group, &fresh] {
            group.look(&rig::now()).await?;
            rig.serves(group, &commit).await?;
        }
        let difference = difference(&children(&group).await?, &children(&fresh).await?);
        assert_eq!(difference, "");
        Ok(())
    })
    .await;
}
