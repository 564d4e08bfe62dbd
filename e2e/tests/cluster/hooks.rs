//! Webhooks on their way into a real cluster, and layers in a bucket. The groups look by themselves once an hour: within a
//! test, only a hook explains that they see a push.

use futures::{StreamExt as _, stream};
use hmac::{Hmac, Mac as _};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Event, Pod, Secret, Service},
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ramen_e2e::{
    GitHost, Group, Namespace, Release, Tier, condition, gone, request, s3, serving, tool,
    with_temp_ns,
};
use ramen_source::testing::S3;
use serde_json::{Value, json};

const SECRET: &str = "a-secret-of-this-test";

fn greeting(version: &str) -> [(String, String); 2] {
    let source = format!("def greet(name):\n    return f'{version} greets {{name}}'\n");
    tool("greet", &json!({ "name": { "type": "string" } }), &source)
}

/// What a person needs for hooks: a receiver named `acme`, and metrics that a test may read.
async fn values(namespace: &Namespace) -> anyhow::Result<Value> {
    let secret = json!({ "stringData": { "acme.github": SECRET } });
    namespace.apply::<Secret>("hooks", secret).await?;
    Ok(json!({
        "webhooks": { "enabled": true, "secretName": "hooks" },
        "networkPolicy": { "metricsFrom": [{ "ipBlock": { "cidr": "10.0.0.0/8" } }] },
    }))
}

/// The Secret of a bucket.
fn variables(bucket: &S3) -> Value {
    let variables = bucket.variables().into_iter();
    let variables: serde_json::Map<_, _> = variables
        .map(|(name, value)| (name, Value::from(value)))
        .collect();
    json!({ "stringData": variables })
}

/// A group that looks by itself once an hour.
async fn group(namespace: &Namespace, git: &GitHost, replicas: u32) -> anyhow::Result<Group> {
    let mut spec = Group::spec(&git.url(), replicas);
    spec["source"]["interval"] = "1h".into();
    Group::apply(namespace, "library", spec).await
}

/// A push as GitHub tells of it, signed.
async fn hook(url: &str, git: &GitHost, reference: &str, delivery: &str) -> anyhow::Result<u16> {
    hook_with(url, git, reference, delivery, SECRET).await
}

async fn hook_with(
    url: &str,
    git: &GitHost,
    reference: &str,
    delivery: &str,
    secret: &str,
) -> anyhow::Result<u16> {
    let body = json!({
        "ref": reference, "before": "0".repeat(40), "after": "1".repeat(40),
        "repository": { "full_name": "acme/library", "clone_url": git.url() },
    });
    let body = body.to_string();
    let mut mac = <Hmac<sha2::Sha256> as hmac::Mac>::new_from_slice(secret.as_bytes())?;
    mac.update(body.as_bytes());
    let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
    let headers = [
        ("content-type", "application/json"),
        ("x-github-event", "push"),
        ("x-github-delivery", delivery),
        ("x-hub-signature-256", signature.as_str()),
    ];
    let url = format!("{url}/v1/hooks/acme");
    Ok(request("POST", &url, &headers, body.as_bytes())
        .await?
        .status)
}

