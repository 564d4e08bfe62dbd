//! Pushes while calls come in: good ones, bad ones, and the ways back.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{ResourceExt as _, api::ListParams};
use ramen_crds::McpGroup;
use ramen_e2e::{
    GitHost, Group, Load, Outcome, Release, Tier, condition, serving, tool, with_temp_ns,
};
use serde_json::json;

use super::greeting;

/// A pod and how often its containers started again.
fn identity(pod: &Pod) -> (Option<String>, i32) {
    let containers = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let restarts = containers
        .into_iter()
        .flatten()
        .map(|container| container.restart_count);
    (pod.uid(), restarts.sum())
}

fn failed(outcomes: &[Outcome]) -> Vec<&Outcome> {
    outcomes
        .iter()
        .filter(|outcome| outcome.answer.is_err())
        .collect()
}

/// Whether a pod has given that answer.
fn gave(outcomes: &[Outcome], pod: &str, answer: &str) -> bool {
    outcomes
        .iter()
        .any(|outcome| outcome.pod == pod && outcome.answer.as_deref() == Ok(answer))
}

/// The newest revision was refused, and something older serves.
fn refused(group: &McpGroup) -> bool {
    condition::<McpGroup>("Deployed", "False")(Some(group))
        && condition::<McpGroup>("Ready", "True")(Some(group))
}

fn reasons(group: &McpGroup) -> Vec<(Option<&str>, &str)> {
    let errors = group.status.iter().flat_map(|status| &status.errors);
    errors
        .map(|entry| (entry.package.as_deref(), &*entry.reason))
        .collect()
}

/// Loads in a deploy job, and ends its process in a worker.
const CRASH: &str = "
import os
if os.path.exists('/run/ramen/keys'):
    os._exit(3)

def greet(name):
    return 'never'
";

/// Where the source's ref points.
fn observed(group: &McpGroup) -> &str {
    let status = group.status.as_ref();
    let revision = status.and_then(|status| status.revision.as_ref());
    revision
        .and_then(|revision| revision.observed.as_deref())
        .unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn pushes_good_and_bad_and_ways_back_lose_no_call_and_no_pod() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 3)).await?;
        group.serves(&first).await?;
        let pods: Vec<_> = group.pods().await?.iter().map(identity).collect();
        let callers = group.callers().await?;
        assert_eq!(callers.len(), 3);
        let load = Load::start(&callers, "greet", &json!({ "name": "Ana" }), 20);

        // A good one is live everywhere.
        let second = git.push(&greeting("two"))?;
        group.look("two").await?;
        group.serves(&second).await?;
        for (pod, caller) in &callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "two greets Bo", "{pod}");
        }

        // A bad one is an entry, and the last good one serves.
        let [descriptor, (path, _)] = greeting("three");
        let bad = git.push(&[
            descriptor,
            (path, "def greet(name):\n    return (\n".to_owned()),
        ])?;
        group.look("three").await?;
        let status = group
            .until(|group| refused(group) && !reasons(group).is_empty())
            .await?;
        assert!(serving(&status).ends_with(&second));
        assert_eq!(
            reasons(&status),
            [(Some("tools/greet"), "ImportFailed")],
            "{bad}"
        );
        for (pod, caller) in &callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "two greets Bo", "{pod}");
        }

        // One that deploys and does not come up in the workers is taken back.
        let fourth = git.push(&tool(
            "greet",
            &json!({ "name": { "type": "string" } }),
            CRASH,
        ))?;
        group.look("four").await?;
        let status = group
            .until(|group| refused(group) && observed(group).ends_with(&fourth))
            .await?;
        assert!(serving(&status).ends_with(&second), "{status:?}");
        assert!(!reasons(&status).is_empty(), "{status:?}");

        // Back to the first by name: it is kept ready, so nothing is deployed again.
        let jobs = namespace
            .api::<Job>()
            .list(&ListParams::default())
            .await?
            .items
            .len();
        group
            .patch(json!({ "source": { "ref": { "branch": null, "commit": first } } }))
            .await?;
        group.serves(&first).await?;
        for (pod, caller) in &callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "one greets Bo", "{pod}");
        }
        assert_eq!(
            namespace
                .api::<Job>()
                .list(&ListParams::default())
                .await?
                .items
                .len(),
            jobs
        );

        let outcomes = load.stop().await;
        assert_eq!(
            failed(&outcomes),
            Vec::<&Outcome>::new(),
            "of {}",
            outcomes.len()
        );
        for (pod, _) in &callers {
            assert!(
                gave(&outcomes, pod, "one greets Ana") && gave(&outcomes, pod, "two greets Ana"),
                "{pod}"
            );
            assert!(!gave(&outcomes, pod, "never"), "{pod}");
        }
        let after: Vec<_> = group.pods().await?.iter().map(identity).collect();
        assert_eq!(after, pods, "no pod was replaced or started again");
        Ok(())
    })
    .await;
}
