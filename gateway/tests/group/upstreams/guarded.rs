//! Where upstreams may be, and what they learn and tell.

use serde_json::json;
use tokio::net::TcpListener;

use super::*;
use crate::logs::Log;

#[tokio::test]
async fn an_address_that_is_not_public_is_never_connected_to() {
    let worker = Worker::start().await;
    let near = server("near").await;
    let port = near.url().rsplit_once(':').unwrap().1.to_owned();
    for host in [
        "127.0.0.1",
        // A name that leads to one.
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
    ] {
        let policy = Policy {
            allowed: CidrSet::parse_list("10.0.0.0/8").unwrap(),
            ..nearby()
        };
        let gateway = gateway(
            &worker,
            vec![upstream("near", &format!("http://{host}:{port}"))],
            policy,
        )
        .await;
        until(&gateway, "near", "down").await;
        let why = state(&gateway, "near")["why"].to_string();
        assert!(
            why.contains("is not allowed by the configuration"),
            "{host}: {why}"
        );
        assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    }
    for metadata in [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
    ] {
        let url = format!("http://{metadata}/latest/meta-data");
        let gateway = gateway(&worker, vec![upstream("near", &url)], Policy::default()).await;
        until(&gateway, "near", "down").await;
        let why = state(&gateway, "near")["why"].to_string();
        assert!(
            why.contains("is not allowed by the configuration"),
            "{metadata}: {why}"
        );
    }
    assert!(near.all().is_empty(), "nothing came there");
}

