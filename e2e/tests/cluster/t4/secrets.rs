//! Keys and secrets: where they work, that they change, and where they never stand.

use std::fmt::Debug;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Event, Pod, Secret},
};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Caller, GRPC, GitHost, Group, Namespace, Refusal, Release, Tier, request, tool, with_temp_ns,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tonic::Code;

use super::{arrives, greeting};

/// Whether that key opens the group now.
async fn opens(address: &str, key: &str) -> anyhow::Result<bool> {
    let caller = Caller::connect(&format!("{address}:{GRPC}"), key).await?;
    match caller.tool("greet", json!({ "name": "Ana" })).await {
        Ok(_) => Ok(true),
        Err(Refusal::Status(Code::Unauthenticated, _)) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

async fn until_opens(group: &Group, key: &str, wanted: bool) -> anyhow::Result<()> {
    let (pod, address) = group.addresses().await?.remove(0);
    let what = format!("a key opens: {wanted}");
    arrives(&group.namespace, &pod, &what, async || {
        Ok(opens(&address, key).await? == wanted)
    })
    .await
}

async fn write(namespace: &Namespace, name: &str, change: serde_json::Value) -> anyhow::Result<()> {
    let secrets = namespace.api::<Secret>();
    secrets
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn keys_are_rotated_without_a_restart() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        let old = group.key().await?;
        let pods: Vec<_> = group.pods().await?.iter().map(ResourceExt::uid).collect();
        assert!(old.starts_with("rmk_"), "the key has another form");

        let next = "rmk_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        write(
            &namespace,
            "library-mcp-keys",
            json!({ "stringData": { "next": next } }),
        )
        .await?;
        until_opens(&group, next, true).await?;
        let (_, address) = group.addresses().await?.remove(0);
        assert!(opens(&address, &old).await?, "both are valid at once");

        // The first one is thrown away; the operator makes another.
        write(
            &namespace,
            "library-mcp-keys",
            json!({ "data": { "key": null } }),
        )
        .await?;
        until_opens(&group, &old, false).await?;
        namespace
            .until::<Secret>("library-mcp-keys", |secret: Option<&Secret>| {
                let data = secret.and_then(|secret| secret.data.as_ref());
                data.and_then(|data| data.get("key"))
                    .is_some_and(|key| key.0 != old.as_bytes())
            })
            .await?;
        until_opens(&group, &group.key().await?, true).await?;
        assert!(opens(&address, next).await?);
        let after: Vec<_> = group.pods().await?.iter().map(ResourceExt::uid).collect();
        assert_eq!(after, pods);
        Ok(())
    })
    .await;
}

/// Says the secret aloud wherever a tool can, and in an error.
const SPILL: &str = "
import base64, os, sys

def spill(mode):
    secret = os.environ['RAMEN_SECRET_LIBRARY__TOKEN']
    print('printed', secret)
    sys.stderr.write(f'on stderr {secret}\\n')
    sys.stderr.flush()
    if mode == 'error':
        raise ValueError(f'it was {secret} or {base64.b64encode(secret.encode()).decode()}')
    return str(len(secret))
";

async fn text_of<K>(namespace: &Namespace) -> anyhow::Result<String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    let all = namespace.api::<K>().list(&ListParams::default()).await?;
    Ok(serde_json::to_string(&all)?)
}

/// Everything of a namespace that people and programs read who may not read Secrets.
async fn readable(
    namespace: &Namespace,
    release: &Release,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut texts = vec![
        (
            "ConfigMaps".to_owned(),
            text_of::<ConfigMap>(namespace).await?,
        ),
        ("Jobs".to_owned(), text_of::<Job>(namespace).await?),
        ("Pods".to_owned(), text_of::<Pod>(namespace).await?),
        ("Events".to_owned(), text_of::<Event>(namespace).await?),
        (
            "McpGroups".to_owned(),
            text_of::<McpGroup>(namespace).await?,
        ),
        (
            "the operator's metrics".to_owned(),
            metrics(&release.url("operator", 8080)).await?,
        ),
    ];
    let pods = namespace.api::<Pod>();
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.name_any();
        texts.push((
            format!("log of {name}"),
            pods.logs(&name, &LogParams::default()).await?,
        ));
        let worker = pod
            .labels()
            .get("app.kubernetes.io/component")
            .is_some_and(|of| of == "worker");
        let address = pod
            .status
            .and_then(|status| status.pod_ip)
            .unwrap_or_default();
        if worker {
            let page = metrics(&format!("http://{address}:9090")).await?;
            texts.push((format!("metrics of {name}"), page));
        }
    }
    Ok(texts)
}

