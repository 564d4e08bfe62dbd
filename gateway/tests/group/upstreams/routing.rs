//! What goes where.

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn tools_of_upstreams_come_after_the_groups_own_and_calls_find_their_server() {
    let worker = Worker::start().await;
    let (web, two) = (server("web").await, server("two").await);
    let upstreams = vec![upstream("web", &web.url()), upstream("two", &two.url())];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    until(&gateway, "web", "up").await;
    until(&gateway, "two", "up").await;
    let listed = tools(&gateway).await;
    // `web_own` is the group's own, and hidden: its name is the upstream's.
    assert_eq!(
        names(&listed),
        [
            "echo",
            "webecho",
            "two_act",
            "two_other_one",
            "web_act",
            "web_other_one"
        ]
    );
    let mut original = tool("act");
    original["name"] = json!("web_act");
    assert_eq!(listed[4], original, "nothing else is changed");
    assert_eq!(state(&gateway, "web")["hides"], json!(["web_own"]));

    let own = call(&gateway, "echo", json!({"a": 1})).await;
    assert_eq!(own.text(), r#"{"a":1}"#);
    let theirs = call(&gateway, "web_act", json!({"a": 1.50, "_meta": "mine"})).await;
    assert_eq!(
        theirs.text(),
        r#"web: {"name":"act","arguments":{"a":1.5,"_meta":"mine"}}"#
    );
    let odd = call(&gateway, "two_other_one", json!({})).await;
    assert_eq!(odd.text(), r#"two: {"name":"other.one","arguments":{}}"#);
    let failed = call(&gateway, "web_act", json!({"do": "fail"}))
        .await
        .json();
    assert_eq!(failed["result"]["isError"], true);
    // What begins with an upstream's name is its own or nobody's: the worker is not asked.
    let before = worker.began();
    let unknown = call(&gateway, "web_own", json!({})).await.json();
    assert_eq!(unknown["error"]["code"], -32601);
    assert_eq!(worker.began(), before);
    assert!(
        web.seen("tools/call")
            .iter()
            .all(|seen| seen.body["params"]["name"] == "act")
    );
    // Neither the caller's key nor anything else of the request goes there.
    assert!(
        web.all()
            .iter()
            .all(|seen| seen.header("authorization").is_none())
    );
}

#[tokio::test]
async fn both_eras_are_answered_in_their_own_form() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    let called = gateway
        .send(gateway.modern("tools/call", json!({"name": "web_act", "arguments": {}})))
        .await
        .json();
    assert_eq!(called["result"]["resultType"], "complete");
    let unknown = gateway
        .send(gateway.modern("tools/call", json!({"name": "web_none", "arguments": {}})))
        .await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["error"]["code"]),
        (400, &json!(-32602))
    );
    let called = call(&gateway, "web_act", json!({})).await.json();
    assert!(called["result"].get("resultType").is_none());
}

