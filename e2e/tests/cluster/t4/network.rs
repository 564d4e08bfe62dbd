//! Who reaches the pods of a group, and what their code reaches.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
    time::Instant,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
    networking::v1::NetworkPolicy,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    Agent, Caller, GRPC, GitHost, Group, Namespace, PackageIndex, Refusal, Release, Tier,
    comes_true, gone, tool, with_temp_ns,
};
use serde_json::{Value, json};
use tonic::Code;

use super::greeting;

/// Where clouds answer with credentials of the node.
const METADATA: &str = "169.254.169.254";

/// The port of a service that answers at the metadata address, so that whoever may get there does.
fn metadata_service() -> anyhow::Result<TcpListener> {
    // The address may be there from a run before; then binding says whether it is ours.
    let _ = Command::new("ip")
        .args(["address", "add", &format!("{METADATA}/32"), "dev", "lo"])
        .output()?;
    let any: SocketAddr = format!("{METADATA}:0").parse()?;
    Ok(TcpListener::bind(any)?)
}

async fn refused(agent: &Agent, host: &str, port: u16) -> anyhow::Result<bool> {
    Ok(agent.tries(host, port).await? != "open")
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec10_a_worker_lets_in_allowed_addresses_and_probes_and_refuses_strangers() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let friend = Agent::start(&namespace, "friend").await?;
        let stranger = Agent::start(&namespace, "stranger").await?;
        let git = GitHost::http()?;
        let commit = git.push(&greeting("one"))?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["network"]["allowedCIDRs"] = json!([format!("{}/32", friend.address)]);
        let group = Group::apply(&namespace, "library", spec).await?;
        // Ready says that the kubelet's probes and the operator's reload got in.
        group.serves(&commit).await?;
        let (_, worker) = group.addresses().await?.remove(0);

        // A policy is in force some time after it was written.
        comes_true("a stranger is refused", async || {
            refused(&stranger, &worker, GRPC).await
        })
        .await?;
        assert_eq!(friend.tries(&worker, GRPC).await?, "open");
        // The stranger is no cripple: elsewhere it gets in.
        assert_eq!(stranger.tries(&friend.address, Agent::PORT).await?, "open");

        // The node gets past every policy, as probes must. The worker judges the address itself.
        let key = group.key().await?;
        let node = Caller::connect(&format!("{worker}:{GRPC}"), &key).await?;
        let denied = node
            .tool("greet", json!({ "name": "Ana" }))
            .await
            .unwrap_err();
        assert!(
            matches!(denied, Refusal::Status(Code::PermissionDenied, _)),
            "{denied}"
        );

        // Wider ranges count without a new revision, in new pods; the stranger and the node get in.
        let old = group.pods().await?.remove(0).name_any();
        group
            .patch(json!({ "network": { "allowedCIDRs": ["10.0.0.0/8"] } }))
            .await?;
        namespace.until::<Pod>(&old, gone).await?;
        group.serves(&commit).await?;
        let (_, worker) = group.addresses().await?.remove(0);
        comes_true("the stranger gets in", async || {
            Ok(!refused(&stranger, &worker, GRPC).await?)
        })
        .await?;
        let (_, node) = group.callers().await?.remove(0);
        assert_eq!(
            node.tool("greet", json!({ "name": "Ana" })).await?,
            "one greets Ana"
        );
        Ok(())
    })
    .await;
}

