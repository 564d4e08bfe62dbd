//! The bridge's own rules.

use std::sync::atomic::Ordering;

use crate::process::{Bridge, output};
use crate::server::{KEY, Server};
use crate::{call, ping, process};
use serde_json::{Value, json};

#[tokio::test]
async fn a_wrong_key_is_refused_and_not_printed() {
    let server = Server::start().await;
    let mut bridge = Bridge::with(&[
        "bridge",
        "--target",
        &server.address,
        "--key",
        "rmk_wrong_secret",
    ]);
    bridge.line(ping("1")).await;
    let raw = bridge.raw().await;
    assert!(
        raw.contains("-32001") && !raw.contains("rmk_wrong"),
        "{raw}"
    );
    let (_, _, stderr) = bridge.end().await;
    assert!(!stderr.contains("rmk_wrong"), "{stderr}");
}

#[tokio::test]
async fn metadata_and_deadline_go_with_every_call() {
    let server = Server::start().await;
    let mut bridge = Bridge::with(&[
        "bridge",
        "--target",
        &server.address,
        "--group",
        "demo",
        "--zone",
        "eu",
        "--timeout",
        "7",
    ]);
    bridge.ask(ping("1")).await;
    let seen = server.seen.metadata.lock().unwrap().clone();
    let get = |name: &str| {
        seen.iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    assert_eq!(get("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(
        (get("ramen-group"), get("ramen-zone")),
        (Some("demo"), Some("eu"))
    );
    assert!(get("grpc-timeout").is_some());
}

#[tokio::test]
async fn a_deadline_answers_and_cancels() {
    let server = Server::start().await;
    let mut bridge = Bridge::with(&["bridge", "--target", &server.address, "--timeout", "3"]);
    // The deadline of the call is not to pass while it connects.
    bridge.ask(ping("0")).await;
    let answer = bridge.ask(call("1", "slow")).await;
    assert_eq!(answer["error"]["data"]["grpc"], "DEADLINE_EXCEEDED");
    server
        .seen
        .until(|s| s.dropped.load(Ordering::SeqCst) == 1)
        .await;
}

#[tokio::test]
async fn a_cancelled_request_gets_no_answer_and_its_call_is_dropped() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let with_progress = r#"{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}"#;
    bridge.line(call("1", "slow")).await;
    bridge.line(with_progress).await;
    assert_eq!(bridge.read().await["method"], "notifications/progress");
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 2)
        .await;
    for id in ["1", "\"s\""] {
        bridge.line(format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)).await;
    }
    server
        .seen
        .until(|s| s.dropped.load(Ordering::SeqCst) == 2)
        .await;
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
    let (_, rest, _) = bridge.end().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_slow_call_holds_up_nothing_else() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge.line(call("1", "slow")).await;
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 1)
        .await;
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
    server.seen.release.notify_waiters();
    assert_eq!(bridge.read().await["id"], 1);
}

#[tokio::test]
async fn only_so_many_requests_are_at_the_worker_and_the_others_wait() {
    let server = Server::start().await;
    let mut bridge = Bridge::with(&["bridge", "--target", &server.address, "--max-inflight", "2"]);
    for id in 1..=3 {
        bridge.line(call(&id.to_string(), "slow")).await;
    }
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 2)
        .await;
    // They get there in the order of their lines. Cancelling one that is at the worker lets the waiting one through.
    bridge
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    server
        .seen
        .until(|s| s.begun.load(Ordering::SeqCst) == 3)
        .await;
}

#[tokio::test]
async fn broken_lines_are_answered_and_the_stream_goes_on() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    for (line, code) in [
        (&b"{oops\n"[..], -32700),
        (b"{\"a\":\"\xff\"}\n", -32700),
        (b"3\n", -32600),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}\n",
            -32600,
        ),
    ] {
        bridge.send(line).await;
        let answer = bridge.read().await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &Value::Null)
        );
    }
    let long = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"pad\":\"{}\"}}",
        "x".repeat(4 << 20)
    );
    let answer = bridge.ask(long).await;
    assert_eq!(answer["error"]["code"], -32600);
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
    assert_eq!(server.seen.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn header_framing_is_answered_in_kind() {
    use tokio::io::AsyncReadExt as _;
    let server = Server::start().await;
    let mut child = process::ramen(&["bridge", "--target", &server.address])
        .spawn()
        .unwrap();
    let body = ping("1");
    let mut stdin = child.stdin.take().unwrap();
    let framed = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    tokio::io::AsyncWriteExt::write_all(&mut stdin, framed.as_bytes())
        .await
        .unwrap();
    let want = "Content-Length: 36\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    let mut got = vec![0; want.len()];
    let mut stdout = child.stdout.take().unwrap();
    tokio::time::timeout(process::PATIENCE, stdout.read_exact(&mut got))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), want);
}

