//! The rows of the case list that are marked B.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::process::Bridge;
use crate::server::Server;
use crate::{call, ping, process, server};
use ramen_cli::ConnectArgs;
use ramen_cli::bridge::{Limits, serve};
use ramen_cli::upstream::Upstream;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn env01_a_string_id_stays_a_string() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let answer = bridge
        .ask(r#"{"jsonrpc":"2.0","id":"1","method":"tools/list"}"#)
        .await;
    assert_eq!(answer["id"], json!("1"));
}

#[tokio::test]
async fn env03_ids_in_flight_keep_their_value_and_type() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    for id in ["0", "42", "\"0\""] {
        bridge.line(call(id, "slow")).await;
    }
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 3)
        .await;
    server.seen.release.notify_waiters();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(bridge.read().await["id"].to_string());
    }
    ids.sort();
    assert_eq!(ids, ["\"0\"", "0", "42"]);
}

#[tokio::test]
async fn env05_ids_beyond_two_to_the_53_keep_their_digits() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    for id in [
        "9007199254740993",
        "-9007199254740993",
        "123456789012345678901234567890",
    ] {
        bridge.line(ping(id)).await;
        let raw = bridge.raw().await;
        assert!(raw.contains(&format!("\"id\":{id},")), "{raw}");
    }
}

#[tokio::test]
async fn env09_a_batch_is_refused_once_and_runs_nothing() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    for batch in [
        format!("[{},{}]", call("1", "echo"), call("2", "echo")),
        "[]".to_owned(),
    ] {
        let answer = bridge.ask(batch).await;
        assert_eq!(answer["error"]["code"], -32600);
        assert_eq!(answer["id"], Value::Null);
    }
    assert_eq!(bridge.ask(ping("3")).await["id"], 3);
    assert_eq!(server.seen.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn env11_a_number_of_5000_digits_does_not_end_the_stream() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let digits = "1".repeat(5000);
    bridge.line(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"n":{digits}}}}}}}"#)).await;
    // The bridge does not judge numbers: they arrive digit for digit, and the worker decides.
    assert!(bridge.raw().await.contains(&digits));
    assert_eq!(bridge.ask(ping("2")).await["result"], json!({}));
}

#[tokio::test]
async fn env16_a_byte_order_mark_is_a_parse_error_and_the_stream_goes_on() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge
        .send([b"\xEF\xBB\xBF", ping("1").as_bytes(), b"\n"].concat())
        .await;
    let answer = bridge.read().await;
    assert_eq!(
        (&answer["error"]["code"], &answer["id"]),
        (&json!(-32700), &Value::Null)
    );
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
}

#[tokio::test]
async fn env18_a_message_travels_byte_for_byte() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let plain = r#"{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1.50}}}"#;
    let progress = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"a":1},"_meta":{"progressToken":"p"}}}"#;
    assert_eq!(bridge.ask(plain).await["result"]["echo"], json!({"a": 1.5}));
    assert_eq!(
        bridge.ask(progress).await["method"],
        "notifications/progress"
    );
    assert_eq!(bridge.read().await["result"]["echo"], json!({"a": 1}));
    assert_eq!(server.seen.calls.lock().unwrap().as_slice(), [plain]);
    assert_eq!(server.seen.sessions.lock().unwrap().as_slice(), [progress]);
}

