//! `Mcp/Session`.

use serde_json::json;
use tonic::Code;

use crate::harness::{Client, Group, KEY, Session, call, eventually, modern, text_of};
use crate::{group, setup};

#[tokio::test]
async fn calls_in_flight_are_answered_by_id_and_a_slow_one_holds_up_nothing() {
    let running = setup().serve(&group(&["wait", "release", "echo"])).await;
    let mut session = running.client().await.session().await;
    session.send(&call(0, "wait", json!({}))).await;
    session.send(&call("0", "echo", json!({}))).await;
    let first = session.next().await;
    assert_eq!(
        (&first["id"], &first["result"]["content"][0]["text"]),
        (&json!("0"), &json!("{}"))
    );
    session.send(&call(42, "release", json!({}))).await;
    let mut ids = [
        session.next().await["id"].clone(),
        session.next().await["id"].clone(),
    ];
    ids.sort_by_key(ToString::to_string);
    assert_eq!(ids, [json!(0), json!(42)]);
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_free_again_after_its_answer() {
    let running = setup().serve(&group(&["wait", "release", "echo"])).await;
    let mut session = running.client().await.session().await;
    session.send(&call(1, "wait", json!({}))).await;
    session.send(&call(1, "echo", json!({}))).await;
    let refused = session.next().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(1), &json!(-32600))
    );
    session.send(&call(2, "release", json!({}))).await;
    for _ in 0..2 {
        assert_eq!(session.next().await["error"], json!(null));
    }
    for _ in 0..3 {
        session.send(&call(1, "echo", json!({}))).await;
        assert_eq!(session.next().await["result"]["content"][0]["text"], "{}");
    }
}

#[tokio::test]
async fn a_cancelled_call_gets_no_response_and_reaches_the_host() {
    let running = setup().serve(&group(&["until_cancelled", "seen"])).await;
    let mut session = running.client().await.session().await;
    session.send(&call(1, "until_cancelled", json!({}))).await;
    let mut id = 1;
    seen(&mut session, &mut id, &json!({"cancels": 0, "waiting": 1})).await;
    for request in [json!("1"), json!(99), json!(1)] {
        let params = json!({"requestId": request, "reason": "no more"});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        session.send(&cancel).await;
    }
    seen(&mut session, &mut id, &json!({"cancels": 1, "waiting": 0})).await;
}

/// Asks the host until it saw `wanted`. Any message but the answer to that is a failure. Interrupts
/// do not count: whether one followed is a matter of how soon the answer to a cancel was read.
async fn seen(session: &mut Session, id: &mut i32, wanted: &serde_json::Value) {
    for _ in 0..10_000 {
        *id += 1;
        session.send(&call(*id, "seen", json!({}))).await;
        let answer = session.next().await;
        assert_eq!(answer["id"], *id, "{answer}");
        let seen: serde_json::Value = text_of(&answer).parse().unwrap();
        if ["cancels", "waiting"]
            .iter()
            .all(|name| seen[*name] == wanted[*name])
        {
            return;
        }
    }
    panic!("the host never saw {wanted}");
}

#[tokio::test]
async fn progress_and_log_come_before_the_response_and_only_when_asked_for() {
    let setup = setup().secret("RAMEN_SECRET_G__KEY", "s3cr3t-value");
    let running = setup.serve(&group(&["steps"])).await;
    let mut session = running.client().await.session().await;
    session
        .send(&modern(
            7,
            "tools/call",
            json!({"name": "steps", "arguments": {},
            "_meta": {"progressToken": "t", "io.modelcontextprotocol/logLevel": "info"}}),
        ))
        .await;
    for step in [1, 2, 3] {
        let message = session.next().await;
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(
            message["params"],
            json!({"progressToken": "t", "progress": step, "total": 3})
        );
    }
    let message = session.next().await;
    assert_eq!(message["method"], "notifications/message");
    assert_eq!(
        message["params"],
        json!({"level": "warning", "data": "***"}),
        "redacted, no debug"
    );
    let answer = session.next().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["resultType"]),
        (&json!(7), &json!("complete"))
    );

    session
        .send(&modern(
            8,
            "tools/call",
            json!({"name": "steps", "arguments": {}}),
        ))
        .await;
    assert_eq!(session.next().await["id"], 8, "nothing was asked for");
}