#[tokio::test]
async fn copies_of_arguments_are_held_against_the_schema_that_the_upstream_listed() {
    let worker = Worker::start().await;
    let web = http::serve(|seen| match seen.method() {
        "tools/list" => {
            let mut tool = tool("act");
            tool["inputSchema"]["properties"]["region"] =
                json!({"type": "string", "x-mcp-header": "Region"});
            answer(seen, &json!({ "tools": [tool] }))
        }
        _ => reply("web", seen),
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    let modern = |arguments: Value, sent: &[&str]| {
        let params =
            json!({"name": "web_act", "arguments": arguments, "_meta": {"progressToken": 1}});
        let mut request = gateway.modern("tools/call", params);
        for value in sent {
            let value = value.parse().unwrap();
            request.headers_mut().append("mcp-param-region", value);
        }
        gateway.send(request)
    };
    let eu = || json!({"region": "eu"});
    for (arguments, sent) in [
        (eu(), &[] as &[&str]),
        (eu(), &["us"]),
        (eu(), &["eu", "eu"]),
        (json!({}), &["eu"]),
    ] {
        let got = modern(arguments.clone(), sent).await;
        assert_eq!(
            (got.status.as_u16(), &got.json()["error"]["code"]),
            (400, &json!(-32020)),
            "{arguments} {sent:?}"
        );
    }
    assert!(web.seen("tools/call").is_empty());
    for (arguments, sent) in [
        (eu(), &["eu"][..]),
        (eu(), &["=?base64?ZXU=?="]),
        (json!({}), &[]),
        (Value::Null, &[]),
    ] {
        assert_eq!(modern(arguments, sent).await.status, 200);
    }
    // A legacy client knows of no copies.
    let legacy = call(&gateway, "web_act", eu()).await;
    assert!(legacy.text().starts_with("web: "));
}

#[tokio::test]
async fn prompts_resources_and_completions_find_their_server_and_the_groups_own_come_first() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    eventually("its lists are there", || {
        state(&gateway, "web")["resources"] == 2
    })
    .await;
    let list = async |method: &str, member: &str, key: &str| -> Vec<String> {
        let answer = ask(&gateway, method, json!({})).await;
        let items = answer["result"][member].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| item[key].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        list("prompts/list", "prompts", "name").await,
        ["own", "web_ask"]
    );
    assert_eq!(
        list("resources/list", "resources", "uri").await,
        ["own://r", "web://r"]
    );
    assert_eq!(
        list(
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate"
        )
        .await,
        ["web://{id}"]
    );
    let got = ask(&gateway, "prompts/get", json!({"name": "web_ask"})).await;
    assert_eq!(got["result"]["description"], r#"web: {"name":"ask"}"#);
    let got = ask(&gateway, "prompts/get", json!({"name": "own"})).await;
    assert_eq!(got["result"]["description"], "own");
    let read = async |uri: &str| -> Value {
        let answer = ask(&gateway, "resources/read", json!({ "uri": uri })).await;
        let text = &answer["result"]["contents"][0]["text"];
        if text.is_null() {
            answer["error"]["code"].clone()
        } else {
            text.clone()
        }
    };
    assert_eq!(read("web://r").await, "of web");
    assert_eq!(read("web://17").await, "of web", "from its template");
    assert_eq!(
        read("own://r").await,
        "of the group",
        "whoever else lists it"
    );
    assert_eq!(read("else://r").await, -32002);
    let asked = web.seen("resources/read");
    let asked: Vec<_> = asked
        .iter()
        .map(|seen| &seen.body["params"]["uri"])
        .collect();
    assert_eq!(
        asked,
        ["web://r", "web://17"],
        "only what it may know is asked of it"
    );
    let complete = async |name: &str| -> Value {
        let params = json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": ""}});
        ask(&gateway, "completion/complete", params).await["result"]["completion"]["values"][0]
            .clone()
    };
    assert_eq!(complete("web_ask").await, "ask");
    assert_eq!(complete("own").await, "own");
}

#[tokio::test]
async fn only_allowed_tools_are_offered() {
    let (worker, web) = (Worker::start().await, server("web").await);
    for (allowed, offered) in [
        (&["act"][..], &["web_act"][..]),
        (&["o*"], &["web_other_one"]),
    ] {
        let spec = with_headers("web", &web.url(), &[], allowed);
        let gateway = gateway(&worker, vec![spec], nearby()).await;
        until(&gateway, "web", "up").await;
        assert_eq!(names(&tools(&gateway).await)[2..], *offered);
        let refused = if allowed == ["act"] {
            "web_other_one"
        } else {
            "web_act"
        };
        let refused = call(&gateway, refused, json!({})).await.json();
        assert_eq!(refused["error"]["code"], -32601);
    }
    assert!(web.seen("tools/call").is_empty());
}

#[tokio::test]
async fn progress_passes_through_and_who_goes_away_cancels() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    let params = |what: &str| json!({"name": "web_act", "arguments": {"do": what}, "_meta": {"progressToken": "p"}});
    let got = gateway
        .send(gateway.post(&request("tools/call", &params("progress"))))
        .await;
    let events = got.events();
    assert_eq!(events[0]["method"], "notifications/progress");
    assert_eq!(
        events[0]["params"],
        json!({"progressToken": "p", "progress": 1.0, "message": "half"})
    );
    assert_eq!(events[1]["result"]["content"][0]["text"], "done");
    // Without a token there is one answer.
    let got = call(&gateway, "web_act", json!({"do": "progress"})).await;
    assert_eq!(got.text(), "done");

    let hangs = || {
        web.seen("tools/call")
            .iter()
            .any(|seen| seen.body["params"]["arguments"]["do"] == "hang")
    };
    tokio::select! {
        _ = gateway.open(gateway.post(&request("tools/call", &params("hang")))) => panic!("there is no answer"),
        () = eventually("it is called", hangs) => {}
    }
    crate::support::soon(web.until_hung_up()).await;
    crate::support::soon(web.until("notifications/cancelled")).await;
}

#[tokio::test]
async fn changes_of_an_upstream_reach_those_who_listen() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let gateway = gateway(&worker, Vec::new(), nearby()).await;
    let (mut listening, _) = gateway.listen().await;
    // One that joins.
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.upstreams = vec![upstream("web", &web.url())];
    gateway.groups.set(&spec);
    let told = listening.next().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    until(&gateway, "web", "up").await;
    assert!(names(&tools(&gateway).await).contains(&"web_act"));
    // One that leaves.
    spec.upstreams.clear();
    gateway.groups.set(&spec);
    loop {
        let told = listening.next().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
        if names(&tools(&gateway).await) == ["echo", "web_own", "webecho"] {
            break;
        }
    }
}
