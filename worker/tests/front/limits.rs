//! Sizes, places and broken requests.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::{Group, call, eventually};
use crate::{group, setup};

const MAX: usize = 4 * 1024 * 1024;

/// A ping of exactly `size` bytes.
fn padded(size: usize) -> String {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    format!("{ping}{}", " ".repeat(size - ping.len()))
}

#[tokio::test]
async fn res13_the_size_of_a_request_is_limited_to_the_byte() {
    let running = setup().serve(&group(&["echo"])).await;
    let client = running.client().await;
    for size in [MAX - 1, MAX] {
        let answer = client.raw(padded(size)).await.unwrap();
        assert_eq!(
            answer,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.as_bytes(),
            "{size}"
        );
    }
    for size in [MAX + 1, MAX + 100, 2 * MAX] {
        let status = client.raw(padded(size)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{size}");
        assert!(status.message().contains("4194304"), "{}", status.message());
    }
    assert!(
        client.raw(padded(100)).await.is_ok(),
        "the channel is usable"
    );
}

#[tokio::test]
async fn res13_the_same_limit_holds_in_a_session() {
    let running = setup().serve(&group(&["echo"])).await;
    let client = running.client().await;
    let mut session = client.session().await;
    session.send_raw(padded(MAX)).await;
    assert_eq!(session.next().await["id"], 1);
    for size in [MAX + 1, 2 * MAX] {
        let mut session = client.session().await;
        session.send_raw(padded(size)).await;
        let status = session.try_next().await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{size}: {status}");
        assert!(status.message().contains("4194304"), "{}", status.message());
    }
}

#[tokio::test]
async fn res14_a_response_over_the_limit_is_an_error_that_names_its_size() {
    let tools = Group::new()
        .tool_with(
            "big",
            &json!({"bytes": {"type": "integer"}}),
            "def big(bytes): pass",
            &json!({"callable": "big"}),
        )
        .scripted("controls", "controls");
    let running = setup().serve(&tools).await;
    let client = running.client().await;
    let status = client.try_tool("controls", json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("4194304"), "{}", status.message());

    let empty = client
        .raw(call(1, "big", json!({"bytes": 0})).to_string())
        .await
        .unwrap()
        .len();
    let most = json!({"bytes": MAX - empty});
    let raw = client.raw(call(1, "big", most).to_string()).await.unwrap();
    assert_eq!(raw.len(), MAX);
    let over = json!({"bytes": MAX - empty + 1});
    let status = client.try_tool("big", over).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("4194305"), "{}", status.message());

    let mut session = client.session().await;
    session.send(&call("a", "controls", json!({}))).await;
    let answer = session.next().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["grpc"]),
        (&json!("a"), &json!("RESOURCE_EXHAUSTED"))
    );
    session.send(&call("b", "big", json!({"bytes": 1}))).await;
    assert_eq!(session.next().await["result"]["content"][0]["text"], "x");
}

#[tokio::test]
async fn run19_one_call_too_many_is_refused_at_once_and_health_answers() {
    let setup = setup().with(|args| args.max_inflight = "2".into());
    let running = setup.serve(&group(&["wait", "release", "seen"])).await;
    let client = running.client().await;
    let mut session = client.session().await;
    let waits: Vec<_> = [1, 2]
        .map(|_| {
            tokio::spawn({
                let client = client.clone();
                async move { client.text("wait", json!({})).await }
            })
        })
        .into();
    eventually("both places are taken", async || {
        (running.metric("ramen_in_flight ").await == 2).then_some(())
    })
    .await;
    let status = client.try_tool("seen", json!({})).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    session.send(&call(7, "seen", json!({}))).await;
    let answer = session.next().await;
    assert_eq!(
        answer["error"]["data"]["grpc"], "RESOURCE_EXHAUSTED",
        "{answer}"
    );
    let mut health = HealthClient::new(running.channel().await);
    let answer = health.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(answer.into_inner().status, 1);
    // A session's list needs no place.
    session
        .send(&json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list"}))
        .await;
    assert_eq!(
        session.next().await["result"]["tools"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    // The two end when their host does; the places are free again then.
    for wait in &waits {
        wait.abort();
    }
    eventually("the places are free again", async || {
        (running.metric("ramen_in_flight ").await == 0).then_some(())
    })
    .await;
    client.text("seen", json!({})).await;
}

#[tokio::test]
async fn more_calls_than_threads_wait_for_a_host_and_all_are_answered() {
    let setup = setup().with(|args| args.host_threads = "2".into());
    let running = setup.serve(&group(&["echo"])).await;
    let client = running.client().await;
    let answers = join_all((0..60).map(|_| client.text("echo", json!({})))).await;
    assert!(answers.iter().all(|answer| answer == "{}"), "{answers:?}");
}

#[tokio::test]
async fn calls_that_wait_for_a_thread_start_when_one_is_free() {
    let setup = setup().with(|args| args.host_threads = "1".into());
    let running = setup.serve(&group(&["until_cancelled", "echo"])).await;
    let client = running.client().await;
    let blocking = tokio::spawn({
        let client = client.clone();
        async move { client.tool("until_cancelled", json!({})).await }
    });
    eventually("the thread is taken", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.text("echo", json!({})).await }
    });
    eventually("one waits", async || {
        (running.metric("ramen_in_flight ").await == 2).then_some(())
    })
    .await;
    assert!(!waiting.is_finished());
    blocking.abort();
    assert_eq!(waiting.await.unwrap(), "{}");
}

#[tokio::test]
async fn a_request_that_never_comes_frees_its_place() {
    use tokio::io::AsyncWriteExt;
    let setup = setup().with(|args| args.max_inflight = "1".into());
    let running = setup.serve(&group(&["echo"])).await;
    let client = running.client().await;
    // Garbage instead of HTTP/2 ends the connection and nothing else.
    let mut stream = tokio::net::TcpStream::connect(running.grpc).await.unwrap();
    stream
        .write_all(&[
            0x16, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ])
        .await
        .unwrap();
    let mut end = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut end);
    let ended = tokio::time::timeout(Duration::from_secs(10), read).await;
    assert!(ended.is_ok(), "the connection is closed");
    assert_eq!(client.text("echo", json!({})).await, "{}");
}