#[tokio::test]
async fn an_address_of_another_kind_is_refused_and_told() {
    let worker = Worker::start().await;
    for url in ["ftp://127.0.0.1/", "file:///etc/passwd", "unix:/run/x"] {
        let gateway = gateway(&worker, vec![upstream("web", url)], nearby()).await;
        let state = state(&gateway, "web");
        assert_eq!(state["state"], "down", "{url}");
        let why = state["why"].as_str().unwrap();
        assert!(why.contains("only http and https"), "{url}: {why}");
        assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_headers_go_nowhere_else() {
    let worker = Worker::start().await;
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = format!("http://{}/token?secret=hidden", other.local_addr().unwrap());
    for to in [
        elsewhere.as_str(),
        "http://169.254.169.254/latest/meta-data",
        "//[::1]/",
        "/mcp/",
    ] {
        for code in [301, 302, 307, 308] {
            let head = format!("HTTP/1.1 {code} X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let web = http::serve(move |_| head.clone().into_bytes()).await;
            let spec = with_headers("web", &web.url(), &[("X-Token", "of-the-upstream")], &[]);
            let gateway = gateway(&worker, vec![spec], nearby()).await;
            until(&gateway, "web", "down").await;
            let why = state(&gateway, "web")["why"].to_string();
            assert!(
                why.contains("it redirects to")
                    && why.contains("not followed")
                    && !why.contains("hidden"),
                "{why}"
            );
            assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
        }
    }
    let connected = std::pin::pin!(other.accept());
    assert!(futures::poll!(connected).is_pending(), "nothing came there");
}

/// What it asks in one moment, for several of its callers.
const QUESTIONS: [&str; 5] = [
    "elicitation/create",
    "sampling/createMessage",
    "roots/list",
    "nonsense",
    "ping",
];

#[tokio::test]
async fn what_an_upstream_asks_of_a_person_or_a_model_is_the_error_of_a_method_that_is_not_there() {
    let worker = Worker::start().await;
    let ids: Vec<_> = (0..50_usize).collect();
    let web = http::serve(move |seen| match (seen.http_method.as_str(), seen.method()) {
        ("POST", "tools/call") => {
            let question = |id: &usize| json!({"jsonrpc": "2.0", "id": id, "method": QUESTIONS[id % 5], "params": {"message": "?"}});
            let mut all: Vec<_> = ids.iter().map(question).collect();
            all.push(seen.result(&text("done")));
            let event = |message| format!("data: {message}\n\n");
            events(&all.iter().map(event).collect::<Vec<_>>())
        }
        // An answer of the client.
        ("POST", "") => b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec(),
        _ => reply("web", seen),
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    assert_eq!(call(&gateway, "web_act", json!({})).await.text(), "done");
    let answers = || {
        let answers = web.all().into_iter();
        let answers = answers.filter(|seen| seen.http_method == "POST" && seen.method().is_empty());
        answers.map(|seen| seen.body).collect::<Vec<_>>()
    };
    eventually("all are answered", || answers().len() == 50).await;
    for answer in answers() {
        let id = usize::try_from(answer["id"].as_u64().unwrap()).unwrap();
        match QUESTIONS[id % 5] {
            "ping" => assert_eq!(answer["result"], json!({})),
            _ => assert_eq!(answer["error"]["code"], -32601, "{answer}"),
        }
    }
    let declared = &web.seen("initialize")[0].body["params"]["capabilities"];
    assert_eq!(*declared, json!({}), "it was told before");
}

#[tokio::test]
async fn questions_of_a_modern_upstream_fail_the_call_and_say_why() {
    let worker = Worker::start().await;
    let web = http::serve(|seen| {
        let complete = |mut result: Value| {
            result["resultType"] = json!("complete");
            answer(seen, &result)
        };
        match seen.method() {
            "server/discover" => complete(
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
            ),
            "tools/list" => complete(json!({"tools": [tool("act")]})),
            _ => answer(
                seen,
                &json!({"resultType": "input_required", "inputRequests":
                    {"q": {"method": "elicitation/create", "params": {"message": "which?"}}}}),
            ),
        }
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    let got = call(&gateway, "web_act", json!({})).await.json();
    assert_eq!(got["error"]["code"], -32603);
    assert_eq!(
        got["error"]["data"],
        json!({"upstream": "web", "reason": "input_required"})
    );
    let calls = web.seen("tools/call");
    assert_eq!(calls.len(), 1, "it is not asked again");
    let meta = &calls[0].body["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({})
    );
}

#[tokio::test]
async fn what_a_server_quotes_of_its_headers_is_in_no_error_status_or_log() {
    let (log, _logging) = Log::begin();
    let worker = Worker::start().await;
    let quotes = |seen: &Seen| {
        let quoted = seen.header("authorization").unwrap_or_default().to_owned();
        let error = json!({"code": -32000, "message": format!("bad token: {quoted}"), "data": {"got": quoted}});
        json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error})
    };
    let web = http::serve(move |seen| match seen.method() {
        "tools/call" if seen.body["params"]["arguments"]["plain"] == true => {
            let page = format!("no: {}", seen.header("authorization").unwrap_or_default());
            let length = page.len();
            format!("HTTP/1.1 500 X\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{page}").into_bytes()
        }
        "tools/call" => status(200, &quotes(seen)),
        _ => reply("web", seen),
    })
    .await;
    let worse = http::serve(move |seen| status(403, &quotes(seen))).await;
    let dead = http::serve(move |seen| status(500, &quotes(seen))).await;
    let header = [("Authorization", "Bearer s3cr3t-of-the-upstream")];
    let upstreams = vec![
        with_headers("web", &web.url(), &header, &[]),
        with_headers("worse", &worse.url(), &header, &[]),
        with_headers("dead", &dead.url(), &header, &[]),
    ];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    for name in ["worse", "dead"] {
        until(&gateway, name, "down").await;
    }
    let mut shown = call(&gateway, "web_act", json!({}))
        .await
        .json()
        .to_string();
    assert!(shown.contains("bad token: ***"), "{shown}");
    shown += &call(&gateway, "web_act", json!({"plain": true}))
        .await
        .json()
        .to_string();
    let group = gateway.groups.get("default", "demo").unwrap();
    let status = group.upstreams.status();
    shown.extend([format!("{status:?}"), format!("{group:?}")]);
    shown += &log.text();
    assert!(shown.contains("not connected yet"), "the log is there");
    assert!(!shown.contains("s3cr3t"), "{shown}");
    assert!(
        web.seen("tools/call")
            .iter()
            .all(|seen| seen.header("authorization") == Some(header[0].1))
    );
}
