//! Upstreams that come, go and change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ramen_source::testing::FreePort;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A port in front of a server that can be closed and opened again.
struct Port {
    free: FreePort,
    open: Option<tokio::task::JoinHandle<()>>,
    to: String,
}

impl Port {
    async fn before(http: &Http) -> Self {
        let to = http.url()["http://".len()..]
            .trim_end_matches("/mcp")
            .to_owned();
        let mut port = Self {
            free: FreePort::new().unwrap(),
            open: None,
            to,
        };
        port.open().await;
        port
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.free.address().unwrap())
    }

    fn serve(&mut self, listener: TcpListener) {
        let to = self.to.clone();
        self.open = Some(tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let to = to.clone();
                all.spawn(async move {
                    let mut far = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        }));
    }

    async fn close(&mut self) {
        if let Some(task) = self.open.take() {
            task.abort();
            let _ = task.await;
        }
    }

    async fn open(&mut self) {
        let address = self.free.address().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        self.serve(listener);
    }
}

#[tokio::test]
async fn the_last_list_of_one_that_is_down_stays_with_a_mark_until_it_is_back() {
    let worker = Worker::start().await;
    let (web, two) = (server("web").await, server("two").await);
    let mut port = Port::before(&web).await;
    let upstreams = vec![upstream("web", &port.url()), upstream("two", &two.url())];
    let gateway = gateway(&worker, upstreams, nearby()).await;
    until(&gateway, "web", "up").await;
    let before = tools(&gateway).await;

    port.close().await;
    until(&gateway, "web", "down").await;
    let marked = tools(&gateway).await;
    assert_eq!(names(&marked), names(&before));
    for tool in &marked {
        let down = tool["name"].as_str().unwrap().starts_with("web_");
        let mark = &tool["_meta"]["dev.ramen/upstream"];
        assert_eq!(
            *mark == json!({"server": "web", "state": "down"}),
            down,
            "{tool}"
        );
        assert!(down || mark.is_null(), "{tool}");
        let description = tool["description"].as_str().unwrap_or_default();
        assert_eq!(
            description.contains("not available") || description.contains("Not available"),
            down
        );
        assert!(!down || description.ends_with("Acts."), "{description}");
    }
    let got = call(&gateway, "web_act", json!({})).await.json();
    assert_eq!(got["error"]["code"], -32603);
    assert_eq!(
        got["error"]["data"],
        json!({"upstream": "web", "reason": "unavailable"})
    );
    let said = got["error"]["message"].as_str().unwrap();
    assert!(
        !said.contains("127.0.0.1"),
        "callers learn nothing of where it is: {said}"
    );
    let why = state(&gateway, "web")["why"].to_string();
    assert!(
        why.contains("refused") || why.contains("went away"),
        "{why}"
    );
    // Who else is there goes on.
    assert_eq!(call(&gateway, "two_act", json!({})).await.status, 200);
    assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");

    port.open().await;
    until(&gateway, "web", "up").await;
    assert_eq!(tools(&gateway).await, before, "the mark is gone");
    assert!(
        call(&gateway, "web_act", json!({}))
            .await
            .text()
            .starts_with("web: ")
    );
}

#[tokio::test]
async fn one_that_never_answers_keeps_nobody_waiting() {
    let worker = Worker::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let two = server("two").await;
    let upstreams = vec![upstream("silent", &url), upstream("two", &two.url())];
    let mut policy = nearby();
    policy.limits.connect = Duration::from_mins(10);
    policy.limits.probe = Duration::from_mins(10);
    let gateway = gateway(&worker, upstreams, policy).await;
    until(&gateway, "two", "up").await;
    assert_eq!(call(&gateway, "echo", json!({})).await.text(), "{}");
    // A list waits for a moment after the start, and then no more: this ends long before the ten minutes.
    let listed = tools(&gateway).await;
    assert_eq!(names(&listed)[3..], ["two_act", "two_other_one"]);
    assert_eq!(state(&gateway, "silent")["state"], "connecting");
    let got = call(&gateway, "silent_act", json!({})).await.json();
    assert_eq!(got["error"]["code"], -32601);
    drop(silent);
}

#[tokio::test]
async fn a_server_that_is_replaced_unheard_shows_its_new_tools() {
    let worker = Worker::start().await;
    let deployed = Arc::new(AtomicUsize::new(1));
    let version = Arc::clone(&deployed);
    let web = http::serve(move |seen| {
        let version = version.load(Ordering::SeqCst);
        match seen.method() {
            "tools/list" => answer(seen, &json!({"tools": [tool(&format!("v{version}"))]})),
            "prompts/list" => answer(seen, &json!({"prompts": [{"name": format!("p{version}")}]})),
            _ => reply("web", seen),
        }
    })
    .await;
    let gateway = gateway(&worker, vec![upstream("web", &web.url())], nearby()).await;
    until(&gateway, "web", "up").await;
    assert_eq!(names(&tools(&gateway).await)[2..], ["web_v1"]);
    let (mut listening, _) = gateway.listen().await;
    deployed.store(2, Ordering::SeqCst);
    listening.next().await.unwrap();
    assert_eq!(names(&tools(&gateway).await)[2..], ["web_v2"]);
}

