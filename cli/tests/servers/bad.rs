//! Servers that do what they should not, behind one bridge: each costs its own calls, the one beside goes on, and the memory
//! of the bridge stays bounded.

use serde_json::{Value, json};

use crate::http::{self, Seen, answer, status};
use crate::support::{Bridge, Home, SERVER};

/// What the bridge may have taken at most, in KiB: some messages of 16 MiB at once, and far less than what it is sent.
const MEMORY: u64 = 300 * 1024;

/// A server over HTTP that answers calls by its path.
fn web(seen: &Seen) -> Vec<u8> {
    match (seen.http_method.as_str(), seen.method()) {
        ("GET" | "DELETE", _) => {
            b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        (_, "server/discover") => status(
            400,
            &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "unknown version"}}),
        ),
        (_, "initialize") => answer(
            seen,
            &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "1"}}),
        ),
        (_, method) if method.starts_with("notifications/") => {
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
        (_, "tools/list") => answer(
            seen,
            &json!({"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}),
        ),
        _ => fault(seen),
    }
}

/// The faults over HTTP by the name of their server, and a word of what is told.
const WEB: &[(&str, &str)] = &[
    ("longer", "broke off"),
    ("shorter", "cannot be used"),
    ("other", "sent no answer"),
    ("middle", "sent no answer"),
    ("body", "larger than"),
    ("chunks", "larger than"),
    ("event", "larger than"),
    ("bomb", "compressed"),
];

fn fault(seen: &Seen) -> Vec<u8> {
    let result = json!({"content": [{"type": "text", "text": "x"}]});
    let body = seen.result(&result).to_string();
    let head =
        |kind: &str, more: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}\r\n");
    let (json, events) = ("application/json", "text/event-stream");
    let large = || vec![b' '; 17 << 20];
    match seen.path.trim_start_matches('/') {
        "longer" => {
            let length = format!("content-length: {}\r\n", body.len() + 100);
            http::then_hang_up(format!("{}{body}", head(json, &length)).into_bytes())
        }
        "shorter" => {
            let length = format!("content-length: {}\r\n", body.len() / 2);
            http::then_hang_up(format!("{}{body}", head(json, &length)).into_bytes())
        }
        "other" => {
            let mut other = seen.clone();
            other.body["id"] = json!(4_000_000);
            answer(&other, &result)
        }
        "middle" => {
            let half = &body[..body.len() / 2];
            http::then_hang_up(format!("{}data: {half}", head(events, "")).into_bytes())
        }
        "body" => {
            let head = head(json, "content-length: 1000000000000\r\n");
            http::then_silence([head.into_bytes(), large()].concat())
        }
        "chunks" => {
            let head = head(json, "transfer-encoding: chunked\r\n");
            http::then_silence([format!("{head}40000000\r\n").into_bytes(), large()].concat())
        }
        "event" => http::then_silence(
            [format!("{}data: ", head(events, "")).into_bytes(), large()].concat(),
        ),
        _ => http::compressed(),
    }
}

/// The faults of programs: what they do in a call, and a word of what is told.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "flood",
        r#"yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'"#,
        "no answer to tools/call within",
    ),
    (
        "line",
        r"tr '\0' x < /dev/zero",
        "no answer to tools/call within",
    ),
    (
        "stranger",
        r#"say '{"jsonrpc":"2.0","id":4000000,"result":{"content":[]}}'"#,
        "no answer to tools/call within",
    ),
    (
        "dies",
        r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; exit 3"#,
        "exit status: 3",
    ),
    (
        "long",
        r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"; head -c 18000000 /dev/zero | tr '\0' x; say '"}]}}'"#,
        "larger than",
    ),
];

/// The most memory that a process had, in KiB.
fn most_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_behind_a_bridge_that_break_every_rule_cost_their_own_calls_in_bounded_memory() {
    let web = http::serve(web).await;
    let home = Home::new(&json!({}));
    let mut servers = json!({"good": home.entry("good")});
    for (name, _) in WEB {
        servers[name] = json!({"url": web.url().replace("/mcp", &format!("/{name}"))});
    }
    for (name, does, told) in PROGRAMS {
        let script = SERVER.replace(
            "*'\"tools/call\"'*'\"n\":13'*)",
            "*'\"tools/call\"'*) eval \"$DOES\";; *never*)",
        );
        servers[name] = json!({"command": "sh", "args": ["-c", script],
            "env": {"WHO": name, "MARK": home.mark(name), "DOES": does}});
        // Only those that nothing else ends.
        if told.contains("within") {
            servers[name]["timeout"] = json!(2000);
        }
    }
    home.configure(&servers);
    let file = home.config_file();
    let mut bridge = Bridge::start(home.command(&["bridge", "--config", file.to_str().unwrap()]));
    // They come as they are started.
    while bridge.tools().len() < 1 + WEB.len() + PROGRAMS.len() {}

    let mut called: Vec<(u64, &str, &str)> = Vec::new();
    let programs = PROGRAMS.iter().map(|(name, _, told)| (*name, *told));
    for (name, told) in WEB.iter().copied().chain(programs) {
        let params = json!({"name": format!("{name}_act"), "arguments": {}});
        called.push((bridge.begin("tools/call", &params), name, told));
    }
    // All of them are at it; meanwhile whoever behaves is answered.
    let mut answers: Vec<Value> = Vec::new();
    for _ in 0..20 {
        let id = bridge.begin("tools/call", &json!({"name": "good_act", "arguments": {}}));
        let good = loop {
            let message = bridge.until(|message| message.get("id").is_some());
            if message["id"] == id {
                break message;
            }
            answers.push(message);
        };
        assert_eq!(good["result"]["content"][0]["text"], "good acted");
    }
    while answers.len() < called.len() {
        answers.push(bridge.until(|message| message.get("id").is_some()));
    }
    for (id, name, told) in called {
        let answer = answers.iter().find(|answer| answer["id"] == id).unwrap();
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(
            said.starts_with(&format!("{name}: ")) && said.contains(told),
            "{name}: {answer}"
        );
    }
    let good = bridge.ask("tools/call", &json!({"name": "good_act", "arguments": {}}));
    assert_eq!(good["result"]["content"][0]["text"], "good acted");
    let memory = most_memory(bridge.child.id());
    assert!(memory < MEMORY, "{memory} KiB");
    assert_eq!(bridge.end(), Some(0));
}
