//! From `helm install` to an answer, and away again.

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams},
    core::NamespaceResourceScope,
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Caller, GRPC, GitHost, Group, Namespace, Refusal, Release, Tier, gone, kubectl, kubectl_with,
    tool, with_temp_ns,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tonic::Code;

use super::greeting;

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn helm_install_then_apply_then_every_replica_answers() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({})).await?;
        let tested = release.test().await?;
        assert!(tested.contains("Succeeded"), "{tested}");

        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let written = json!({
            "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
            "metadata": { "name": "library", "namespace": namespace.name },
            "spec": Group::spec(&git.url(), 2),
        });
        kubectl_with(&["apply", "-f", "-"], &written.to_string())
            .await?
            .good()?;
        let wait = [
            "wait",
            "rmg/library",
            "-n",
            &namespace.name,
            "--for=condition=Ready",
            "--timeout=60s",
        ];
        kubectl(&wait).await?.good()?;
        let group = Group {
            namespace: namespace.clone(),
            name: "library".to_owned(),
        };
        group.serves(&commit).await?;

        let table = kubectl(&["get", "rmg", "-n", &namespace.name])
            .await?
            .good()?;
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let columns = [
            "NAME", "READY", "REASON", "TOOLS", "ERRORS", "REVISION", "REPLICAS", "AGE",
        ];
        assert_eq!(rows[0], columns);
        let revision = format!("main@sha1:{commit}");
        assert_eq!(
            rows[1][..7],
            ["library", "True", "Serving", "1", "0", &revision, "2/2"]
        );

        let callers = group.callers().await?;
        assert_eq!(callers.len(), 2);
        for (pod, caller) in &callers {
            assert_eq!(caller.tools().await?, ["greet"], "{pod}");
            let answer = caller.tool("greet", json!({ "name": "Ana" })).await?;
            assert_eq!(answer, "one greets Ana", "{pod}");
        }
        let (_, address) = group.addresses().await?.remove(0);
        let stranger = Caller::connect(&format!("{address}:{GRPC}"), "rmk_wrong").await?;
        let refused = stranger
            .tool("greet", json!({ "name": "Ana" }))
            .await
            .unwrap_err();
        assert!(
            matches!(refused, Refusal::Status(Code::Unauthenticated, _)),
            "{refused}"
        );
        Ok(())
    })
    .await;
}

/// What a tool finds around it.
const LOOK: &str = "
import getpass, os, pathlib

def look():
    found = []
    # An account without an entry in passwd, and a home all the same.
    pathlib.Path.home().joinpath('written').write_text(getpass.getuser())
    for place in ['/var/run/secrets/kubernetes.io', '/run/secrets/kubernetes.io']:
        if os.path.exists(place):
            found.append(place)
    for place in ['/', '/usr/local/bin', '/etc']:
        try:
            pathlib.Path(place, 'written').write_text('x')
            found.append(f'wrote to {place}')
        except OSError:
            pass
    found += [name for name in os.environ if name.startswith(('KUBERNETES_', 'RAMEN_KEY', 'RAMEN_ADMIN', 'RAMEN_STORE'))]
    return f'{os.getuid()}:{os.getgid()} {found}'
";

/// What ends the process that runs it.
const DIE: &str = "
import os

def die():
    os._exit(9)
";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_pkg10_run04_pods_are_restricted_hold_no_token_and_outlive_their_code() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let files = [("look", LOOK), ("die", DIE)]
            .map(|(name, source)| tool(name, &json!({}), source))
            .concat();
        let commit = git.push(&files)?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        let (_, caller) = group.callers().await?.remove(0);
        assert_eq!(caller.tool("look", json!({})).await?, "65532:65532 []");
        // A process of the code that ends takes its own call along, and the pod serves on.
        let died = caller.tool("die", json!({})).await.unwrap_err();
        assert!(
            matches!(died, Refusal::Status(Code::Unavailable, _)),
            "{died}"
        );
        assert_eq!(caller.tool("look", json!({})).await?, "65532:65532 []");
        for pod in group.pods().await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            for container in statuses.into_iter().flatten() {
                assert_eq!(container.restart_count, 0, "{container:?}");
            }
        }

        // The namespace enforces `restricted`: that all of these are there says that they were admitted.
        let pods = namespace.api::<Pod>().list(&ListParams::default()).await?;
        let mut components = Vec::new();
        for pod in pods {
            let component = pod.labels().get("app.kubernetes.io/component").cloned();
            let spec = pod.spec.clone().unwrap_or_default();
            let token = spec.volumes.into_iter().flatten().any(|volume| {
                let sources = volume.projected.and_then(|projected| projected.sources);
                sources
                    .into_iter()
                    .flatten()
                    .any(|source| source.service_account_token.is_some())
            });
            // Only the operator talks to the API server.
            assert_eq!(
                token,
                component.as_deref() == Some("operator"),
                "{}",
                pod.name_any()
            );
            components.extend(component);
        }
        components.sort();
        assert_eq!(components, ["deploy", "operator", "worker"]);
        Ok(())
    })
    .await;
}

async fn none_left<K>(namespace: &Namespace, kind: &str) -> anyhow::Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize + Send + 'static,
{
    let ours = ListParams::default().labels("ramen.dev/group");
    for object in namespace.api::<K>().list(&ours).await? {
        // The garbage collector takes its time; what it does not take stays and fails this.
        let name = object.name_any();
        let left = Box::pin(namespace.until::<K>(&name, gone)).await;
        left.map_err(|error| error.context(format!("{kind} {name} was left behind")))?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn ops04_what_is_deleted_leaves_nothing_and_uninstalling_leaves_the_kind_and_what_serves() {
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({})).await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 2)).await?;
        let kept = Group::apply(&namespace, "kept", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        kept.serves(&commit).await?;

        let groups = namespace.api::<McpGroup>();
        groups.delete("library", &DeleteParams::default()).await?;
        // With the operator still there, the other group stays whole.
        namespace
            .until::<Deployment>("library-default", gone)
            .await?;
        let (_, caller) = kept.callers().await?.remove(0);
        caller.tool("greet", json!({ "name": "Ana" })).await?;

        release.uninstall().await?;
        caller.tool("greet", json!({ "name": "Bo" })).await?;
        let kinds = Api::<CustomResourceDefinition>::all(namespace.client.clone());
        kinds.get("mcpgroups.ramen.dev").await?;
        assert!(groups.get_opt("kept").await?.is_some());

        // Nobody looks after it any more, and it leaves nothing all the same.
        groups.delete("kept", &DeleteParams::default()).await?;
        none_left::<Deployment>(&namespace, "Deployment").await?;
        none_left::<Job>(&namespace, "Job").await?;
        none_left::<Pod>(&namespace, "Pod").await?;
        none_left::<Service>(&namespace, "Service").await?;
        none_left::<Secret>(&namespace, "Secret").await?;
        none_left::<ConfigMap>(&namespace, "ConfigMap").await?;
        none_left::<ServiceAccount>(&namespace, "ServiceAccount").await?;
        none_left::<NetworkPolicy>(&namespace, "NetworkPolicy").await?;
        none_left::<PodDisruptionBudget>(&namespace, "PodDisruptionBudget").await?;
        none_left::<HorizontalPodAutoscaler>(&namespace, "HorizontalPodAutoscaler").await?;
        Ok(())
    })
    .await;
}
