//! The operations of the chart's gateway, and what they tell of the other MCP servers that a group names.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::{
    ResourceExt as _,
    api::{ListParams, LogParams},
};
use ramen_e2e::{
    GitHost, Group, HttpCaller, HttpRefusal, McpServer, Namespace, Release, Tier, comes_true, port,
    request, with_temp_ns,
};
use serde_json::{Value, json};

use super::{both, metrics, two};
use crate::t4::greeting;

/// What the other server wants to see: first the one, later the other.
const TOKENS: [&str; 2] = ["token-of-the-clock-1", "token-of-the-clock-2"];

/// The key of an operator.
fn key(name: &str) -> String {
    format!("rmk_{name:0>64}")
}

/// An operation: the status, and the answer.
async fn operate(url: &str, key: &str, path: &str, input: &Value) -> anyhow::Result<(u16, Value)> {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let url = format!("{url}/api/v1/{path}");
    let answer = request("POST", &url, &headers, input.to_string().as_bytes()).await?;
    let body = serde_json::from_str(&answer.body).unwrap_or_default();
    Ok((answer.status, body))
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn operations_are_served_to_those_whose_keys_stand_in_the_secret_of_the_chart() {
    with_temp_ns(Tier::T4, async |namespace| {
        let keys = json!({ "stringData": {
            "ana.read": key("ana"), "bo.write": key("bo"), "cy.keys": key("cy"), "di.keys": key("di"),
        }});
        namespace.apply::<Secret>("operators", keys).await?;
        let mut values = two();
        let rules = json!([
            { "groups": ["platform"], "level": "write" },
            { "keys": ["cy"], "level": "read", "namespaces": [namespace.name] },
            { "keys": ["di"], "level": "write", "namespaces": ["elsewhere-*"] },
        ]);
        values["gateway"]["operations"] =
            json!({ "secretName": "operators", "cidrs": ["10.0.0.0/8"], "rules": rules });
        // Nobody signs in there: the rules are read all the same.
        let issuers = json!([{ "issuer": "https://login.example.com" }]);
        values["gateway"]["oidc"] =
            json!({ "publicUrl": "https://mcp.example.com", "issuers": issuers });
        values["gateway"]["upstreamCIDRs"] = json!([format!("{}/32", McpServer::ADDRESS)]);
        Release::install(&namespace, values).await?;
        let git = GitHost::http()?;
        let first = git.push(&greeting("one"))?;
        let group = Group::apply(&namespace, "library", Group::spec(&git.url(), 1)).await?;
        group.serves(&first).await?;
        let urls = both(&namespace).await?;
        let name = format!("{}/library", namespace.name);
        let (status, listed) = operate(&urls[0], &key("ana"), "groups/list", &json!({})).await?;
        assert_eq!(status, 200, "{listed}");
        assert_eq!(listed["groups"][0]["group"], json!(name), "{listed}");
        let (status, _) = operate(&urls[0], &key("stranger"), "groups/list", &json!({})).await?;
        assert_eq!(status, 401);
        let page = format!("http://{}/metrics", metrics(&urls[0]));
        let metrics = request("GET", &page, &[], b"").await?.body;
        let read = r#"ramen_gateway_unusable_files{file="operators"} 0"#;
        ensure!(metrics.contains(read), "{metrics}");

        keys_see_their_namespaces_alone(&urls[0], &name).await?;

        let second = git.push(&greeting("two"))?;
        let deploy = json!({ "group": name, "ref": second });
        let (status, refused) = operate(&urls[0], &key("ana"), "groups/deploy", &deploy).await?;
        assert_ne!(status, 200, "who may look may not change: {refused}");
        let (status, asked) = operate(&urls[1], &key("bo"), "groups/deploy", &deploy).await?;
        assert_eq!(status, 200, "{asked}");
        group.serves(&second).await?;
        // With the rights that the chart gives, the change has its Event.
        let events = namespace.api::<Event>();
        let events = events.list(&ListParams::default()).await?;
        let told = serde_json::to_string(&events.items)?;
        assert!(told.contains("asked to deploy"), "{told}");
        other_servers_are_offered_beside(&group, &urls).await
    })
    .await;
}

/// The one looks at the group, and the other one learns nothing of it.
async fn keys_see_their_namespaces_alone(url: &str, group: &str) -> anyhow::Result<()> {
    let deploy = json!({ "group": group, "ref": "main" });
    let get = json!({ "group": group });
    for (name, groups, asked, changed) in [
        ("cy", json!([group]), 200, 403),
        ("di", json!([]), 404, 404),
    ] {
        let key = &key(name);
        let (status, listed) = operate(url, key, "groups/list", &json!({})).await?;
        assert_eq!(status, 200, "{name}: {listed}");
        let listed = listed["groups"].as_array().into_iter().flatten();
        let listed: Vec<_> = listed.map(|one| one["group"].clone()).collect();
        assert_eq!(Value::from(listed), groups, "{name}");
        for (path, input, wanted) in [
            ("groups/get", &get, asked),
            ("groups/deploy", &deploy, changed),
        ] {
            let (status, answer) = operate(url, key, path, input).await?;
            assert_eq!(status, wanted, "{name} {path}: {answer}");
        }
    }
    Ok(())
}

/// What a gateway tells of the upstreams of a group, by name.
async fn upstreams(url: &str, group: &Group) -> anyhow::Result<Value> {
    let name = format!("{}/{}", group.namespace.name, group.name);
    let (status, shown) =
        operate(url, &key("ana"), "groups/get", &json!({ "group": name })).await?;
    ensure!(status == 200, "{shown}");
    let all = shown["upstreams"].as_array().into_iter().flatten();
    let by_name = all.map(|one| {
        (
            one["name"].as_str().unwrap_or_default().to_owned(),
            one.clone(),
        )
    });
    Ok(by_name.collect::<serde_json::Map<_, _>>().into())
}

/// Waits until each gateway says that of the clock.
async fn clock_is(urls: &[String], group: &Group, state: &str, why: &str) -> anyhow::Result<()> {
    for url in urls {
        comes_true(&format!("the clock is {state} at {url}"), async || {
            let clock = upstreams(url, group).await?["clock"].take();
            let told = clock["why"].as_str().unwrap_or_default();
            Ok(clock["state"] == state && told.contains(why))
        })
        .await?;
    }
    Ok(())
}

async fn other_servers_are_offered_beside(group: &Group, urls: &[String]) -> anyhow::Result<()> {
    let namespace = &group.namespace;
    let port = port()?;
    let server = McpServer::start(TOKENS[0], port).await?;
    let token = json!({ "name": "clock-token", "key": "token", "prefix": "Bearer " });
    group
        .patch(json!({ "upstreams": [
            { "name": "clock", "url": server.url, "headers": [{ "name": "Authorization", "secretRef": token }] },
            // The API server, and where clouds hand out credentials.
            { "name": "inside", "url": "https://10.96.0.1/mcp" },
            { "name": "metadata", "url": "http://169.254.169.254/latest" },
        ]}))
        .await?;
    clock_is(urls, group, "down", "the Secret clock-token is not there").await?;
    let secret = async |token: &str| {
        let secret = json!({ "stringData": { "token": token } });
        namespace.apply::<Secret>("clock-token", secret).await
    };
    secret(TOKENS[1]).await?;
    clock_is(urls, group, "down", "401").await?;
    secret(TOKENS[0]).await?;
    clock_is(urls, group, "up", "").await?;

    let key = group.key().await?;
    let caller = HttpCaller::new("", &namespace.name, &group.name, &key);
    let days = json!({ "day": "2026-12-24", "today": "2026-11-30" });
    let greets: Result<String, HttpRefusal> = Ok("two greets Ana".to_owned());
    let tools = async |url: &str| {
        let listed = caller.at(url).ask("tools/list", json!({})).await?;
        anyhow::Ok(listed["tools"].as_array().cloned().unwrap_or_default())
    };
    for url in urls {
        let here = caller.at(url);
        let listed = tools(url).await?;
        let names: Vec<_> = listed.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, [&json!("greet"), &json!("clock_days_until")]);
        let answer = here.tool("clock_days_until", days.clone()).await;
        assert_eq!(answer, Ok("24".to_owned()));
        let told = upstreams(url, group).await?;
        for closed in ["inside", "metadata"] {
            let why = told[closed]["why"].as_str().unwrap_or_default();
            ensure!(why.contains("is not allowed"), "{closed}: {told}");
        }
    }

    // Down: its tool stays with a mark, the group's own goes on.
    server.kill().await?;
    for url in urls {
        let here = caller.at(url);
        comes_true("a call finds out", async || {
            let refused = here.tool("clock_days_until", days.clone()).await;
            let Err(HttpRefusal::Rpc(200, error)) = refused else {
                return Ok(false);
            };
            Ok(error["code"] == -32603 && error["data"]["reason"] == "unavailable")
        })
        .await?;
    }
    clock_is(urls, group, "down", "cannot reach").await?;
    for url in urls {
        let listed = tools(url).await?;
        let mark = &listed[1]["_meta"]["dev.ramen/upstream"];
        assert_eq!(
            *mark,
            json!({ "server": "clock", "state": "down" }),
            "{listed:?}"
        );
        let answer = caller.at(url).tool("greet", json!({ "name": "Ana" })).await;
        assert_eq!(answer, greets);
    }

    // Another takes its place, with another token. Nobody waits for the next try: the Secret has changed.
    let _server = McpServer::start(TOKENS[1], port).await?;
    secret(TOKENS[1]).await?;
    clock_is(urls, group, "up", "").await?;
    for url in urls {
        let answer = caller.at(url).tool("clock_days_until", days.clone()).await;
        assert_eq!(answer, Ok("24".to_owned()));
    }
    no_token_is_told(namespace, group).await
}

