//! Groups whose workers are down: that costs what is their own, and nothing of their upstreams.

use std::sync::Arc;

use ::http::StatusCode;
use ramen_group::AccessRules;
use ramen_group::access::RuleText;
use ramen_source::testing::FreePort;
use serde_json::json;

use super::*;

const MARK: &str = "dev.ramen/upstream";

fn down() -> Value {
    json!({"server": "default/demo", "state": "down"})
}

#[tokio::test]
async fn workers_that_are_down_cost_the_groups_own_tools_and_their_last_list_stays_with_a_mark() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.upstreams = vec![upstream("web", &web.url())];
    let gateway = Running::of(&spec, callers::Limits::default(), nearby()).await;
    until(&gateway, "web", "up").await;
    let before = tools(&gateway).await;
    assert_eq!(
        names(&before),
        ["echo", "webecho", "web_act", "web_other_one"]
    );

    drop(worker);
    let answer = ask(&gateway, "tools/list", json!({})).await;
    assert_eq!(answer["result"]["_meta"][MARK], down());
    let listed = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(names(listed), names(&before), "both pages of the own ones");
    for tool in listed {
        let own = !tool["name"].as_str().unwrap().starts_with("web_");
        assert_eq!(tool["_meta"][MARK] == down(), own, "{tool}");
        let said = tool["description"].as_str().unwrap();
        assert_eq!(said.contains("`default/demo` is down"), own, "{said}");
    }
    // Who asks for the rest of what a worker began gets it.
    let cursor = json!({"cursor": ramen_mcp::cursor::encode("echo")});
    let rest = ask(&gateway, "tools/list", cursor).await;
    let rest = rest["result"]["tools"].as_array().unwrap();
    assert_eq!(names(rest), ["webecho", "web_act", "web_other_one"]);

    let theirs = call(&gateway, "web_act", json!({})).await;
    assert!(theirs.text().starts_with("web: "));
    let own = call(&gateway, "echo", json!({})).await;
    assert_eq!(
        (own.status, own.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );

    let back = Worker::start().await;
    spec.workers = vec![back.address.to_string().into()];
    gateway.groups.set(&spec);
    assert_eq!(tools(&gateway).await, before, "the mark is gone");
    assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_client_of_either_era_can_begin_while_the_workers_are_down() {
    let web = server("web").await;
    let mut spec = spec("demo", KEY, &[FreePort::nobody().unwrap()]);
    spec.upstreams = vec![upstream("web", &web.url())];
    let gateway = Running::of(&spec, callers::Limits::default(), nearby()).await;
    until(&gateway, "web", "up").await;
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    let legacy = ask(&gateway, "initialize", hello).await;
    assert_eq!(legacy["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(legacy["result"]["serverInfo"]["name"], "ramen-gateway");
    assert_eq!(legacy["result"]["capabilities"]["tools"], json!({}));
    assert_eq!(ask(&gateway, "ping", json!({})).await["result"], json!({}));
    let modern = gateway
        .send(gateway.modern("server/discover", json!({})))
        .await;
    let modern = &modern.json()["result"];
    assert_eq!(modern["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(modern["ttlMs"], 0);
    // Events can go to it.
    assert_eq!(modern["capabilities"]["tools"]["listChanged"], true);
    // The workers never listed anything here.
    let answer = ask(&gateway, "tools/list", json!({})).await;
    let listed = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(names(listed), ["web_act", "web_other_one"]);
    assert_eq!(answer["result"]["_meta"][MARK], down());
    let listed = gateway.send(gateway.modern("tools/list", json!({}))).await;
    let listed = &listed.json()["result"];
    assert_eq!(names(listed["tools"].as_array().unwrap()).len(), 2);
    assert_eq!(
        (&listed["resultType"], &listed["ttlMs"]),
        (&json!("complete"), &json!(0))
    );
    let called = gateway
        .send(gateway.modern("tools/call", json!({"name": "web_act", "arguments": {}})))
        .await;
    assert!(called.text().starts_with("web: "));
}

#[tokio::test]
async fn a_group_without_upstreams_says_that_its_workers_are_down() {
    let gateway = Running::start(&[FreePort::nobody().unwrap()]).await;
    for method in ["initialize", "ping", "tools/list"] {
        let got = gateway
            .send(gateway.post(&request(method, &json!({}))))
            .await;
        assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE, "{method}");
    }
}

#[tokio::test]
async fn prompts_and_resources_of_upstreams_stay_and_no_upstream_takes_the_place_of_the_groups_own()
{
    let (worker, web) = (Worker::start().await, server("web").await);
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    eventually("its lists are there", || {
        state(&gateway, "web")["resources"] == 2
    })
    .await;
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        ask(&gateway, method, json!({})).await;
    }
    drop(worker);
    let prompts = ask(&gateway, "prompts/list", json!({})).await;
    let prompts = prompts["result"]["prompts"].as_array().unwrap();
    assert_eq!(names(prompts), ["own", "web_ask"]);
    assert_eq!(prompts[0]["_meta"][MARK], down());
    assert!(prompts[1].get("_meta").is_none());
    let got = ask(&gateway, "prompts/get", json!({"name": "web_ask"})).await;
    assert_eq!(got["result"]["description"], r#"web: {"name":"ask"}"#);
    let resources = ask(&gateway, "resources/list", json!({})).await;
    let uris: Vec<_> = resources["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| {
            (
                resource["uri"].as_str().unwrap(),
                resource["name"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(uris, [("own://r", "r"), ("web://r", "r")]);
    let read = async |uri: &str| {
        let request = request("resources/read", &json!({ "uri": uri }));
        gateway.send(gateway.post(&request)).await
    };
    let theirs = read("web://r").await.json();
    assert_eq!(theirs["result"]["contents"][0]["text"], "of web");
    // The upstream lists it, too.
    let own = read("own://r").await;
    assert_eq!(own.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        web.seen("resources/read")
            .iter()
            .all(|seen| seen.body["params"]["uri"] == "web://r")
    );
}

#[tokio::test]
async fn rules_hold_for_a_list_without_workers_too() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let rule = RuleText {
        keys: vec!["*".into()],
        tools: vec!["web_act".into(), "webecho".into()],
        ..RuleText::default()
    };
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.access = Some(Arc::new(AccessRules::new(vec![rule]).unwrap()));
    spec.upstreams = vec![upstream("web", &web.url())];
    let gateway = Running::of(&spec, callers::Limits::default(), nearby()).await;
    until(&gateway, "web", "up").await;
    assert_eq!(names(&tools(&gateway).await), ["webecho", "web_act"]);
    drop(worker);
    let listed = tools(&gateway).await;
    assert_eq!(names(&listed), ["webecho", "web_act"]);
    assert_eq!(listed[0]["_meta"][MARK], down());
    let hidden = call(&gateway, "web_other_one", json!({})).await;
    assert_eq!(hidden.status, StatusCode::SERVICE_UNAVAILABLE);
}