/// A series of the operator, of the receiver `acme`.
async fn counted(release: &Release, outcome: &str) -> anyhow::Result<u64> {
    let url = format!("{}/metrics", release.url("operator", 8080));
    let text = request("GET", &url, &[], b"").await?.body;
    let labels = [
        "receiver=\"acme\"".to_owned(),
        format!("outcome=\"{outcome}\""),
    ];
    let mut lines = text.lines().filter(|line| {
        line.starts_with("ramen_operator_hooks_total{")
            && labels.iter().all(|label| line.contains(label))
    });
    let value = lines.next().and_then(|line| line.rsplit(' ').next());
    Ok(value.map_or(Ok(0), str::parse)?)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_signed_hook_makes_a_push_live_on_all_replicas_and_a_thousand_are_few_looks() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, values(&namespace).await?).await?;
        let service = namespace.api::<Service>().get("ramen-hooks").await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .unwrap_or_default();
        let url = format!("http://{address}:8082");
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = group(&namespace, &git, 3).await?;
        group.serves(&first).await?;
        let callers = group.callers().await?;
        assert_eq!(callers.len(), 3);

        // Nothing of this is a reason to look.
        let second = git.push(&greeting("two"))?;
        let before = git.looks();
        assert_eq!(
            hook_with(&url, &git, "refs/heads/main", "1", "another-secret").await?,
            401
        );
        assert_eq!(hook(&url, &git, "refs/heads/topic", "2").await?, 202);
        assert_eq!(hook(&url, &git, "refs/tags/main", "3").await?, 202);
        assert_eq!(counted(&release, "unmatched").await?, 2);
        assert_eq!(counted(&release, "refused").await?, 1);
        assert_eq!(git.looks(), before);
        assert!(serving(&group.get().await?).ends_with(&first));

        assert_eq!(hook(&url, &git, "refs/heads/main", "4").await?, 202);
        group.serves(&second).await?;
        for (pod, caller) in &callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "two greets Bo", "{pod}");
        }
        // The same files in another commit: the revision is noted, and nothing is deployed.
        let deploys = namespace
            .api::<Job>()
            .list(&ListParams::default())
            .await?
            .items
            .len();
        let same = git.push(&greeting("two"))?;
        assert_eq!(hook(&url, &git, "refs/heads/main", "5").await?, 202);
        group.serves(&same).await?;
        assert_eq!(
            namespace
                .api::<Job>()
                .list(&ListParams::default())
                .await?
                .items
                .len(),
            deploys
        );

        let about = format!("involvedObject.name={},reason=HookReceived", group.name);
        let events = ListParams::default().fields(&about);
        namespace_event(&namespace, &events).await?;

        let third = git.push(&greeting("three"))?;
        let before = git.looks();
        let answers: Vec<u16> = stream::iter(0..1000)
            .map(|n| {
                let (url, git) = (&url, &git);
                async move { hook(url, git, "refs/heads/main", &format!("flood-{n}")).await }
            })
            .buffer_unordered(32)
            .map(Result::unwrap_or_default)
            .collect()
            .await;
        group.serves(&third).await?;
        let of = |status| answers.iter().filter(|one| **one == status).count();
        assert_eq!(of(202) + of(429), 1000, "{} accepted", of(202));
        assert!(of(429) > of(202), "{} accepted", of(202));
        // A look is one question, the fetch of the new commit another.
        let looks = git.looks() - before;
        assert!(
            looks <= of(202) + 5,
            "{looks} questions, {} hooks accepted",
            of(202)
        );
        for (pod, caller) in &callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "three greets Bo", "{pod}");
        }
        Ok(())
    })
    .await;
}

