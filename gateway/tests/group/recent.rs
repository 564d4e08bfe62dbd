//! What is remembered of calls.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Events, KEY, PATH, Running, call, eventually, spec};
use crate::worker::Worker;

fn with_progress(tool: &str) -> Value {
    let mut call = call(tool);
    call["params"]["_meta"] = json!({"progressToken": "p"});
    call
}

/// The newest call, when there are this many.
async fn newest(gateway: &Running, count: usize) -> Value {
    let all = || gateway.gateway.recent.newest(|_| true, 1000);
    eventually("the call is remembered", || all().len() == count).await;
    all().swap_remove(0)
}

#[tokio::test]
async fn a_call_is_remembered_without_what_went_in_and_out() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    gateway.call("echo").await;
    gateway
        .send(gateway.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})))
        .await;
    let one = newest(&gateway, 1).await;
    assert_eq!(
        (&one["group"], &one["method"], &one["name"]),
        (&json!("default/demo"), &json!("tools/call"), &json!("echo"))
    );
    let shown = one.to_string();
    assert!(
        !shown.contains("arguments") && !shown.contains(KEY),
        "{shown}"
    );
}

#[tokio::test]
async fn how_a_call_ended_is_told_and_not_how_http_saw_it() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut count = 0;
    for (tool, outcome, status) in [
        ("echo", "ok", 200),
        ("fails", "tool_error", 200),
        ("unknown", "error", 200),
        ("full", "exhausted", 200),
        ("crashes", "lost", 200),
        ("starting", "unavailable", 503),
        ("foreign", "bad_worker", 502),
    ] {
        gateway.call(tool).await;
        count += 1;
        let one = newest(&gateway, count).await;
        let told = (&one["name"], &one["outcome"], &one["status"]);
        assert_eq!(told, (&json!(tool), &json!(outcome), &json!(status)));
        // The same call, whose answer comes as events.
        let got = gateway.send(gateway.post(&with_progress(tool))).await;
        assert!(!got.events().is_empty());
        count += 1;
        let one = newest(&gateway, count).await;
        let told = (&one["name"], &one["outcome"], &one["status"]);
        assert_eq!(told, (&json!(tool), &json!(outcome), &json!(200)));
    }
    let hurried = Running::hurried(&[worker.address], Duration::from_millis(50)).await;
    hurried.call("hang").await;
    assert_eq!(newest(&hurried, 1).await["outcome"], "deadline");
}

#[tokio::test]
async fn a_call_whose_caller_went_away_is_remembered_as_cancelled() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("hang").to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\naccept: application/json\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    eventually("the call began", || worker.began() == 1).await;
    drop(stream);
    let one = newest(&gateway, 1).await;
    assert_eq!(
        (&one["name"], &one["outcome"], one.get("status")),
        (&json!("hang"), &json!("cancelled"), None)
    );
    let events = Events::of(gateway.open(gateway.post(&with_progress("hang"))).await);
    eventually("the call began", || worker.began() == 2).await;
    drop(events);
    let one = newest(&gateway, 2).await;
    assert_eq!(
        (&one["outcome"], &one["status"]),
        (&json!("cancelled"), &json!(200))
    );
}

#[tokio::test]
async fn a_call_that_is_shut_out_is_remembered_as_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut events = Events::of(gateway.open(gateway.post(&with_progress("hang"))).await);
    eventually("the call began", || worker.began() == 1).await;
    gateway
        .groups
        .set(&spec("demo", "rmk_new", &[worker.address]));
    while events.next().await.is_some() {}
    assert_eq!(newest(&gateway, 1).await["outcome"], "refused");
}