#[tokio::test]
async fn a_reload_tells_legacy_clients_and_subscriptions_which_list_changed() {
    let running = setup().serve(&group(&["echo"])).await;
    let client = running.client().await;
    let mut legacy = client.session().await;
    legacy
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}))
        .await;
    let hello = legacy.next().await;
    assert_eq!(
        hello["result"]["capabilities"]["tools"]["listChanged"], true,
        "{hello}"
    );
    let mut listening = client.session().await;
    listening
        .send(&modern(
            "sub",
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true}}),
        ))
        .await;
    let acknowledged = listening.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let mut silent = client.session().await;
    silent
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    silent.next().await;

    running.load(&group(&["echo", "seen"]), "two").await;
    assert_eq!(
        legacy.next().await["method"],
        "notifications/tools/list_changed"
    );
    let told = listening.next().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "sub"
    );
    for session in [&mut legacy, &mut silent] {
        session.send(&call(2, "seen", json!({}))).await;
        assert_eq!(session.next().await["id"], 2, "and nothing else before it");
    }
    listening
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "sub"}}))
        .await;
    let end = listening.next().await;
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!("sub"), &json!("complete"))
    );
}

#[tokio::test]
async fn bad_messages_are_answered_and_the_stream_goes_on() {
    let running = setup().serve(&group(&["echo"])).await;
    let mut session = running.client().await.session().await;
    for (bytes, code) in [
        (b"{".to_vec(), -32700),
        (
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}".to_vec(),
            -32700,
        ),
        (b"[]".to_vec(), -32600),
        (b"\xff".to_vec(), -32700),
    ] {
        session.send_raw(bytes).await;
        let answer = session.next().await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    session
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    session
        .send(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}))
        .await;
    assert_eq!(
        session.next().await,
        json!({"jsonrpc": "2.0", "id": 5, "result": {}})
    );
}

#[tokio::test]
async fn calls_in_flight_are_answered_after_the_client_is_done_sending() {
    let running = setup().serve(&group(&["wait", "release"])).await;
    let client = running.client().await;
    let mut session = client.session().await;
    session.send(&call(1, "wait", json!({}))).await;
    session.finish();
    eventually("the call is there", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;
    client.text("release", json!({})).await;
    assert_eq!(
        session.next().await["result"]["content"][0]["text"],
        "released"
    );
    assert_eq!(session.try_next().await.unwrap(), None);
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_calls_with_it() {
    let running = setup().serve(&group(&["until_cancelled", "seen"])).await;
    let client = running.client().await;
    let session = client.session().await;
    session.send(&call(1, "until_cancelled", json!({}))).await;
    session.send(&call(2, "until_cancelled", json!({}))).await;
    eventually("both run", async || {
        (running.metric("ramen_in_flight ").await == 2).then_some(())
    })
    .await;
    drop(session);
    eventually("both are cancelled", async || {
        client
            .text("seen", json!({}))
            .await
            .contains("\"cancels\":2")
            .then_some(())
    })
    .await;
    eventually("the session is closed", async || {
        (running.metric("ramen_sessions ").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_dead_host_is_an_internal_error_with_the_id() {
    let running = setup().serve(&group(&["exit"])).await;
    let mut session = running.client().await.session().await;
    session.send(&call("x", "exit", json!({}))).await;
    let answer = session.next().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!("x"), &json!(-32603))
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("host process"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_key_that_is_taken_away_ends_the_session_at_its_next_message() {
    let setup = setup();
    let keys = setup.dir().join("keys");
    let running = setup.serve(&Group::new().scripted("echo", "echo")).await;
    let mut session = running.client().await.session().await;
    session.send(&call(1, "echo", json!({}))).await;
    session.next().await;
    std::fs::write(&keys, "rmk_other\n").unwrap();
    running.worker().refresh();
    let other = Client::new(running.channel().await, Some("rmk_other"));
    eventually("the keys changed", async || {
        other.try_tool("echo", json!({})).await.ok()
    })
    .await;
    session.send(&call(2, "echo", json!({}))).await;
    let status = session.try_next().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_ne!(KEY, "rmk_other");
}
