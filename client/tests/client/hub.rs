//! The hub: many servers as one, over raw HTTP servers behind it and a raw stream in front.

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_client::hub::{Hub, Naming};
use ramen_client::{BackoffPolicy, Manager, ManagerOptions, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio_util::sync::CancellationToken;

use crate::http::legacy;
use crate::http::support::{Http, Seen, answer, events, open_events, serve};
use crate::support::{soon, tool};

/// A server with the tool `act`, a prompt and a resource, which says who it is.
async fn server(name: &'static str) -> Http {
    serve(move |seen| reply(name, seen)).await
}

fn reply(name: &str, seen: &Seen) -> Vec<u8> {
    let params = &seen.body["params"];
    match seen.method() {
        "initialize" => answer(
            seen,
            &json!({"protocolVersion": "2025-11-25", "capabilities":
            {"tools": {}, "prompts": {}, "resources": {}}}),
        ),
        "tools/list" => {
            let mut act = tool("act");
            act["inputSchema"] = json!({"type": "object", "$defs": {"a": {"maximum": 1.50}}, "properties": {"x": {"$ref": "#/$defs/a"}}});
            act["outputSchema"] = json!({"type": "number"});
            act["execution"] = json!({"taskSupport": "forbidden"});
            answer(seen, &json!({"tools": [act]}))
        }
        "tools/call" => match params["arguments"]["do"].as_str() {
            Some("fail") => answer(
                seen,
                &json!({"isError": true, "content": [{"type": "text", "text": "failed"}]}),
            ),
            Some("progress") => {
                let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                    {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "half"}});
                events(&[
                    format!("data: {report}\n\n"),
                    format!("data: {}\n\n", seen.result(&json!({"content": []}))),
                ])
            }
            Some("hang") => open_events(&[": \n\n".to_owned()]),
            _ => answer(
                seen,
                &json!({"content": [{"type": "text", "text": format!("{name}: {params}")}], "structuredContent": 1.50}),
            ),
        },
        "prompts/list" => answer(
            seen,
            &json!({"prompts": [{"name": "ask", "arguments": [{"name": "a"}]}]}),
        ),
        "prompts/get" => answer(
            seen,
            &json!({"messages": [{"role": "user",
            "content": {"type": "text", "text": format!("{name}: {params}")}}]}),
        ),
        "resources/list" => answer(
            seen,
            &json!({"resources": [{"uri": format!("{name}://r"), "name": "r"}]}),
        ),
        "resources/templates/list" => answer(
            seen,
            &json!({"resourceTemplates": [{"uriTemplate": format!("{name}://{{id}}"), "name": "t"}]}),
        ),
        "resources/read" if params["uri"].as_str().unwrap().starts_with(name) => answer(
            seen,
            &json!({"contents": [{"uri": params["uri"], "text": format!("of {name}")}]}),
        ),
        "resources/read" => crate::http::support::status(
            200,
            &json!({"jsonrpc": "2.0", "id": seen.body["id"],
            "error": {"code": -32002, "message": "not mine"}}),
        ),
        "completion/complete" => answer(
            seen,
            &json!({"completion": {"values": [params["ref"]["name"]]}}),
        ),
        _ => legacy(seen).unwrap(),
    }
}

/// Who uses the hub.
struct Caller {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    next: u64,
    modern: bool,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<tokio::time::Instant>,
}

impl Caller {
    async fn new(hub: &Hub, modern: bool) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (input, output) = tokio::io::split(theirs);
        let (hub, stop) = (hub.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let served =
            tokio::spawn(async move { hub.serve(input, output, stopped.cancelled()).await });
        let (reads, out) = tokio::io::split(ours);
        let mut caller = Self {
            lines: BufReader::new(reads).lines(),
            out,
            next: 1,
            modern,
            stop,
            served,
        };
        if !modern {
            let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
            let answer = caller.ask("initialize", hello).await;
            assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
            assert!(answer["result"].get("resultType").is_none());
            caller
                .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await;
        }
        caller
    }