/// Waits for an Event; they are written after what they tell of.
async fn namespace_event(namespace: &Namespace, events: &ListParams) -> anyhow::Result<()> {
    let api = namespace.api::<Event>();
    let seen = async {
        loop {
            if !api.list(events).await?.items.is_empty() {
                return Ok::<_, kube::Error>(());
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), seen).await??;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_hook_to_the_replica_without_the_lease_is_not_lost_and_a_bucket_is_its_store() {
    with_temp_ns(Tier::T4, async |namespace| {
        let bucket = s3().await?;
        namespace
            .apply::<Secret>("bucket", variables(&bucket))
            .await?;
        let mut values = values(&namespace).await?;
        values["replicas"] = 2.into();
        values["artifacts"] = json!({ "store": "s3://ramen/layers", "secretName": "bucket" });
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = group(&namespace, &git, 2).await?;
        group.serves(&first).await?;

        let lease = namespace.api::<Lease>().get("ramen-operator").await?;
        let leader = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default();
        let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
        let pods = namespace.api::<Pod>().list(&ours).await?.items;
        let standby: Vec<_> = pods.iter().filter(|pod| pod.name_any() != leader).collect();
        let [standby] = standby[..] else {
            anyhow::bail!("{} pods besides {leader}", standby.len())
        };
        let address = standby
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.clone());
        let url = format!("http://{}:8082", address.unwrap_or_default());

        let second = git.push(&greeting("two"))?;
        assert_eq!(hook(&url, &git, "refs/heads/main", "1").await?, 202);
        let live = group.serves(&second).await?;
        let mark = live
            .annotations()
            .get("ramen.dev/hinted-at")
            .cloned()
            .unwrap_or_default();
        assert!(
            mark.ends_with(&standby.name_any()),
            "{mark:?} is not of {}",
            standby.name_any()
        );
        for (pod, caller) in group.callers().await? {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "two greets Bo", "{pod}");
        }
        // The layers are in the bucket. Lost there, they are made again when a new pod asks for them.
        let blobs = bucket.file("layers/blobs");
        let layers = || anyhow::Ok(std::fs::read_dir(&blobs)?.collect::<Result<Vec<_>, _>>()?);
        let kept = layers()?;
        assert!(kept.len() >= 2, "{kept:?}");
        for layer in kept {
            std::fs::remove_file(layer.path())?;
        }
        let before = group.pods().await?;
        let victim = before[0].name_any();
        namespace
            .api::<Pod>()
            .delete(&victim, &DeleteParams::default())
            .await?;
        let known = |pod: &Pod| {
            before
                .iter()
                .any(|other| other.name_any() == pod.name_any())
        };
        let new = loop {
            let pods = group.pods().await?;
            if let Some(pod) = pods.into_iter().find(|pod| !known(pod)) {
                break pod.name_any();
            }
        };
        namespace
            .until::<Pod>(&new, condition::<Pod>("Ready", "True"))
            .await?;
        assert!(!layers()?.is_empty());
        for (pod, caller) in group.callers().await? {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "two greets Bo", "{pod}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn without_an_operator_pods_start_again_and_scale_up_from_the_bucket() {
    with_temp_ns(Tier::T4, async |namespace| {
        let bucket = s3().await?;
        namespace
            .apply::<Secret>("bucket", variables(&bucket))
            .await?;
        let values = json!({ "artifacts": {
            "store": "s3://ramen/layers", "secretName": "bucket",
            "pods": { "enabled": true, "secretName": "bucket", "cidrs": ["10.0.0.0/8"] },
        }});
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = group(&namespace, &git, 2).await?;
        group.serves(&first).await?;

        let deployments = namespace.api::<Deployment>();
        let scale = async |name: &str, replicas: u32| {
            let change = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            deployments
                .patch(name, &PatchParams::default(), &change)
                .await
        };
        let ours = ListParams::default().labels("app.kubernetes.io/component=operator");
        let operators = namespace.api::<Pod>().list(&ours).await?.items;
        assert_eq!(operators.len(), 1);
        scale(Release::NAME, 0).await?;
        namespace
            .until::<Pod>(&operators[0].name_any(), gone)
            .await?;

        let victim = group.pods().await?[0].name_any();
        namespace
            .api::<Pod>()
            .delete(&victim, &DeleteParams::default())
            .await?;
        namespace.until::<Pod>(&victim, gone).await?;
        scale("library-default", 3).await?;
        namespace
            .until::<Deployment>("library-default", |deployment: Option<&Deployment>| {
                let status = deployment.and_then(|deployment| deployment.status.as_ref());
                status.and_then(|status| status.ready_replicas) == Some(3)
            })
            .await?;
        let callers = group.callers().await?;
        assert_eq!(callers.len(), 3);
        for (pod, caller) in callers {
            let answer = caller.tool("greet", json!({ "name": "Bo" })).await?;
            assert_eq!(answer, "one greets Bo", "{pod}");
        }
        Ok(())
    })
    .await;
}