async fn metrics(base: &str) -> anyhow::Result<String> {
    let page = request("GET", &format!("{base}/metrics"), &[], b"").await?;
    anyhow::ensure!(page.status == 200, "{}", page.body);
    Ok(page.body)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_secrets_reach_the_code_roll_it_when_they_change_and_stand_nowhere_else() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({})).await?;
        let planted = "planted-7f3c9a1e55";
        let later = "planted-later-b81d20cc";
        let password = "git-password-4e2f66a0";
        namespace.apply::<Secret>("values", json!({ "stringData": { "TOKEN": planted } })).await?;
        let git = GitHost::https("ci", password)?;
        let credentials = json!({ "stringData": git.credentials() });
        namespace.apply::<Secret>("git", credentials).await?;
        let authority = json!({ "stringData": { "ca.crt": git.authority() } });
        namespace.apply::<Secret>("git-ca", authority).await?;
        let commit = git.push(&tool("spill", &json!({ "mode": { "type": "string" } }), SPILL))?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["source"]["secretRef"] = json!({ "name": "git" });
        spec["source"]["caSecretRef"] = json!({ "name": "git-ca" });
        spec["secrets"] = json!([{ "name": "values" }]);
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&commit).await?;
        let (_, caller) = group.callers().await?.remove(0);
        let length = caller.tool("spill", json!({ "mode": "plain" })).await?;
        assert_eq!(length, planted.len().to_string());
        let error = caller.tool("spill", json!({ "mode": "error" })).await.unwrap_err();
        assert!(matches!(&error, Refusal::Tool(text) if text.contains("ValueError") && !text.contains(planted)));

        // A failed deploy, whose words stand in the status and the job's log, says it too.
        let import = "import os\nraise RuntimeError(os.environ['RAMEN_SECRET_LIBRARY__TOKEN'])\n";
        git.push(&tool("spill", &json!({ "mode": { "type": "string" } }), import))?;
        group.look("import").await?;
        group.until(|group| group.status.as_ref().is_some_and(|status| !status.errors.is_empty())).await?;
        let pods: Vec<_> = group.pods().await?.iter().map(ResourceExt::uid).collect();
        let key = group.key().await?;
        let admin = namespace.api::<Secret>().get("library-admin-key").await?;
        let admin = String::from_utf8(admin.data.unwrap_or_default()["key"].0.clone())?;
        for (place, text) in readable(&namespace, &release).await? {
            for secret in [planted, password, &key, &admin] {
                assert!(!text.contains(secret), "{place} holds a secret: {secret}");
            }
        }

        // A change rolls the pods, and the new value counts.
        write(&namespace, "values", json!({ "stringData": { "TOKEN": later } })).await?;
        group
            .until(|group| group.status.as_ref().is_some_and(|status| status.replicas.as_deref() == Some("1/1")))
            .await?;
        let changed = async || {
            let now: Vec<_> = group.pods().await?.iter().map(ResourceExt::uid).collect();
            anyhow::Ok(now.len() == 1 && now != pods)
        };
        for pod in pods.iter().flatten() {
            // The old one goes when the new one answers.
            let name = old_name(&group, pod).await?;
            if let Some(name) = name {
                namespace.until::<Pod>(&name, ramen_e2e::gone).await?;
            }
        }
        assert!(changed().await?);
        let (_, caller) = group.callers().await?.remove(0);
        let length = caller.tool("spill", json!({ "mode": "plain" })).await?;
        assert_eq!(length, later.len().to_string());

        // Gone, the group says so, and what serves goes on.
        namespace.api::<Secret>().delete("values", &DeleteParams::default()).await?;
        group
            .until(|group| {
                let conditions = group.status.iter().flat_map(|status| &status.conditions);
                conditions.into_iter().any(|condition| condition.reason == "SecretMissing")
            })
            .await?;
        caller.tool("spill", json!({ "mode": "plain" })).await?;
        Ok(())
    })
    .await;
}

async fn old_name(group: &Group, uid: &str) -> anyhow::Result<Option<String>> {
    let pods = group
        .namespace
        .api::<Pod>()
        .list(&ListParams::default())
        .await?;
    let old = pods
        .into_iter()
        .find(|pod| pod.metadata.uid.as_deref() == Some(uid));
    Ok(old.map(|pod| pod.name_any()))
}