    async fn send(&mut self, message: &Value) {
        self.out
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        if self.modern {
            let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                              "io.modelcontextprotocol/clientCapabilities": {}});
            for (key, value) in meta.as_object().unwrap() {
                params["_meta"][key] = value.clone();
            }
        }
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    async fn next(&mut self) -> Value {
        let line = soon(self.lines.next_line())
            .await
            .unwrap()
            .expect("the hub is there");
        serde_json::from_str(&line).unwrap()
    }

    /// Reads until something that fits comes.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await;
            if fits(&message) {
                return message;
            }
        }
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.until(|message| message["id"] == id).await
    }

    async fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({})).await;
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn hub(servers: &[(&str, &Http)], naming: Naming) -> Hub {
    let config = |(name, http): &(&str, &Http)| {
        (
            (*name).to_owned(),
            ServerConfig::http(http.url().parse().unwrap()),
        )
    };
    let servers: BTreeMap<_, _> = servers.iter().map(config).collect();
    let quick = ManagerOptions {
        backoff: BackoffPolicy {
            first: Duration::from_millis(10),
            max: Duration::from_millis(50),
            stable: Duration::from_secs(30),
        },
        retry_failed: true,
        ..ManagerOptions::default()
    };
    Hub::new(soon(Manager::connect_all(servers, quick)).await, naming)
}

#[tokio::test]
async fn tools_of_many_servers_are_one_list_and_calls_find_their_server() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("my b", &b)], Naming::Prefixed).await;
    for modern in [false, true] {
        let mut caller = Caller::new(&hub, modern).await;
        assert_eq!(caller.tools().await, ["a_act", "my_b_act"]);
        let args = json!({"x": 1, "_meta": "mine"});
        let answer = caller
            .ask("tools/call", json!({"name": "my_b_act", "arguments": args}))
            .await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            text, r#"b: {"name":"act","arguments":{"x":1,"_meta":"mine"}}"#,
            "nothing is added"
        );
        // A legacy result has objects only, and a modern one says its type.
        assert_eq!(answer["result"].get("structuredContent").is_some(), modern);
        assert_eq!(answer["result"].get("resultType").is_some(), modern);
        let failed = caller
            .ask(
                "tools/call",
                json!({"name": "a_act", "arguments": {"do": "fail"}}),
            )
            .await;
        assert_eq!(failed["result"]["isError"], true);
        let unknown = caller.ask("tools/call", json!({"name": "c_act"})).await;
        assert_eq!(
            unknown["error"]["code"],
            if modern { -32602 } else { -32601 }
        );
        let wrong = caller
            .ask("tools/call", json!({"name": "a_act", "arguments": []}))
            .await;
        assert_eq!(wrong["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn net15_definitions_pass_through_unchanged_but_for_their_name() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, true).await;
    let tool = caller.ask("tools/list", json!({})).await["result"]["tools"][0].clone();
    assert_eq!(
        tool["inputSchema"],
        json!({"type": "object", "$defs": {"a": {"maximum": 1.50}}, "properties": {"x": {"$ref": "#/$defs/a"}}})
    );
    assert_eq!(tool["outputSchema"], json!({"type": "number"}));
    assert_eq!(tool["execution"], json!({"taskSupport": "forbidden"}));
    // Such an output schema is nothing for a legacy caller.
    let mut caller = Caller::new(&hub, false).await;
    let tool = caller.ask("tools/list", json!({})).await["result"]["tools"][0].clone();
    assert!(tool.get("outputSchema").is_none());
}

#[tokio::test]
async fn one_server_alone_keeps_its_names() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Plain).await;
    let mut caller = Caller::new(&hub, true).await;
    assert_eq!(caller.tools().await, ["act"]);
    let answer = caller.ask("tools/call", json!({"name": "act"})).await;
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("a: ")
    );
}

