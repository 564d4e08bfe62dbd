//! Who may call, at every replica and without a restart: groups, keys, access rules and issuers that come and go.

use std::collections::BTreeSet;

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ramen_crds::McpGroup;
use ramen_e2e::{
    GitHost, Group, HttpCaller, HttpRefusal, Namespace, Release, Tier, alert_finds, comes_true,
    request, tool, with_temp_ns,
};
use serde_json::{Value, json};

use super::{both, gateways, metrics, two};
use crate::t4::{
    arrives,
    docs::{Shell, fenced},
    greeting,
};

/// Which pods the gateways are, whether ready at this moment or not.
async fn gateways_uids(namespace: &Namespace) -> anyhow::Result<BTreeSet<Option<String>>> {
    let ours = ListParams::default().labels("app.kubernetes.io/component=gateway");
    let pods = namespace.api::<Pod>().list(&ours).await?;
    Ok(pods.iter().map(Pod::uid).collect())
}

/// The names of the tools that a caller is shown.
async fn listed(caller: &HttpCaller) -> Result<Vec<String>, HttpRefusal> {
    let result = caller.ask("tools/list", json!({})).await?;
    let tools = result["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// A rule that names a key: the keys that none names open nothing.
fn one_tool_for_ci() -> Value {
    json!({ "rules": [{ "keys": ["ci"], "tools": ["greet"] }] })
}

/// A caller of that rule is shown one tool; the other one is as unknown as one that nobody has.
async fn sees_greet_alone(ci: &HttpCaller) -> anyhow::Result<()> {
    assert_eq!(listed(ci).await?, ["greet"]);
    let refused = async |tool: &str| {
        let answer = ci.tool(tool, json!({})).await;
        answer.map_err(|refusal| refusal.to_string())
    };
    let hidden = refused("part").await;
    let hidden = hidden.map_err(|words| words.replace("part", "nope"));
    assert!(hidden.is_err(), "{hidden:?}");
    assert_eq!(hidden, refused("nope").await);
    let greeted = ci.tool("greet", json!({ "name": "Ana" })).await;
    assert_eq!(greeted, Ok("one greets Ana".to_owned()));
    Ok(())
}

/// Nobody signs in there.
const ISSUERS: [&str; 2] = ["https://login.example.com", "https://other.example.com"];

/// A file that trusts these.
fn trusting(issuers: &[&str]) -> Value {
    let issuers = issuers.iter().map(|issuer| json!({ "issuer": issuer }));
    let issuers: Vec<_> = issuers.collect();
    json!({ "publicUrl": "https://mcp.example.com", "issuers": issuers })
}

/// Whom a gateway trusts, as it tells clients.
async fn trusted(url: &str) -> anyhow::Result<Value> {
    let page = format!("{url}/.well-known/oauth-protected-resource");
    let described = request("GET", &page, &[], b"").await?.body;
    let mut described: Value = serde_json::from_str(&described)?;
    Ok(described["authorization_servers"].take())
}

/// Other issuers count in the pods that run. A file that cannot be used changes nothing, and until it is mended the chart's
/// alert tells of it.
async fn issuers_come_and_go(namespace: &Namespace) -> anyhow::Result<()> {
    let gateways = gateways(namespace).await?;
    let pages = gateways.iter().map(|(_, url)| ("gateway", metrics(url)));
    let pages: Vec<_> = pages.collect();
    let put = async |text: String, trusts: Value, unusable: u8| {
        let change = Patch::Merge(json!({ "data": { "oidc.yaml": text } }));
        let files = namespace.api::<ConfigMap>();
        files
            .patch("ramen-gateway-oidc", &PatchParams::default(), &change)
            .await?;
        let told = format!(r#"ramen_gateway_unusable_files{{file="oidc"}} {unusable}"#);
        for ((pod, url), (_, page)) in gateways.iter().zip(&pages) {
            let page = format!("http://{page}/metrics");
            let what = format!("it trusts {trusts}, and shows {told}");
            arrives(namespace, pod, &what, async || {
                let metrics = request("GET", &page, &[], b"").await?.body;
                Ok(metrics.contains(&told) && trusted(url).await? == trusts)
            })
            .await?;
        }
        anyhow::Ok(())
    };
    let alert = async |wanted: Value| {
        if let Some(found) = alert_finds("RamenGatewayFileUnusable", &pages).await? {
            ensure!(found == wanted, "the alert finds {found}, not {wanted}");
        }
        anyhow::Ok(())
    };
    let [_, other] = ISSUERS;
    put(trusting(&ISSUERS).to_string(), json!(ISSUERS), 0).await?;
    put("issuers: [".to_owned(), json!(ISSUERS), 1).await?;
    alert(json!([{ "file": "oidc" }])).await?;
    put(trusting(&[other]).to_string(), json!([other]), 0).await?;
    alert(json!([])).await
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn groups_keys_rules_and_issuers_come_and_go_at_every_replica_without_a_restart() {
    with_temp_ns(Tier::T4, async |namespace| {
        let mut values = two();
        values["gateway"]["oidc"] = trusting(&ISSUERS[..1]);
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let mut files = greeting("one").to_vec();
        files.extend(tool("part", &json!({}), "def part():\n    return 'bye'\n"));
        let commit = git.push(&files)?;
        let urls = both(&namespace).await?;
        let before = gateways_uids(&namespace).await?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&commit).await?;
        let caller = HttpCaller::new("", &namespace.name, "library", &group.key().await?);
        let everywhere = async |caller: &HttpCaller, wanted: Result<String, HttpRefusal>| {
            for url in &urls {
                let there = caller.at(url);
                comes_true(&format!("{url} answers {wanted:?}"), async || {
                    Ok(there.tool("greet", json!({ "name": "Ana" })).await == wanted)
                })
                .await?;
            }
            anyhow::Ok(())
        };
        let greets = || Ok("one greets Ana".to_owned());
        let refused = |status| Err(HttpRefusal::Status(status));
        everywhere(&caller, greets()).await?;

        // As day-2.md adds a key, and takes one away.
        let secrets = namespace.api::<Secret>();
        let change = async |change: Value| {
            let change = Patch::Merge(change);
            let name = "library-mcp-keys";
            secrets.patch(name, &PatchParams::default(), &change).await
        };
        change(json!({ "stringData": { "next": "rmk_next" } })).await?;
        let next = HttpCaller::new("", &namespace.name, "library", "rmk_next");
        everywhere(&next, greets()).await?;
        change(json!({ "data": { "next": null } })).await?;
        everywhere(&next, refused(401)).await?;

        // The same by commands, as auth.md has it.
        let shell = Shell::new(&[
            ("--group calc", "--group library"),
            ("-n team-a", &format!("-n {}", namespace.name)),
        ])?;
        let page = fenced("../auth.md", "Keys", "text")?;
        let steps: Vec<_> = page[0].lines().collect();
        let [new, list, revoke] = steps[..] else {
            bail!("auth.md makes a key, lists and revokes: {page:?}");
        };
        let key = shell.run(new).await?.trim().to_owned();
        ensure!(key.starts_with("rmk_"), "no key was printed");
        let ci = HttpCaller::new("", &namespace.name, "library", &key);
        everywhere(&ci, greets()).await?;
        let shown = shell.run(list).await?;
        ensure!(shown.contains("ci ") && shown.contains("key "), "{shown}");
        ensure!(!shown.contains("rmk_"), "a key is listed");

        group.patch(json!({ "access": one_tool_for_ci() })).await?;
        everywhere(&caller, refused(403)).await?;
        for url in &urls {
            sees_greet_alone(&ci.at(url)).await?;
        }
        group.patch(json!({ "access": null })).await?;
        everywhere(&caller, greets()).await?;
        for url in &urls {
            assert_eq!(listed(&ci.at(url)).await?.len(), 2, "{url}");
        }

        shell.run(revoke).await?;
        everywhere(&ci, refused(401)).await?;
        everywhere(&caller, greets()).await?;

        namespace
            .api::<McpGroup>()
            .delete("library", &DeleteParams::default())
            .await?;
        everywhere(&caller, refused(401)).await?;
        issuers_come_and_go(&namespace).await?;
        let now = gateways_uids(&namespace).await?;
        assert_eq!(now, before, "they are the pods of before");
        let ours = ListParams::default().labels("app.kubernetes.io/component=gateway");
        for pod in namespace.api::<Pod>().list(&ours).await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            for container in statuses.into_iter().flatten() {
                assert_eq!(container.restart_count, 0);
            }
        }
        Ok(())
    })
    .await;
}