#[tokio::test]
async fn net01_it_ends_soon_after_stdin_with_or_without_work_in_flight() {
    let server = Server::start().await;
    for busy in [false, true] {
        let mut bridge = Bridge::start(&server.address);
        bridge.ask(ping("1")).await;
        if busy {
            let before = server.seen.begun.load(Ordering::SeqCst);
            bridge.line(call("2", "slow")).await;
            server
                .seen
                .until(|s| s.begun.load(Ordering::SeqCst) > before)
                .await;
        }
        let started = Instant::now();
        let (status, rest, _) = bridge.end().await;
        assert_eq!(status.code(), Some(0));
        assert!(rest.is_empty());
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test]
async fn net01_answers_in_flight_at_the_end_of_stdin_still_come() {
    let server = Server::start().await;
    let connect = ConnectArgs {
        target: Some(server.address.clone()),
        key: Some(server::KEY.into()),
        key_file: None,
        group: None,
        zone: None,
        tls: false,
        ca: None,
        insecure: false,
        server: None,
        header: Vec::new(),
        config: None,
        timeout: process::PATIENCE,
        state_dir: None,
    };
    // Not as a program: that waits less for its answers than a busy machine may take.
    let limits = Limits {
        drain: process::PATIENCE,
        ..Limits::default()
    };
    let (mut stdin, input) = tokio::io::duplex(4096);
    let (output, mut stdout) = tokio::io::duplex(4096);
    let upstream = Upstream::new(connect.resolve().unwrap());
    let stop = std::future::pending();
    let bridge = serve(BufReader::new(input), output, upstream, limits, stop);
    let client = async {
        let line = format!("{}\n", call("7", "slow"));
        stdin.write_all(line.as_bytes()).await.unwrap();
        server
            .seen
            .until(|s| s.begun.load(Ordering::SeqCst) == 1)
            .await;
        drop(stdin);
        server.seen.release.notify_waiters();
        let mut text = String::new();
        stdout.read_to_string(&mut text).await.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let (code, answer) = tokio::join!(bridge, client);
    assert_eq!((code, &answer["id"]), (0, &json!(7)));
}

#[tokio::test]
async fn net01_a_signal_ends_it() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge.ask(ping("1")).await;
    let pid = rustix::process::Pid::from_raw(bridge.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = tokio::time::timeout(process::PATIENCE, bridge.child.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Says to the copy of this program that is to be killed: `idle` or `busy`, and where the worker is.
const PARENT: &str = "RAMEN_TEST_PARENT";

#[tokio::test]
async fn net01_it_ends_when_its_parent_is_killed() {
    const TEST: &str = "rows::net01_it_ends_when_its_parent_is_killed";
    if let Ok(role) = std::env::var(PARENT) {
        let (state, target) = role.split_once(' ').unwrap();
        let mut bridge = Bridge::start(target);
        bridge.ask(ping("1")).await;
        if state == "busy" {
            bridge.line(call("2", "slow")).await;
        }
        println!("pid={};", bridge.child.id().unwrap());
        return std::future::pending().await;
    }
    let server = Server::start().await;
    for state in ["idle", "busy"] {
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(PARENT, format!("{state} {}", server.address))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let pid = loop {
            let line = lines.next_line().await.unwrap();
            let line = line.expect("the parent tells of its bridge");
            if let Some((_, pid)) = line.split_once("pid=") {
                break pid.trim_end_matches(';').to_owned();
            }
        };
        if state == "busy" {
            server
                .seen
                .until(|s| s.begun.load(Ordering::SeqCst) == 1)
                .await;
        }
        parent.kill().await.unwrap();
        // Whoever inherits it may not look after it: what has ended has no command line any more.
        let command_line = format!("/proc/{pid}/cmdline");
        let gone = async {
            while std::fs::read(&command_line).is_ok_and(|line| !line.is_empty()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let gone = tokio::time::timeout(process::PATIENCE, gone).await;
        assert!(gone.is_ok(), "the {state} bridge is left");
    }
    server
        .seen
        .until(|s| s.dropped.load(Ordering::SeqCst) == 1)
        .await;
}

#[tokio::test]
async fn net02_blank_lines_are_ignored_and_crlf_is_served() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge.send(format!("\n\r\n   \n{}\r\n\n", ping("1"))).await;
    assert_eq!(bridge.read().await["id"], 1);
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
    let (_, rest, _) = bridge.end().await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn net07_a_thousand_calls_given_up_in_the_middle_leave_nothing_behind() {
    const ROUNDS: usize = 20;
    const EACH: usize = 50;
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge.ask(ping("0")).await;
    let pid = bridge.child.id().unwrap();
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .count()
    };
    let resident_kib = || -> usize {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:"));
        let mut words = line.unwrap().split_whitespace();
        words.nth(1).unwrap().parse().unwrap()
    };
    let before = descriptors();
    let mut half = 0;
    for round in 0..ROUNDS {
        let ids = round * EACH + 1..=(round + 1) * EACH;
        for id in ids.clone() {
            bridge.line(call(&id.to_string(), "slow")).await;
        }
        server
            .seen
            .until(|s| s.begun.load(Ordering::SeqCst) == (round + 1) * EACH)
            .await;
        for id in ids {
            bridge.line(format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)).await;
        }
        server
            .seen
            .until(|s| s.dropped.load(Ordering::SeqCst) == (round + 1) * EACH)
            .await;
        if round == ROUNDS / 2 {
            half = resident_kib();
        }
    }
    assert_eq!(bridge.ask(ping("\"last\"")).await["id"], "last");
    assert_eq!(descriptors(), before);
    let grown = resident_kib().saturating_sub(half);
    assert!(grown < 16 * 1024, "{grown} KiB for the second half");
}

#[tokio::test]
async fn net14_an_answer_over_the_cap_is_an_error_of_its_own_request() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let answer = bridge.ask(call("\"b\"", "big")).await;
    assert_eq!(answer["id"], "b");
    assert_eq!(answer["error"]["data"]["grpc"], "OUT_OF_RANGE");
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
}

#[tokio::test]
async fn net15_schemas_with_references_arrive_as_they_are() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let answer = bridge
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .await;
    assert_eq!(
        answer["result"],
        serde_json::from_str::<Value>(server::TOOLS).unwrap()
    );
}

#[tokio::test]
async fn net16_every_refusal_is_an_error_of_its_own_and_the_bridge_stays() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let mut messages = std::collections::HashSet::new();
    for (id, (name, code)) in [
        ("UNAUTHENTICATED", -32001),
        ("PERMISSION_DENIED", -32000),
        ("RESOURCE_EXHAUSTED", -32000),
        ("INTERNAL", -32603),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = bridge.ask(call(&id.to_string(), name)).await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["error"]["code"], code);
        assert_eq!(answer["error"]["data"], json!({ "grpc": name }));
        assert!(messages.insert(answer["error"]["message"].as_str().unwrap().to_owned()));
    }
    assert_eq!(bridge.ask(ping("9")).await["id"], 9);
}