#[tokio::test]
async fn prompts_and_resources_find_their_server_too() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("b", &b)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, true).await;
    // Without a list before.
    let prompt = caller
        .ask(
            "prompts/get",
            json!({"name": "b_ask", "arguments": {"a": "1"}}),
        )
        .await;
    assert_eq!(
        prompt["result"]["messages"][0]["content"]["text"],
        r#"b: {"name":"ask","arguments":{"a":"1"}}"#
    );
    let prompts = caller.ask("prompts/list", json!({})).await;
    let names: Vec<_> = prompts["result"]["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].clone())
        .collect();
    assert_eq!(names, ["a_ask", "b_ask"]);
    let completed = caller.ask("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "b_ask"}, "argument": {"name": "a", "value": ""}})).await;
    assert_eq!(completed["result"]["completion"]["values"], json!(["ask"]));
    let read = caller.ask("resources/read", json!({"uri": "b://r"})).await;
    assert_eq!(read["result"]["contents"][0]["text"], "of b");
    assert_eq!(read["result"]["cacheScope"], "private");
    let of_template = caller.ask("resources/read", json!({"uri": "b://17"})).await;
    assert_eq!(of_template["result"]["contents"][0]["text"], "of b");
    let missing = caller.ask("resources/read", json!({"uri": "c://r"})).await;
    assert_eq!(missing["error"]["code"], -32602);
    assert_eq!(missing["error"]["data"]["uri"], "c://r");
    let templates = caller.ask("resources/templates/list", json!({})).await;
    assert_eq!(
        templates["result"]["resourceTemplates"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_server_that_is_down_costs_only_its_tools_and_the_caller_hears_of_it() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("b", &b)], Naming::Prefixed).await;
    let mut legacy = Caller::new(&hub, false).await;
    let mut modern = Caller::new(&hub, true).await;
    assert_eq!(legacy.tools().await.len(), 2);
    let listen = modern
        .begin(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        )
        .await;
    let acknowledged = modern.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    b.shut_down().await;
    // Its death is noticed when it is used; the failure names it.
    let mut failed = json!({});
    while failed.get("error").is_none() || legacy.tools().await.len() > 1 {
        failed = legacy.ask("tools/call", json!({"name": "b_act"})).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(legacy.tools().await, ["a_act"]);
    let told = modern
        .until(|m| m["method"] == "notifications/tools/list_changed")
        .await;
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        listen
    );
    let well = legacy.ask("tools/call", json!({"name": "a_act"})).await;
    assert!(well.get("result").is_some());
}

#[tokio::test]
async fn a_legacy_caller_hears_of_changes_after_its_handshake() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("b", &b)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    caller.ask("ping", json!({})).await;
    b.shut_down().await;
    let _ = caller.begin("tools/call", json!({"name": "b_act"})).await;
    let _ = caller.begin("tools/call", json!({"name": "b_act"})).await;
    let told = caller
        .until(|m| m["method"] == "notifications/tools/list_changed")
        .await;
    assert!(told.get("params").is_none());
}

#[tokio::test]
async fn progress_comes_before_the_answer_under_the_callers_token() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, true).await;
    let id = caller
        .begin("tools/call", json!({"name": "a_act", "arguments": {"do": "progress"}, "_meta": {"progressToken": "mine"}}))
        .await;
    let report = caller.next().await;
    assert_eq!(report["method"], "notifications/progress");
    assert_eq!(report["params"]["progressToken"], "mine");
    assert_eq!(report["params"]["message"], "half");
    assert_eq!(caller.next().await["id"], id);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_behind_and_gets_no_answer() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    let id = caller
        .begin(
            "tools/call",
            json!({"name": "a_act", "arguments": {"do": "hang"}}),
        )
        .await;
    soon(a.until("tools/call")).await;
    caller.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    soon(a.until("notifications/cancelled")).await;
    // The next thing that comes is the next answer.
    let next = caller.begin("ping", json!({})).await;
    assert_eq!(caller.next().await["id"], next);
}

/// A call of `a` that never ends; `n` tells it from the others.
fn hang(n: usize) -> Value {
    json!({"name": "a_act", "arguments": {"do": "hang", "n": n}})
}