/// Neither the group, nor an Event, nor a log has a token in it; the Secret for the gateways has.
async fn no_token_is_told(namespace: &Namespace, group: &Group) -> anyhow::Result<()> {
    let left = format!("ramen-gateway.{}.{}", namespace.name, group.name);
    let left = namespace.api::<Secret>().get(&left).await?;
    let entry = left.data.unwrap_or_default().remove("upstreams");
    let entry = String::from_utf8(entry.context("no entry `upstreams`")?.0)?;
    ensure!(
        entry.contains(&format!("Bearer {}", TOKENS[1])),
        "no header"
    );
    let all = ListParams::default();
    let events = namespace.api::<Event>().list(&all).await?;
    let mut told = serde_json::to_string(&(group.get().await?, events.items))?;
    let pods = namespace.api::<Pod>();
    let ours = "app.kubernetes.io/component in (operator, gateway)";
    let running = ListParams::default().labels(ours);
    let running = pods.list(&running).await?.items;
    ensure!(
        running.len() >= 3,
        "neither an operator nor two gateways: {}",
        running.len()
    );
    for pod in running {
        told += &pods.logs(&pod.name_any(), &LogParams::default()).await?;
    }
    for token in TOKENS {
        ensure!(!told.contains(token), "a token is told");
    }
    Ok(())
}