#[tokio::test]
async fn other_credentials_count_without_a_gap_and_another_address_is_another_server() {
    let worker = Worker::start().await;
    let web = http::serve(|seen| match seen.header("x-token") {
        Some("old-token" | "new-token") => reply("web", seen),
        _ => status(401, &json!({})),
    })
    .await;
    let with = |url: &str, token: &str| {
        let mut spec = spec("demo", KEY, &[worker.address]);
        spec.upstreams = vec![with_headers("web", url, &[("X-Token", token)], &[])];
        spec
    };
    let gateway = gateway(&worker, with(&web.url(), "old-token").upstreams, nearby()).await;
    until(&gateway, "web", "up").await;
    let before = tools(&gateway).await;
    gateway.groups.set(&with(&web.url(), "new-token"));
    assert_eq!(tools(&gateway).await, before, "nobody sees a gap");
    let used = |token: &str| {
        web.seen("initialize")
            .iter()
            .any(|seen| seen.header("x-token") == Some(token))
    };
    eventually("the new one is used", || used("new-token")).await;
    until(&gateway, "web", "up").await;
    // Refused ones: the tools stay, marked.
    gateway.groups.set(&with(&web.url(), "wrong-token"));
    until(&gateway, "web", "down").await;
    let listed = tools(&gateway).await;
    assert_eq!(names(&listed), names(&before));
    assert_eq!(listed[2]["_meta"]["dev.ramen/upstream"]["state"], "down");
    // A server of another address is not taken for the old one.
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    gateway.groups.set(&with(
        &format!("http://{}/mcp", nowhere.local_addr().unwrap()),
        "new-token",
    ));
    assert_eq!(names(&tools(&gateway).await), ["echo", "webecho"]);
}

#[tokio::test]
async fn a_program_is_an_upstream_where_the_gateway_allows_it_and_refused_elsewhere() {
    let worker = Worker::start().await;
    let program = || {
        let transport = Transport::Stdio {
            command: "python3".to_owned(),
            args: vec!["-c".to_owned(), PROGRAM.to_owned()],
            env: BTreeMap::from([("TOKEN".to_owned(), Secret::from("of-the-program"))]),
            cwd: None,
        };
        UpstreamSpec::new("files", Ok(transport), Duration::from_secs(10), &[])
    };
    let allowed = gateway(&worker, vec![program()], nearby()).await;
    until(&allowed, "files", "up").await;
    assert_eq!(names(&tools(&allowed).await)[3..], ["files_token"]);
    assert_eq!(
        call(&allowed, "files_token", json!({})).await.text(),
        "of-the-program"
    );
    let refused = gateway(
        &worker,
        vec![program()],
        Policy {
            commands: false,
            ..nearby()
        },
    )
    .await;
    let state = state(&refused, "files");
    assert_eq!(state["state"], "down");
    let why = state["why"].as_str().unwrap();
    assert!(
        why.contains("starts no programs") && why.contains("RAMEN_UPSTREAM_COMMANDS"),
        "{why}"
    );
    assert_eq!(
        names(&tools(&refused).await),
        ["echo", "web_own", "webecho"]
    );
}

const PROGRAM: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}},
        "tools/list": {"tools": [{"name": "token", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": os.environ.get("TOKEN", "")}]},
    }
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results:
            answer["result"] = results[message["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        print(json.dumps(answer), flush=True)
"#;

#[tokio::test]
async fn a_value_that_is_missing_costs_its_upstream_and_keeps_its_list() {
    let (worker, web) = (Worker::start().await, server("web").await);
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.upstreams = vec![upstream("web", &web.url())];
    let gateway = gateway(&worker, spec.upstreams.clone(), nearby()).await;
    until(&gateway, "web", "up").await;
    let before = tools(&gateway).await;
    let missing = || Err("X: the key k of the Secret s is not there".to_owned());
    spec.upstreams[0].server = missing();
    spec.upstreams.push(UpstreamSpec {
        name: "new".into(),
        server: missing(),
    });
    gateway.groups.set(&spec);
    for name in ["web", "new"] {
        assert_eq!(
            state(&gateway, name)["why"],
            "X: the key k of the Secret s is not there"
        );
    }
    let listed = tools(&gateway).await;
    assert_eq!(names(&listed), names(&before));
    assert_eq!(listed[2]["_meta"]["dev.ramen/upstream"]["state"], "down");
    // It is there again.
    spec.upstreams = vec![upstream("web", &web.url())];
    gateway.groups.set(&spec);
    until(&gateway, "web", "up").await;
    assert_eq!(tools(&gateway).await, before);
}
