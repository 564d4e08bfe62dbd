//! Who may call, at every replica and without a restart: groups, keys and access rules that come and go.

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use ramen_crds::McpGroup;
use ramen_e2e::{
    GitHost, Group, HttpCaller, HttpRefusal, Release, Tier, comes_true, tool, with_temp_ns,
};
use serde_json::{Value, json};

use super::{both, gateways, two};
use crate::t4::{
    docs::{Shell, fenced},
    greeting,
};

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

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn groups_keys_and_rules_come_and_go_at_every_replica_without_a_restart() {
    with_temp_ns(Tier::T4, async |namespace| {
        Release::install(&namespace, two()).await?;
        let git = GitHost::http()?;
        let mut files = greeting("one").to_vec();
        files.extend(tool("part", &json!({}), "def part():\n    return 'bye'\n"));
        let commit = git.push(&files)?;
        let urls = both(&namespace).await?;
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
        let now: Vec<_> = gateways(&namespace)
            .await?
            .into_iter()
            .map(|(_, url)| url)
            .collect();
        assert_eq!(now, urls, "they are the pods of before");
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
