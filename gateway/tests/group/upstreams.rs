//! Other MCP servers beside a group's own tools, over raw HTTP servers of the test.

mod alone;
mod bad_input;
mod guarded;
#[expect(dead_code, reason = "shared with the tests of the client")]
#[path = "../../../client/tests/client/http/support.rs"]
mod http;
mod routing;
mod states;

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_client::config::Transport;
use ramen_client::{BackoffPolicy, Limits};
use ramen_gateway::callers;
use ramen_gateway::upstreams::{Policy, UpstreamSpec};
use ramen_group::CidrSet;
use ramen_redact::Secret;
use serde_json::{Value, json};

use self::http::{Http, Seen, answer, events, status};
use crate::support::{Got, KEY, Running, eventually, spec};
use crate::worker::Worker;

/// A policy that lets the servers of the test be reached, and looks often.
fn nearby() -> Policy {
    let policy = Policy::default();
    Policy {
        allowed: CidrSet::parse_list("127.0.0.0/8").unwrap(),
        commands: true,
        backoff: BackoffPolicy {
            first: Duration::from_millis(10),
            max: Duration::from_millis(50),
            ..policy.backoff
        },
        limits: Limits {
            refresh: Duration::from_millis(10),
            ..policy.limits
        },
        look_every: Duration::from_millis(50),
    }
}

fn upstream(name: &str, url: &str) -> UpstreamSpec {
    with_headers(name, url, &[], &[])
}

fn with_headers(
    name: &str,
    url: &str,
    headers: &[(&str, &str)],
    allowed_tools: &[&str],
) -> UpstreamSpec {
    let header = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::from(*value));
    let headers: BTreeMap<_, _> = headers.iter().map(header).collect();
    let transport = Transport::Http {
        url: url.parse().unwrap(),
        headers,
    };
    let allowed: Vec<_> = allowed_tools.iter().map(|&tool| tool.to_owned()).collect();
    UpstreamSpec::new(name, Ok(transport), Duration::from_secs(10), &allowed)
}

/// A gateway of `default/demo` with one worker and these upstreams.
async fn gateway(worker: &Worker, upstreams: Vec<UpstreamSpec>, policy: Policy) -> Running {
    let mut spec = spec("demo", KEY, &[worker.address]);
    spec.upstreams = upstreams;
    Running::of(&spec, callers::Limits::default(), policy).await
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn ask(gateway: &Running, method: &str, params: Value) -> Value {
    let got = gateway.send(gateway.post(&request(method, &params))).await;
    assert_eq!(got.status, 200, "{method}");
    got.json()
}

/// The tools of all pages.
async fn tools(gateway: &Running) -> Vec<Value> {
    let (mut all, mut params) = (Vec::new(), json!({}));
    loop {
        let mut page = ask(gateway, "tools/list", params).await;
        let Value::Array(tools) = page["result"]["tools"].take() else {
            panic!("{page}")
        };
        all.extend(tools);
        match &page["result"]["nextCursor"] {
            Value::Null => return all,
            cursor => params = json!({ "cursor": cursor }),
        }
    }
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

async fn call(gateway: &Running, tool: &str, arguments: Value) -> Got {
    let body = request("tools/call", &json!({"name": tool, "arguments": arguments}));
    gateway.send(gateway.post(&body)).await
}

/// How an upstream is, as the operations tell it.
fn state(gateway: &Running, name: &str) -> Value {
    let group = gateway.groups.get("default", "demo").unwrap();
    let all = group.upstreams.status();
    let found = all.into_iter().find(|upstream| upstream["name"] == name);
    found.unwrap_or_default()
}

async fn until(gateway: &Running, name: &str, wanted: &str) {
    eventually(&format!("{name} is {wanted}"), || {
        state(gateway, name)["state"] == wanted
    })
    .await;
}

/// A legacy server with the tool `act`, a prompt and a resource, which says who it is.
async fn server(name: &'static str) -> Http {
    http::serve(move |seen| reply(name, seen)).await
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Acts.", "inputSchema": {"type": "object", "properties": {"x": {"maximum": 1.50}}}, "outputSchema": {"type": "object"}})
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn reply(name: &str, seen: &Seen) -> Vec<u8> {
    let params = &seen.body["params"];
    match (seen.http_method.as_str(), seen.method()) {
        ("GET" | "DELETE", _) => {
            b"HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        (_, "server/discover") => status(
            400,
            &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "unknown version"}}),
        ),
        (_, "initialize") => answer(
            seen,
            &json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": name, "version": "1"},
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}),
        ),
        (_, method) if method.starts_with("notifications/") => {
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        (_, "tools/list") => answer(seen, &json!({"tools": [tool("act"), tool("other.one")]})),
        (_, "tools/call") => acts(name, seen, params),
        (_, "prompts/list") => answer(seen, &json!({"prompts": [{"name": "ask"}]})),
        (_, "prompts/get") => answer(
            seen,
            &json!({"messages": [], "description": format!("{name}: {params}")}),
        ),
        (_, "resources/list") => answer(
            seen,
            &json!({"resources": [{"uri": format!("{name}://r"), "name": "r"}, {"uri": "own://r", "name": "not yours"}]}),
        ),
        (_, "resources/templates/list") => answer(
            seen,
            &json!({"resourceTemplates": [{"uriTemplate": format!("{name}://{{id}}"), "name": "t"}]}),
        ),
        (_, "resources/read") => answer(
            seen,
            &json!({"contents": [{"uri": params["uri"], "text": format!("of {name}")}]}),
        ),
        (_, "completion/complete") => answer(
            seen,
            &json!({"completion": {"values": [params["ref"]["name"]]}}),
        ),
        _ => status(400, &json!({})),
    }
}

fn acts(name: &str, seen: &Seen, params: &Value) -> Vec<u8> {
    match params["arguments"]["do"].as_str() {
        Some("progress") => {
            let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "half"}});
            events(&[
                format!("data: {report}\n\n"),
                format!("data: {}\n\n", seen.result(&text("done"))),
            ])
        }
        Some("hang") => http::open_events(&[": \n\n".to_owned()]),
        Some("fail") => answer(
            seen,
            &json!({"isError": true, "content": [{"type": "text", "text": "failed"}]}),
        ),
        _ => answer(seen, &text(&format!("{name}: {params}"))),
    }
}