#[tokio::test]
async fn a_worker_without_sessions_is_served_through_calls() {
    let server = Server::without_sessions().await;
    let mut bridge = Bridge::start(&server.address);
    let progress = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":"p"}}}"#;
    assert_eq!(bridge.ask(progress).await["id"], 2);
    assert_eq!(server.seen.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn both_eras_share_one_pipe_and_legacy_clients_hear_of_changes() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let discover = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    assert_eq!(bridge.ask(discover).await["id"], 1);
    let initialize = r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    assert_eq!(bridge.ask(initialize).await["id"], 2);
    bridge
        .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    // The handshake is repeated on a session in the background, under another id.
    server
        .seen
        .until(|s| s.sessions.lock().unwrap().len() == 4)
        .await;
    let handshake: Value =
        serde_json::from_slice(&server.seen.sessions.lock().unwrap()[2]).unwrap();
    assert_eq!(handshake["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(handshake["id"], "ramen-bridge:initialize");
    server.seen.announce.send_modify(|count| *count += 1);
    assert_eq!(
        bridge.read().await["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn list_changes_are_promised_exactly_where_they_are_passed_on() {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    let discover = r#"{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for (sessions, promised) in [(true, json!(true)), (false, Value::Null)] {
        let server = if sessions {
            Server::start().await
        } else {
            Server::without_sessions().await
        };
        let mut bridge = Bridge::start(&server.address);
        for request in [initialize, discover] {
            let answer = bridge.ask(request).await;
            let tools = &answer["result"]["capabilities"]["tools"];
            assert_eq!(tools["listChanged"], promised, "{answer}");
        }
    }
}

#[tokio::test]
async fn a_legacy_client_hears_of_what_may_have_changed_while_the_worker_was_away() {
    let mut server = Server::start().await;
    let address = server.address.clone();
    let mut bridge = Bridge::start(&address);
    bridge
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#)
        .await;
    bridge
        .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    server
        .seen
        .until(|s| s.sessions.lock().unwrap().len() == 3)
        .await;
    server.kill().await;
    let _again = Server::on(&address, true).await;
    assert_eq!(
        bridge.read().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
}

#[tokio::test]
async fn a_session_that_could_not_be_opened_counts_as_one_that_was_lost() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#)
        .await;
    server.seen.refuse.store(true, Ordering::SeqCst);
    bridge
        .line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    assert_eq!(
        bridge.read().await["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn a_listen_lasts_until_it_is_cancelled() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    let listen = r#"{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    assert_eq!(
        bridge.ask(listen).await["method"],
        "notifications/subscriptions/acknowledged"
    );
    server.seen.announce.send_modify(|count| *count += 1);
    assert_eq!(
        bridge.read().await["method"],
        "notifications/tools/list_changed"
    );
    bridge
        .line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}"#)
        .await;
    assert_eq!(bridge.ask(ping("2")).await["id"], 2);
}

#[tokio::test]
async fn a_legacy_log_level_goes_ahead_of_later_calls() {
    let server = Server::start().await;
    let mut bridge = Bridge::start(&server.address);
    bridge
        .ask(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#)
        .await;
    bridge.line(call("2", "echo")).await;
    let mut answer = bridge.read().await;
    while answer.get("method").is_some() {
        answer = bridge.read().await;
    }
    assert_eq!(answer["id"], 2);
    let sent = server.seen.sessions.lock().unwrap().clone();
    let level: Value = serde_json::from_slice(&sent[0]).unwrap();
    assert_eq!(
        (&level["method"], &level["params"]["level"]),
        (&json!("logging/setLevel"), &json!("debug"))
    );
}

#[tokio::test]
async fn health_prints_the_status_and_exits_0_only_when_serving() {
    let mut server = Server::start().await;
    let target = server.address.clone();
    let health =
        async |service: &str| output(&["bridge", "--target", &target, "--health", service]).await;
    assert_eq!(
        health("ramen.v1.Mcp").await,
        (Some(0), "SERVING\n".to_owned(), String::new())
    );
    assert_eq!(health("down").await.0, Some(1));
    assert_eq!(health("down").await.1, "NOT_SERVING\n");
    assert_eq!(
        output(&["bridge", "--health", "--target", &target]).await.1,
        "SERVING\n"
    );
    let (code, out, err) = health("unknown").await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains("NOT_FOUND"), "{err}");
    server.kill().await;
    let (code, _, err) = health("").await;
    assert!(code == Some(1) && err.contains("UNAVAILABLE"), "{err}");
}

#[tokio::test]
async fn the_other_name_of_the_program_is_the_bridge_and_flags_carry_over() {
    let server = Server::start().await;
    let dir = tempfile::tempdir().unwrap();
    let alias = dir.path().join("ramen-mcp-bridge");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ramen"), &alias).unwrap();
    let run = tokio::process::Command::new(&alias)
        .args(["--health", "", "--idle-timeout", "0", "--no-browser"])
        .env_clear()
        .env("RAMEN_BRIDGE_TARGET", &server.address)
        .env("RAMEN_MCP_KEY", KEY)
        .env("RAMEN_BRIDGE_TLS", "0")
        .output()
        .await
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        "SERVING\n",
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[tokio::test]
async fn tls_trusts_the_named_authority_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let authority = ramen_source::testing::Authority::create(&dir.path().join("a")).unwrap();
    let other = ramen_source::testing::Authority::create(&dir.path().join("b")).unwrap();
    let server = Server::tls(&authority).await;
    let (ca, wrong) = (authority.ca.to_str().unwrap(), other.ca.to_str().unwrap());
    let health = |args: Vec<String>| async move {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        output(&[&["bridge", "--health"], &args[..]].concat()).await
    };
    let given = |target: &str, more: &[&str]| {
        let mut args = vec!["--target".to_owned(), target.to_owned()];
        args.extend(more.iter().map(ToString::to_string));
        args
    };
    assert_eq!(
        health(given(&server.address, &["--ca", ca])).await.1,
        "SERVING\n"
    );
    let localhost = server.address.replace("127.0.0.1", "localhost");
    assert_eq!(
        health(given(&localhost, &["--tls", "--ca", ca])).await.1,
        "SERVING\n"
    );
    for more in [&["--ca", wrong][..], &["--tls"], &[]] {
        let (code, out, err) = health(given(&server.address, more)).await;
        assert!(
            code == Some(1) && out.is_empty() && err.contains("UNAVAILABLE"),
            "{more:?} {code:?} {err}"
        );
    }
    let mut bridge = Bridge::with(&["bridge", "--target", &server.address, "--ca", ca]);
    assert_eq!(bridge.ask(ping("1")).await["id"], 1);
}