#[tokio::test]
async fn net16_a_worker_that_is_down_is_an_error_until_it_is_back() {
    let mut server = Server::start().await;
    let address = server.address.clone();
    let mut bridge = Bridge::start(&address);
    assert_eq!(bridge.ask(ping("1")).await["id"], 1);
    server.kill().await;
    let answer = bridge.ask(call("2", "echo")).await;
    assert_eq!(answer["error"]["code"], -32000);
    assert_eq!(answer["error"]["data"]["grpc"], "UNAVAILABLE");
    let again = Server::on(&address, true).await;
    assert_eq!(
        bridge.ask(call("3", "echo")).await["result"],
        json!({"echo": {}})
    );
    assert_eq!(again.seen.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn net16_a_tool_call_that_was_sent_is_never_sent_again() {
    let mut server = Server::start().await;
    let address = server.address.clone();
    let mut bridge = Bridge::start(&address);
    bridge.line(call("1", "slow")).await;
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 1)
        .await;
    server.kill().await;
    let again = Server::on(&address, true).await;
    let answer = bridge.read().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["grpc"]),
        (&json!(1), &json!("UNAVAILABLE"))
    );
    bridge.ask(ping("2")).await;
    assert_eq!(again.seen.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn run01_whatever_the_worker_answers_stdout_is_json_rpc() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    for (id, method) in ["junk", "other", "nothing"].into_iter().enumerate() {
        let answer = bridge
            .ask(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#
            ))
            .await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(id), &json!(-32603)),
            "{method}"
        );
    }
    assert_eq!(
        bridge
            .ask(r#"{"jsonrpc":"2.0","id":7,"method":"pretty"}"#)
            .await["id"],
        7
    );
}