fn cancelled(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

#[tokio::test]
async fn a_server_that_hangs_fills_its_own_places_and_those_of_no_other() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("b", &b)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    let mut calls = Vec::new();
    for n in 0..70 {
        calls.push(caller.begin("tools/call", hang(n)).await);
    }
    soon(a.until_many("tools/call", 64)).await;
    assert_eq!(caller.tools().await, ["a_act", "b_act"]);
    let answer = caller.ask("tools/call", json!({"name": "b_act"})).await;
    assert!(answer.get("result").is_some(), "{answer}");
    for (list, member) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let listed = caller.ask(list, json!({})).await;
        assert_eq!(listed["result"][member].as_array().unwrap().len(), 2);
    }
    let read = caller.ask("resources/read", json!({"uri": "b://r"})).await;
    assert_eq!(read["result"]["contents"][0]["text"], "of b");
    assert_eq!(a.seen("tools/call").len(), 64);
    // Whoever goes makes room for the next in line.
    for (gone, next) in [(3, 64), (60, 65)] {
        caller.send(&cancelled(calls[gone])).await;
        let seen = soon(a.until_many("tools/call", next + 1)).await;
        assert_eq!(seen[next].body["params"]["arguments"]["n"], next);
    }
}

#[tokio::test]
async fn more_requests_than_may_wait_are_refused_at_once() {
    let (a, b) = (server("a").await, server("b").await);
    let hub = hub(&[("a", &a), ("b", &b)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    let first = caller.begin("tools/call", hang(0)).await;
    for n in 1..4096 {
        caller.begin("tools/call", hang(n)).await;
    }
    let call_of_b = || json!({"name": "b_act"});
    let refused = caller.ask("tools/call", call_of_b()).await;
    let said = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(said.contains("too many requests"), "{refused}");
    caller.send(&cancelled(first)).await;
    // The room is free once the call has ended.
    while caller
        .ask("tools/call", call_of_b())
        .await
        .get("result")
        .is_none()
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bad_lines_are_answered_and_the_stream_goes_on() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    for (line, code) in [
        ("hello\n", -32700),
        ("{\n", -32700),
        ("[]\n", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}\n",
            -32600,
        ),
    ] {
        caller
            .out
            .write_all(format!("\n  \n{line}").as_bytes())
            .await
            .unwrap();
        let answer = caller.next().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &Value::Null),
            "{line}"
        );
    }
    assert_eq!(caller.ask("ping", json!({})).await["result"], json!({}));
    let unknown = caller.ask("tasks/list", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601);
}

#[tokio::test]
async fn a_last_line_without_a_line_feed_is_answered() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, false).await;
    let call = json!({"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": {"name": "a_act"}});
    caller
        .out
        .write_all(call.to_string().as_bytes())
        .await
        .unwrap();
    caller.out.shutdown().await.unwrap();
    let answer = caller.next().await;
    assert_eq!(answer["id"], "last");
    assert!(answer.get("result").is_some(), "{answer}");
    soon(&mut caller.served).await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_service_after_what_is_under_way() {
    let a = server("a").await;
    let hub = hub(&[("a", &a)], Naming::Prefixed).await;
    let mut caller = Caller::new(&hub, true).await;
    let id = caller.begin("tools/call", json!({"name": "a_act"})).await;
    caller.out.shutdown().await.unwrap();
    assert_eq!(caller.next().await["id"], id);
    soon(&mut caller.served).await.unwrap();
    // What is told to stop when it has ended already waits for nothing.
    let mut other = Caller::new(&hub, true).await;
    other.begin("tools/call", hang(0)).await;
    soon(a.until_many("tools/call", 2)).await;
    other.out.shutdown().await.unwrap();
    other.stop.cancel();
    soon(&mut other.served).await.unwrap();
    let mut other = Caller::new(&hub, true).await;
    other.stop.cancel();
    soon(&mut other.served).await.unwrap();
    soon(hub.manager().close()).await;
}
