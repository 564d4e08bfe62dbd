//! Headers that are there twice, too many headers, and bodies in another coding or charset.

use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::support::{Running, call};
use crate::wire::{post, statuses, talk};
use crate::worker::Worker;

#[tokio::test]
async fn a_header_that_decides_something_is_there_once() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for (name, second, wanted) in [
        ("authorization", "Bearer rmk_other", 401),
        ("content-type", "application/json", 415),
        ("host", "localhost", 400),
        ("origin", "http://localhost", 403),
        ("mcp-protocol-version", "2025-11-25", 400),
        ("mcp-method", "tools/call", 400),
        ("mcp-name", "echo", 400),
    ] {
        let mut request = gateway.modern("tools/call", json!({"name": "echo", "arguments": {}}));
        request
            .headers_mut()
            .insert("origin", HeaderValue::from_static("http://localhost"));
        request.headers_mut().append(name, second.parse().unwrap());
        let got = gateway.send(request).await;
        assert_eq!(got.status.as_u16(), wanted, "{name}");
    }
    assert_eq!(worker.began(), 0);
    // A list in several lines is one list.
    let mut request = gateway.post(&call("echo"));
    let headers = request.headers_mut();
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.append("accept", HeaderValue::from_static("text/event-stream"));
    assert_eq!(gateway.send(request).await.status, StatusCode::OK);
}

#[tokio::test]
async fn members_that_are_there_twice_are_refused_wherever_they_decide_something() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"hang"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\u0061me":"hang"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"arguments":{"a":1}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{},"_meta":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1,"progressToken":2}}}"#,
    ] {
        let got = gateway.send(gateway.post_raw(body)).await;
        assert_eq!(
            (got.status.as_u16(), got.json()["error"]["code"].as_i64()),
            (400, Some(-32600)),
            "{body}"
        );
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn a_compressed_body_is_never_opened() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    // A thousand zeros for each byte, if somebody unpacked it.
    let bomb = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for coding in [
        "gzip",
        "x-gzip",
        "deflate",
        "br",
        "zstd",
        "gzip, gzip",
        "identity, gzip",
        "GZIP",
        "",
    ] {
        let mut request = gateway.post_raw(bomb.clone());
        request
            .headers_mut()
            .insert("content-encoding", coding.parse().unwrap());
        assert_eq!(
            gateway.send(request).await.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{coding:?}"
        );
    }
    let mut request = gateway.post(&call("echo"));
    let plain = HeaderValue::from_static("identity");
    request.headers_mut().insert("content-encoding", plain);
    request
        .headers_mut()
        .insert("accept-encoding", HeaderValue::from_static("gzip"));
    let got = gateway.send(request).await;
    assert_eq!(
        (got.status, got.header("content-encoding")),
        (StatusCode::OK, "")
    );
    assert_eq!(worker.began(), 1);
}

#[tokio::test]
async fn another_charset_is_refused_by_name_and_by_its_bytes() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for charset in [
        "utf-16",
        "latin1",
        "iso-8859-1",
        "utf-8;charset=utf-16",
        "\"utf-16\"",
        "utf-7",
    ] {
        let mut request = gateway.post(&call("echo"));
        let kind = format!("application/json; charset={charset}");
        request
            .headers_mut()
            .insert("content-type", kind.parse().unwrap());
        let got = gateway.send(request).await;
        assert_eq!(got.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{charset}");
    }
    let text = call("echo").to_string();
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&[0xff, 0xfe], wide.as_slice()].concat();
    let latin = text
        .replace("echo", "gr\u{fc}n")
        .chars()
        .map(|c| c as u8)
        .collect::<Vec<_>>();
    for body in [wide, marked, latin] {
        let got = gateway.send(gateway.post_raw(body)).await;
        assert_eq!(
            (got.status, got.json()["error"]["code"].as_i64()),
            (StatusCode::BAD_REQUEST, Some(-32700))
        );
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn floods_of_headers_and_trailers_end_their_own_connection() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let lines = |count: usize| {
        (0..count)
            .map(|n| format!("x-{n}: 1\r\n"))
            .collect::<Vec<_>>()
            .concat()
    };
    for flood in [
        lines(97),
        lines(100_000),
        format!("x-long: {}\r\n", "a".repeat(1 << 20)),
    ] {
        let length = format!(
            "connection: close\r\ncontent-length: {}\r\n{flood}",
            body.len()
        );
        let answer = talk(&gateway, &post(&length, &body)).await;
        assert!(
            matches!(statuses(&answer).as_slice(), [] | [431]),
            "{}",
            &answer[..answer.len().min(200)]
        );
    }
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n{}\r\n", body.len(), lines(100_000));
    let request = post(
        "connection: close\r\ntransfer-encoding: chunked\r\n",
        &chunks,
    );
    let answer = talk(&gateway, &request).await;
    assert!(
        matches!(statuses(&answer).as_slice(), [] | [400]),
        "{}",
        &answer[..answer.len().min(200)]
    );
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}
