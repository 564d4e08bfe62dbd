//! Pods that the cluster does not let in, or ends.

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ResourceQuota,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use ramen_e2e::{
    player::{Outcome, Paper, report},
    serving,
};
use serde_json::{Value, json};

use super::rig::{self, Rig, now, says, words};

/// What keeps a deploy from being made is told in the cluster's own words, whatever serves goes on.
async fn is_told(rig: &Rig, wanted: &str) -> anyhow::Result<()> {
    let (group, first) = rig.live("soup").await?;
    refuse_pods(rig, wanted).await?;
    let second = rig.push("two")?;
    group.look(&now()).await?;
    let refused = group
        .until(|group| words(group, "Deployed").contains(wanted))
        .await?;
    assert!(serving(&refused).ends_with(&first), "{refused:?}");
    let ready = refused.status.as_ref().map(|status| &status.zones[0]);
    assert!(ready.is_some_and(|zone| zone.ready == 1), "{refused:?}");

    admit_pods(rig).await?;
    group.serves(&second).await?;
    Ok(())
}

fn names(
    rig: &Rig,
) -> (
    String,
    Api<ValidatingAdmissionPolicy>,
    Api<ValidatingAdmissionPolicyBinding>,
) {
    let client = &rig.namespace.client;
    (
        format!("deny.{}", rig.namespace.name),
        Api::all(client.clone()),
        Api::all(client.clone()),
    )
}

async fn refuse_pods(rig: &Rig, words: &str) -> anyhow::Result<()> {
    if words.contains("quota") {
        let none = json!({ "spec": { "hard": { "pods": "0" } } });
        rig.namespace.apply::<ResourceQuota>("none", none).await?;
        // Until the controller has counted, nothing is refused.
        rig.namespace
            .until::<ResourceQuota>("none", |quota: Option<&ResourceQuota>| {
                quota.is_some_and(|quota| {
                    quota
                        .status
                        .as_ref()
                        .is_some_and(|status| status.used.is_some())
                })
            })
            .await?;
        return Ok(());
    }
    // Pod Security itself has nothing against our pods: a policy says what it would.
    let (name, policies, bindings) = names(rig);
    let apply = PatchParams::apply("ramen-e2e").force();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "validations": [{ "expression": "false", "message": words }],
        },
    });
    policies.patch(&name, &apply, &Patch::Apply(policy)).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": { "matchLabels": {
                "kubernetes.io/metadata.name": rig.namespace.name,
            }}},
        },
    });
    bindings
        .patch(&name, &apply, &Patch::Apply(binding))
        .await?;
    in_force(rig, words).await
}

/// A policy takes a moment to be in force: asked with pods that are not really made.
async fn in_force(rig: &Rig, words: &str) -> anyhow::Result<()> {
    let pods = rig.namespace.api::<k8s_openapi::api::core::v1::Pod>();
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
        "metadata": { "generateName": "try-" },
        "spec": {
            "containers": [{ "name": "a", "image": "a", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            }}],
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        },
    }))?;
    let dry = kube::api::PostParams {
        dry_run: true,
        ..kube::api::PostParams::default()
    };
    let end = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        match pods.create(&dry, &pod).await {
            Err(error) if error.to_string().contains(words) => return Ok(()),
            _ if tokio::time::Instant::now() > end => anyhow::bail!("the policy is not in force"),
            _ => tokio::task::yield_now().await,
        }
    }
}

async fn admit_pods(rig: &Rig) -> anyhow::Result<()> {
    let quotas = rig.namespace.api::<ResourceQuota>();
    if quotas.get_opt("none").await?.is_some() {
        quotas.delete("none", &DeleteParams::default()).await?;
    }
    let (name, policies, bindings) = names(rig);
    if bindings.get_opt(&name).await?.is_some() {
        bindings.delete(&name, &DeleteParams::default()).await?;
        policies.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops06_a_quota_of_no_pods_is_told_and_what_serves_goes_on() {
    rig::on_paper(async |rig| is_told(rig, "exceeded quota: none").await).await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops05_a_refusal_of_pod_security_is_told_and_what_serves_goes_on() {
    rig::on_paper(async |rig| {
        let words = "violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false";
        let outcome = is_told(rig, words).await;
        // Of the whole cluster: not to be left behind.
        admit_pods(rig).await?;
        outcome
    })
    .await;
}

/// The first deploy job of each revision, but for that of the first revision, ends so at both of its tries: it is told in
/// these words while what serves goes on, and another job serves the revision.
async fn is_told_and_tried_again(end: Outcome, wanted: &[&str]) {
    let tries = std::sync::Mutex::new(std::collections::HashMap::<String, u32>::new());
    let paper = Paper::new(move |deploy| {
        let mut tries = tries.lock().expect("nobody panics while holding it");
        let first = tries.is_empty();
        let count = tries.entry(deploy.tree.clone()).or_default();
        *count += 1;
        match (first, *count) {
            // A job has two tries of its own.
            (false, 1 | 2) => end.clone(),
            _ => Outcome::Report(report(deploy, &["say"])),
        }
    });
    rig::with_paper(paper, async |rig| {
        let (group, first) = rig.live("soup").await?;
        let second = rig.push("two")?;
        group.look(&now()).await?;
        let died = group
            .until(|group| {
                let told = words(group, "Deployed");
                wanted.iter().all(|words| told.contains(words))
            })
            .await?;
        assert!(serving(&died).ends_with(&first), "{died:?}");
        group.serves(&second).await?;
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops10_a_deploy_job_that_dies_is_told_in_words_and_tried_again() {
    is_told_and_tried_again(Outcome::OutOfMemory, &["memory"]).await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn req11_a_deploy_job_that_is_evicted_for_its_disk_is_told_so_and_tried_again() {
    // In the words of a kubelet.
    let why = "Pod ephemeral local storage usage exceeds the total limit of containers 256Mi.";
    is_told_and_tried_again(
        Outcome::Evicted(why),
        &["Evicted", why, "raise the limit of ephemeral-storage"],
    )
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn two_thousand_errors_of_ten_kibibytes_are_a_status_that_the_cluster_takes() {
    let paper = Paper::new(|deploy| {
        let mut report = report(deploy, &["say"]);
        // 20 MiB in all, of which a deploy job sends what the endpoint takes.
        let text = "ラーメン ".repeat(788);
        assert!(text.len() >= 10 << 10);
        let errors: Vec<Value> = (0..2000)
            .map(|n| {
                json!({
                    "package": format!("tools/bad{n}"), "reason": "ImportFailed",
                    "message": format!("{n} {text}"), "path": format!("mcp/tools/bad{n}/bad{n}.py"),
                })
            })
            .collect();
        report["errors"] = json!(errors);
        report["outcome"] = json!("partial");
        Outcome::Report(report)
    });
    rig::with_paper(paper, async |rig| {
        let commit = rig.git.push(&says("one"))?;
        let group = rig.group("soup").await?;
        let served = group
            .until(|group| serving(group).ends_with(&commit))
            .await?;
        let size = serde_json::to_vec(&served)?.len();
        assert!(size < 64 * 1024, "{size} bytes");
        let status = served.status.unwrap_or_default();
        assert_eq!(status.errors_total, Some(2000));
        assert_eq!(status.errors.len(), 50);
        assert!(status.errors.iter().all(|error| error.message.len() <= 512));
        Ok(())
    })
    .await;
}
