//! Real workers and real deploys: what serves goes on serving, counted in calls.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::DeleteParams};
use ramen_e2e::{Caller, GRPC, Group, Load, Refusal, gone, serving};
use serde_json::json;
use tonic::Code;

use super::rig::{self, Rig, condition, is, now, words};

/// A group of two pods that serves its first revision.
async fn two(rig: &Rig) -> anyhow::Result<(Group, String)> {
    let commit = rig.push("one")?;
    let mut spec = Group::spec(&rig.git.url(), 2);
    spec["worker"] = json!({ "hosts": 1 });
    let group = Group::apply(&rig.namespace, "soup", spec).await?;
    group.serves(&commit).await?;
    Ok((group, commit))
}

/// Every call that did not give one of these texts, in words.
fn others(outcomes: &[ramen_e2e::Outcome], texts: &[&str]) -> Vec<String> {
    let wrong = outcomes.iter().filter_map(|outcome| match &outcome.answer {
        Ok(text) if texts.contains(&text.as_str()) => None,
        Ok(text) => Some(format!("{}: {text}", outcome.pod)),
        Err(refusal) => Some(format!("{}: {refusal}", outcome.pod)),
    });
    wrong.collect()
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_push_and_a_bad_push_cost_no_call_and_the_bad_one_serves_nowhere() {
    rig::for_real(async |rig| {
        let (group, _) = two(rig).await?;
        let load = Load::start(&group.callers().await?, "say", &json!({}), 20);
        let second = rig.push("two")?;
        group.look(&now()).await?;
        group.serves(&second).await?;

        // Its one tool cannot be imported.
        let broken = ramen_e2e::tool("say", &json!({}), "import nowhere\n");
        let bad = rig.git.push(&broken)?;
        group.look(&now()).await?;
        let refused = group
            .until(|group| is(group, "Ready", "True", "LastGoodServes"))
            .await?;
        assert!(serving(&refused).ends_with(&second), "{refused:?}");
        let status = refused.status.as_ref().context("a status")?;
        let attempted = status
            .revision
            .as_ref()
            .and_then(|one| one.attempted.as_deref());
        assert!(
            attempted.is_some_and(|one| one.ends_with(&bad)),
            "{status:?}"
        );
        assert!(
            status
                .errors
                .iter()
                .any(|error| error.reason == "ImportFailed"),
            "{:?}",
            status.errors
        );
        let outcomes = load.stop().await;
        assert!(outcomes.len() > 20, "only {} calls", outcomes.len());
        assert_eq!(others(&outcomes, &["one", "two"]), [""; 0]);
        for (pod, caller) in group.callers().await? {
            assert_eq!(caller.tool("say", json!({})).await?, "two", "{pod}");
        }
        Ok(())
    })
    .await;
}

/// Ends every process that loads it to serve, and none that only tries it.
const CRASHES: &str = "
import os
with open(f'/proc/{os.getppid()}/cmdline') as parent:
    if 'serve' in parent.read():
        os._exit(9)

def say():
    return 'three'
";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_revision_that_crashes_after_its_deploy_was_ok_does_not_replace_what_serves() {
    rig::for_real(async |rig| {
        let (group, first) = two(rig).await?;
        let load = Load::start(&group.callers().await?, "say", &json!({}), 20);
        let bad = rig.git.push(&ramen_e2e::tool("say", &json!({}), CRASHES))?;
        group.look(&now()).await?;
        let refused = group
            .until(|group| is(group, "Ready", "True", "LastGoodServes"))
            .await?;
        assert!(serving(&refused).ends_with(&first), "{refused:?}");
        // The deploy was fine: it is the loading that was not.
        let status = refused.status.as_ref().context("a status")?;
        let last = status.last_deploy.as_ref().context("a last deploy")?;
        assert!(
            last.revision.ends_with(&bad) && last.outcome == "ok",
            "{last:?}"
        );
        let deployed = condition(&refused, "Deployed").context("Deployed")?;
        assert!(deployed.message.contains(&bad), "{deployed:?}");

        // The next good one is not held up by it.
        let good = rig.push("two")?;
        group.look(&now()).await?;
        group.serves(&good).await?;
        let outcomes = load.stop().await;
        assert!(outcomes.len() > 20, "only {} calls", outcomes.len());
        assert_eq!(others(&outcomes, &["one", "two"]), [""; 0]);
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_worker_that_is_killed_costs_only_the_calls_in_it() {
    rig::for_real(async |rig| {
        let (group, commit) = two(rig).await?;
        let pods = group.pods().await?;
        let (victim, other) = (pods[0].name_any(), pods[1].name_any());
        let load = Load::start(&group.callers().await?, "say", &json!({}), 50);
        rig.player.kill(&victim);
        rig.namespace
            .until::<Pod>(&victim, |pod: Option<&Pod>| restarted(pod) > 0)
            .await?;
        group.serves(&commit).await?;
        let outcomes = load.stop().await;
        let (dead, alive): (Vec<_>, Vec<_>) = outcomes
            .into_iter()
            .partition(|outcome| outcome.pod == victim);
        assert_eq!(others(&alive, &["one"]), [""; 0], "calls of {other}");
        // No call is answered wrongly, and none of them with anything but that nobody is there.
        for outcome in &dead {
            let fine = match &outcome.answer {
                Ok(text) => text == "one",
                Err(Refusal::Status(code, _)) => {
                    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled)
                }
                Err(_) => false,
            };
            assert!(fine, "{outcome:?}");
        }
        let address = group.addresses().await?;
        for (pod, address) in address {
            let caller = Caller::connect(&format!("{address}:{GRPC}"), &group.key().await?).await?;
            assert_eq!(caller.tool("say", json!({})).await?, "one", "{pod}");
        }
        Ok(())
    })
    .await;
}

fn restarted(pod: Option<&Pod>) -> i32 {
    let containers = pod
        .and_then(|pod| pod.status.as_ref())
        .and_then(|status| status.container_statuses.as_ref());
    containers
        .into_iter()
        .flatten()
        .map(|container| container.restart_count)
        .sum()
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn pods_that_restart_while_the_operator_is_down_serve_what_served() {
    rig::for_real(async |rig| {
        let (group, first) = two(rig).await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        group.serves(&second).await?;
        rig.operator.kill().await?;
        // A restarted container finds its layers in its own folder.
        let pods = group.pods().await?;
        let restarted_pod = pods[0].name_any();
        rig.player.kill(&restarted_pod);
        rig.namespace
            .until::<Pod>(&restarted_pod, |pod: Option<&Pod>| {
                restarted(pod) > 0 && pod.is_some_and(ready)
            })
            .await?;
        for (pod, caller) in group.callers().await? {
            assert_eq!(caller.tool("say", json!({})).await?, "two", "{pod}");
        }
        // A new pod has nothing yet and waits for the operator's endpoint; it is not lost for that.
        let deleted = pods[1].name_any();
        rig.namespace
            .api::<Pod>()
            .delete(&deleted, &DeleteParams::default())
            .await?;
        rig.namespace.until::<Pod>(&deleted, gone).await?;
        rig.operator.up().await?;
        let served = group.serves(&second).await?;
        assert!(!serving(&served).ends_with(&first));
        for (pod, caller) in group.callers().await? {
            assert_ne!(pod, deleted);
            assert_eq!(caller.tool("say", json!({})).await?, "two", "{pod}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_revision_whose_pod_ends_again_and_again_is_taken_back_whoever_counts() {
    rig::for_real(async |rig| {
        let (group, first) = rig.live("soup").await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        group.serves(&second).await?;
        let pod = group.pods().await?[0].name_any();
        for ends in 1..=2 {
            rig.player.kill(&pod);
            rig.namespace
                .until::<Pod>(&pod, |pod: Option<&Pod>| {
                    restarted(pod) == ends && pod.is_some_and(ready)
                })
                .await?;
        }
        rig.operator.kill().await?;
        rig.operator.up().await?;
        // Twice is an accident, also for an operator that was not there.
        group.look(&now()).await?;
        group.serves(&second).await?;
        rig.player.kill(&pod);
        let back = group
            .until(|group| serving(group).ends_with(&first))
            .await?;
        let pod = rig.namespace.api::<Pod>().get(&pod).await?;
        assert_eq!(restarted(Some(&pod)), 3, "it was taken back too early");
        assert!(
            words(&back, "Deployed").contains(&second),
            "{:?}",
            condition(&back, "Deployed")
        );
        Ok(())
    })
    .await;
}

fn ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn calls_go_on_while_the_api_server_and_the_operator_are_away() {
    rig::for_real(async |rig| {
        let (group, commit) = two(rig).await?;
        let load = Load::start(&group.callers().await?, "say", &json!({}), 20);
        rig.proxy.freeze();
        rig.operator.kill().await?;
        rig.operator.start()?;
        // Frozen out, it starts and waits; then it looks at everything and disturbs nothing.
        rig.proxy.heal();
        rig.operator.ready().await?;
        let served = group.serves(&commit).await?;
        assert!(condition(&served, "Stalled").is_none());
        let outcomes = load.stop().await;
        assert_eq!(others(&outcomes, &["one"]), [""; 0]);
        Ok(())
    })
    .await;
}