/// The tool `reach`, and at import the same for what `PLACES` names; the outcome is in the tool `imported`.
fn reaching(places: &Value, import_fails: bool) -> Vec<(String, String)> {
    let source = format!(
        "
import json, socket

PLACES = json.loads('''{places}''')

def reach(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
        return 'open'
    except OSError as error:
        return str(error)

if {fails}:
    raise RuntimeError(' '.join(f'{{name}}={{reach(host, port) == \"open\"}}' for name, host, port in PLACES))
",
        fails = if import_fails { "True" } else { "False" },
    );
    tool(
        "reach",
        &json!({ "host": { "type": "string" }, "port": { "type": "integer" } }),
        &source,
    )
    .into()
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_code_reaches_the_store_and_the_index_and_neither_the_api_nor_metadata_nor_other_pods()
{
    with_temp_ns(Tier::T4, async |namespace| {
        let release = Release::install(&namespace, json!({})).await?;
        let other = Agent::start(&namespace, "other").await?;
        let boil = "def boil(minutes):\n    return f'soft after {minutes}'\n";
        let index = PackageIndex::start(&namespace, &[("noodle", "1.2", boil)]).await?;
        let metadata = metadata_service()?;
        let api = api_service(&namespace).await?;
        let (server, server_port) = api_server(&namespace).await?;
        let store = release.url("artifacts", 8081);
        let store = store
            .trim_start_matches("http://")
            .trim_end_matches(":8081")
            .to_owned();
        let git = GitHost::http()?;
        let (git_host, git_port) = host_of(&git.url())?;
        let metadata_port = metadata.local_addr()?.port();
        let places = json!([
            ["store", store, 8081],
            ["api", api, 443],
            ["server", server, server_port],
            ["metadata", METADATA, metadata_port],
            ["other", other.address, Agent::PORT],
            ["git", git_host, git_port],
            ["index", index.address, PackageIndex::PORT],
        ]);
        // Without a policy everybody gets everywhere, so what is refused below is refused by a policy.
        for place in places.as_array().into_iter().flatten() {
            let (name, host) = (
                place[0].as_str().unwrap_or_default(),
                place[1].as_str().unwrap_or_default(),
            );
            let port = u16::try_from(place[2].as_u64().unwrap_or_default())?;
            let tried = other.tries(host, port).await?;
            // The operator's own policy keeps strangers out of the store.
            assert_eq!(tried == "open", name != "store", "{name}: {tried}");
        }

        let commit = git.push(&reaching(&places, false))?;
        let mut spec = Group::spec(&git.url(), 1);
        spec["worker"] = json!({ "env": [{ "name": "PIP_INDEX_URL", "value": index.url }] });
        let group = Group::apply(&namespace, "library", spec).await?;
        group.serves(&commit).await?;
        let (_, caller) = group.callers().await?.remove(0);
        let mut reached = Vec::new();
        for place in places.as_array().into_iter().flatten() {
            let answer = caller
                .tool("reach", json!({ "host": place[1], "port": place[2] }))
                .await?;
            reached.extend((answer == "open").then(|| place[0].clone()));
        }
        assert_eq!(reached, [json!("store")], "what a tool reaches");

        // The same at import, in the deploy job: the index besides. Its words come back in the errors list.
        let mut files = reaching(&places, true);
        files.push(("requirements.txt".to_owned(), "noodle==1.2\n".to_owned()));
        git.push(&files)?;
        group.look("import").await?;
        let status = group
            .until(|group| {
                group
                    .status
                    .as_ref()
                    .is_some_and(|status| !status.errors.is_empty())
            })
            .await?;
        let message = status
            .status
            .map(|status| status.errors[0].message.clone())
            .unwrap_or_default();
        let wanted =
            "store=True api=False server=False metadata=False other=False git=False index=True";
        assert!(message.contains(wanted), "{message}");

        // And what a group asks for is opened, but never the metadata address.
        let good = git.push(&reaching(&places, false))?;
        group
            .patch(json!({ "network": { "egress": { "open": true } } }))
            .await?;
        group.look("open").await?;
        group.serves(&good).await?;
        let (_, caller) = group.callers().await?.remove(0);
        let reach = async |host: &str, port: u16| {
            caller
                .tool("reach", json!({ "host": host, "port": port }))
                .await
        };
        comes_true("the other pod is reached", async || {
            Ok(reach(&other.address, Agent::PORT).await? == "open")
        })
        .await?;
        assert_ne!(reach(METADATA, metadata_port).await?, "open");
        Ok(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_labels_of_ramen_and_port_53_open_nothing_in_another_namespace() {
    with_temp_ns(Tier::T4, async |namespace| {
        with_temp_ns(Tier::T4, async |elsewhere| {
            disguises_open_nothing(&namespace, &elsewhere).await
        })
        .await;
        Ok(())
    })
    .await;
}

async fn disguises_open_nothing(
    namespace: &Namespace,
    elsewhere: &Namespace,
) -> anyhow::Result<()> {
    // There is no cluster DNS here: this pod stands for it.
    let resolver = Agent::disguised(elsewhere, "resolver", &[], &[53]).await?;
    let names = json!([{
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": elsewhere.name } },
        "podSelector": { "matchLabels": { "app": "resolver" } },
    }]);
    Release::install(namespace, json!({ "networkPolicy": { "dnsTo": names } })).await?;
    let of_the_operator = [
        ("app.kubernetes.io/name", "ramen"),
        ("app.kubernetes.io/component", "operator"),
    ];
    let disguised = Agent::disguised(elsewhere, "disguised", &of_the_operator, &[53, 8081]).await?;
    let ports = [(&disguised, 53), (&disguised, 8081), (&resolver, 53)];
    // Without a policy everybody gets there, so what is refused below is refused by a policy.
    for (agent, port) in ports {
        let tried = resolver.tries(&agent.address, port).await?;
        assert_eq!(tried, "open", "{port}");
    }

    let git = GitHost::http()?;
    let commit = git.push(&reaching(&json!([]), false))?;
    let mut spec = Group::spec(&git.url(), 1);
    // The node, from which this test calls.
    spec["network"]["allowedCIDRs"] = json!(["10.0.0.1/32", "10.244.0.1/32"]);
    let group = Group::apply(namespace, "library", spec).await?;
    // The operator's reload got in.
    group.serves(&commit).await?;
    let (_, worker) = group.addresses().await?.remove(0);
    // A policy is in force some time after it was written.
    comes_true("the disguised pod is refused", async || {
        refused(&disguised, &worker, GRPC).await
    })
    .await?;
    let (_, caller) = group.callers().await?.remove(0);
    let reaches = async |agent: &Agent, port: u16| {
        let place = json!({ "host": agent.address, "port": port });
        anyhow::Ok(caller.tool("reach", place).await? == "open")
    };
    comes_true("names are asked for", async || reaches(&resolver, 53).await).await?;
    for port in [53, 8081] {
        let what = format!("port {port} of the disguised pod is closed");
        comes_true(&what, async || Ok(!reaches(&disguised, port).await?)).await?;
    }
    Ok(())
}

/// Tries a place for longer than it takes to remove a group; gives how often it got there.
const LINGERS: &str = "
import socket, time

def linger(host, port):
    reached, end = 0, time.monotonic() + 12
    while time.monotonic() < end:
        try:
            socket.create_connection((host, port), timeout=1).close()
            reached += 1
        except OSError:
            pass
        time.sleep(0.1)
    return str(reached)
";

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn sec_a_call_that_outlives_its_group_reaches_no_more_than_before() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, json!({})).await?;
        let other = Agent::start(&namespace, "other").await?;
        let place = json!({ "host": other.address, "port": Agent::PORT });
        let input = json!({ "host": { "type": "string" }, "port": { "type": "integer" } });
        let git = GitHost::http()?;
        let mut files = reaching(&json!([]), false);
        files.extend(tool("linger", &input, LINGERS));
        let commit = git.push(&files)?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        let (_, caller) = group.callers().await?.remove(0);
        // A policy is in force some time after it was written.
        comes_true("the other pod is out of reach", async || {
            Ok(caller.tool("reach", place.clone()).await? != "open")
        })
        .await?;
        let lingers = async {
            let reached = caller.tool("linger", place.clone()).await?;
            anyhow::Ok((reached, Instant::now()))
        };
        let goes = async {
            let groups = namespace.api::<McpGroup>();
            groups.delete("library", &DeleteParams::default()).await?;
            let policy = "library-default";
            namespace.until::<NetworkPolicy>(policy, gone).await?;
            anyhow::Ok(Instant::now())
        };
        let ((reached, ended), unguarded) = tokio::try_join!(lingers, goes)?;
        assert!(
            unguarded < ended,
            "the call was over before the policy was gone"
        );
        assert_eq!(reached, "0");
        Ok(())
    })
    .await;
}

/// The API server itself.
async fn api_server(namespace: &Namespace) -> anyhow::Result<(String, i32)> {
    let slices = Api::<EndpointSlice>::namespaced(namespace.client.clone(), "default");
    let ours = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    for slice in slices.list(&ours).await? {
        let port = slice.ports.iter().flatten().find_map(|port| port.port);
        let address = slice
            .endpoints
            .into_iter()
            .flat_map(|endpoint| endpoint.addresses)
            .next();
        if let (Some(address), Some(port)) = (address, port) {
            return Ok((address, port));
        }
    }
    anyhow::bail!("the API server's Service has no endpoint")
}

/// The address of the API server's Service.
async fn api_service(namespace: &Namespace) -> anyhow::Result<String> {
    let services = Api::<Service>::namespaced(namespace.client.clone(), "default");
    let service = services.get("kubernetes").await?;
    Ok(service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .unwrap_or_default())
}

fn host_of(url: &str) -> anyhow::Result<(String, u16)> {
    let uri: http::Uri = url.parse()?;
    let port = uri.port_u16().unwrap_or(80);
    Ok((uri.host().unwrap_or_default().to_owned(), port))
}
