//! Rows of the envelope at the gateway: what it answers itself is what a worker would answer, and
//! what it passes on is what came.

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Got, Running, eventually};
use crate::worker::Worker;

/// The transcript of the envelope: what every door of Ramen answers, byte for byte.
const TRANSCRIPT: &str = include_str!("../../../mcp/tests/golden/envelope.txt");

/// `(what is sent, what goes back)` of the transcript, where the message itself is refused.
fn refused() -> Vec<(&'static str, &'static str)> {
    let mut pairs = Vec::new();
    let mut lines = TRANSCRIPT.lines().peekable();
    while let Some(line) = lines.next() {
        let (Some(sent), Some(next)) = (line.strip_prefix("> "), lines.peek()) else {
            continue;
        };
        // Bytes that are no text are written as \xNN there; those have a test of their own.
        let Some(answer) = next.strip_prefix("< ").filter(|_| !sent.contains("\\x")) else {
            continue;
        };
        if ["-32700", "-32600"]
            .iter()
            .any(|code| answer.contains(&format!(r#""error":{{"code":{code},"#)))
        {
            pairs.push((sent, answer));
        }
    }
    pairs
}

async fn raw(gateway: &Running, message: impl Into<bytes::Bytes>) -> Got {
    gateway.send(gateway.post_raw(message)).await
}

fn text(got: &Got) -> &str {
    std::str::from_utf8(&got.body).unwrap()
}

#[tokio::test]
async fn env05_to_env16_a_message_is_refused_in_the_words_of_a_worker_and_nothing_runs() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let refused = refused();
    assert!(refused.len() > 20, "{}", refused.len());
    for (sent, answer) in refused {
        let got = raw(&gateway, sent).await;
        assert_eq!(
            (got.status, text(&got)),
            (StatusCode::BAD_REQUEST, answer),
            "{sent}"
        );
    }
    for (row, params) in [
        (
            "env12",
            format!(
                r#"{{"name":"echo","arguments":{{"x":{}{}}}}}"#,
                "[".repeat(5000),
                "]".repeat(5000)
            ),
        ),
        ("env14", r#"{"name":"echo","name":"hang"}"#.to_owned()),
    ] {
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let got = raw(&gateway, message).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{row}");
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn env01_env07_env08_ids_come_back_byte_for_byte() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let long = format!("\"{}\"", "x".repeat(300));
    for id in [
        r#""1""#,
        "0",
        "42",
        r#""0""#,
        r#""14f40ee1b859ee70""#,
        &long,
        r#""""#,
        "9007199254740991",
        "-9007199254740991",
    ] {
        for (method, params) in [
            ("tools/list", "{}"),
            ("tools/call", r#"{"name":"echo","arguments":{}}"#),
        ] {
            let message =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
            let got = raw(&gateway, message).await;
            let answer = text(&got);
            assert_eq!(got.status, StatusCode::OK, "{answer}");
            assert!(
                answer.contains(&format!(r#""id":{id},"#)),
                "{method}: {answer}"
            );
        }
    }
}

#[tokio::test]
async fn env03_ids_in_flight_keep_their_value_and_type() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let ids = [json!(0), json!(42), json!("0")];
    let calls = ids.iter().map(async |id| {
        let message =
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "wait"}});
        gateway.send(gateway.post(&message)).await.json()["id"].clone()
    });
    let let_go = async {
        eventually("all three began", || worker.began() == 3).await;
        worker.state.go.notify_waiters();
    };
    let (answered, ()) = futures::join!(futures::future::join_all(calls), let_go);
    assert_eq!(answered, ids);
}

#[tokio::test]
async fn env13_a_name_in_another_case_chooses_no_tool() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let call = |params: Value| {
        gateway.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
    };
    let both = json!({"name": "echo", "Name": "hang", "arguments": {"a": 2}});
    assert_eq!(gateway.send(call(both)).await.text(), r#"{"a":2}"#);
    // Nor by the copy of it in the headers.
    let params = json!({"name": "echo", "Name": "hang", "arguments": {}});
    let mut request = gateway.modern("tools/call", params);
    request
        .headers_mut()
        .insert("mcp-name", "hang".parse().unwrap());
    let got = gateway.send(request).await;
    assert_eq!(got.json()["error"]["code"], -32020, "{}", text(&got));
    assert_eq!(worker.began(), 1);
}

#[tokio::test]
async fn env18_a_call_reaches_the_worker_byte_for_byte() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for params in [
        r#"{"name":"echo", "arguments":{"a":1.50}}"#,
        r#"{"name":"echo","arguments":{"a":1},"_meta":{"progressToken":"p"}}"#,
    ] {
        let message =
            format!(r#"{{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{params}}}"#);
        let got = raw(&gateway, message.clone()).await;
        assert_eq!(got.status, StatusCode::OK);
        let reached = worker.state.last.lock().unwrap().clone();
        assert_eq!(std::str::from_utf8(&reached).unwrap(), message);
    }
}

#[tokio::test]
async fn net08_accept_is_answered_as_it_is_written() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let ask = async |accept: Option<&str>| {
        let mut request = gateway.post(&crate::support::call("echo"));
        request.headers_mut().remove("accept");
        if let Some(accept) = accept {
            request
                .headers_mut()
                .insert("accept", accept.parse().unwrap());
        }
        let got = gateway.send(request).await;
        (got.status.as_u16(), got.header("content-type").to_owned())
    };
    let json = || (200, "application/json".to_owned());
    for accept in [
        "application/json",
        "application/json, text/event-stream",
        "*/*",
    ] {
        assert_eq!(ask(Some(accept)).await, json(), "{accept}");
    }
    let (status, kind) = ask(None).await;
    assert_eq!(status, 400);
    assert!(kind.starts_with("text/plain"), "{kind}");
    assert_eq!(ask(Some("text/html")).await.0, 406);
    let mut wrong = gateway.post(&crate::support::call("echo"));
    wrong
        .headers_mut()
        .insert("accept", "text/html".parse().unwrap());
    assert_eq!(gateway.send(wrong).await.json()["error"]["code"], -32600);
}
