//! Requests that no good client sends. After each the good client beside goes on.

use http::StatusCode;
use ramen_gateway::callers::Limits;
use serde_json::json;

use crate::support::{KEY, PATH, Running, call};
use crate::worker::Worker;

/// A request as text, with these lines in its head.
fn raw(lines: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\naccept: application/json\r\ncontent-type: application/json\r\n{lines}\r\n{body}"
    )
    .into_bytes()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[tokio::test]
async fn forms_of_request_smuggling_run_nothing_but_what_is_plain() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let (length, chunked) = (
        body.len(),
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
    );
    for (name, lines, body) in [
        (
            "two lengths",
            format!("content-length: {length}\r\ncontent-length: 5\r\n"),
            body.clone(),
        ),
        (
            "a list of lengths",
            format!("content-length: {length}, {length}\r\n"),
            body.clone(),
        ),
        (
            "a signed length",
            format!("content-length: +{length}\r\n"),
            body.clone(),
        ),
        (
            "a coding that is none",
            "transfer-encoding: xchunked\r\n".into(),
            chunked.clone(),
        ),
        (
            "chunked, not last",
            "transfer-encoding: chunked, identity\r\n".into(),
            chunked.clone(),
        ),
        (
            "chunked twice",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n".into(),
            chunked.clone(),
        ),
        (
            "a space before the colon",
            format!("content-length : {length}\r\n"),
            body.clone(),
        ),
        (
            "a folded line",
            format!("content-length:\r\n {length}\r\n"),
            body.clone(),
        ),
        (
            "a chunk size that lies",
            "transfer-encoding: chunked\r\n".into(),
            "fffffffffffffffff\r\nx\r\n0\r\n\r\n".into(),
        ),
        (
            "a bare carriage return",
            format!("x-a: b\rcontent-length: {length}\r\n"),
            body.clone(),
        ),
        (
            "a zero byte",
            format!("x-a: b\0c\r\ncontent-length: {length}\r\n"),
            body.clone(),
        ),
    ] {
        let answer = gateway.raw(&raw(&lines, &body)).await;
        assert!(
            matches!(status(&answer), "400" | "none"),
            "{name}: {answer}"
        );
    }
    assert_eq!(worker.began(), 0);
    let answer = gateway
        .raw(&raw("transfer-encoding: chunked\r\n", &chunked))
        .await;
    assert_eq!(status(&answer), "200", "plain chunks are fine");
}

#[tokio::test]
async fn what_follows_a_request_with_two_kinds_of_length_is_never_read_as_another() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let next =
        String::from_utf8(raw(&format!("content-length: {}\r\n", body.len()), &body)).unwrap();
    // What a proxy in front takes for the body of the first request.
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n{next}", body.len());
    let length = format!("content-length: {}\r\n", chunked.len());
    for lines in [
        format!("transfer-encoding: chunked\r\n{length}"),
        format!("{length}transfer-encoding: chunked\r\n"),
    ] {
        let before = worker.began();
        let first = String::from_utf8(raw(&lines, &chunked)).unwrap();
        // Nothing in it asks to close the connection.
        let first = first.replacen("connection: close\r\n", "", 1);
        let answer = gateway.raw(first.as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(worker.began() <= before + 1);
    }
}

#[tokio::test]
async fn a_flood_of_headers_is_431_and_never_reaches_a_worker() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let length = format!("content-length: {}\r\n", body.len());
    let many: Vec<_> = (0..120).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = many.concat();
    let huge = format!("x-huge: {}\r\n", "a".repeat(20_000));
    let endless = format!("x-endless: {}\r\n", "a".repeat(200_000));
    for lines in [many, huge, endless] {
        let answer = gateway.raw(&raw(&format!("{lines}{length}"), &body)).await;
        assert!(
            matches!(status(&answer), "431" | "none"),
            "{}",
            status(&answer)
        );
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_larger_than_a_message_is_413_whether_it_says_so_or_not() {
    let gateway = Running::start(&[]).await;
    let answer = gateway.raw(&raw("content-length: 4194305\r\n", "{")).await;
    assert_eq!(status(&answer), "413");
    assert!(answer.contains("no-store"));
    let chunk = "x".repeat(1 << 20);
    let chunked = format!("100000\r\n{chunk}\r\n").repeat(5);
    let answer = gateway
        .raw(&raw("transfer-encoding: chunked\r\n", &chunked))
        .await;
    assert!(
        matches!(status(&answer), "413" | "none"),
        "{}",
        status(&answer)
    );
}

#[tokio::test]
async fn a_compressed_body_and_a_wrong_charset_are_415() {
    let gateway = Running::start(&[]).await;
    let mut request = gateway.post(&call("echo"));
    request
        .headers_mut()
        .insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(
        gateway.send(request).await.status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    let mut request = gateway.post(&call("echo"));
    request.headers_mut().insert(
        "content-type",
        "application/json; charset=utf-16".parse().unwrap(),
    );
    assert_eq!(
        gateway.send(request).await.status,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
}

#[tokio::test]
async fn bodies_that_are_no_message_are_400_with_the_code_that_says_why() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for (body, code) in [
        (&b""[..], -32700),
        (b"{", -32700),
        (b"\xef\xbb\xbf{}", -32700),
        (b"\xff\xfe{\x00}\x00", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\\ud800\",\"method\":\"ping\"}", -32700),
        (deep.as_bytes(), -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"hang"}}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.0,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, -32602),
    ] {
        let got = gateway.send(gateway.post_raw(body.to_vec())).await;
        let shown = String::from_utf8_lossy(body).into_owned();
        assert_eq!((got.status, got.json()["error"]["code"].as_i64()), (StatusCode::BAD_REQUEST, Some(code)), "{shown}");
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn a_giant_id_comes_back_whole() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let id = "i".repeat(1 << 20);
    let got = gateway
        .send(gateway.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})))
        .await;
    assert_eq!(got.json()["id"], id);
}

#[tokio::test]
async fn two_credentials_are_none() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut request = gateway.post(&call("echo"));
    request
        .headers_mut()
        .append("authorization", "Bearer rmk_other".parse().unwrap());
    assert_eq!(gateway.send(request).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn a_web_page_that_rebinds_a_name_to_loopback_is_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for (host, origin) in [
        ("evil.example", "http://evil.example"),
        ("localhost", "http://evil.example"),
        ("localhost", "null"),
    ] {
        let mut request = gateway.post(&call("echo"));
        request.headers_mut().insert("host", host.parse().unwrap());
        request
            .headers_mut()
            .insert("origin", origin.parse().unwrap());
        assert_eq!(
            gateway.send(request).await.status,
            StatusCode::FORBIDDEN,
            "{host} {origin}"
        );
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn a_caller_over_its_rate_is_429_and_says_when_to_come_again() {
    let worker = Worker::start().await;
    let limits = Limits {
        rate: 1,
        ..Limits::default()
    };
    let gateway = Running::with(&[worker.address], limits).await;
    let mut last = gateway.call("echo").await;
    assert_eq!(last.status, StatusCode::OK);
    // One each second: of a quick dozen some are too many.
    let mut refused = 0;
    for _ in 0..12 {
        last = gateway.call("echo").await;
        refused += u32::from(last.status == StatusCode::TOO_MANY_REQUESTS);
        if refused > 0 {
            break;
        }
    }
    assert_eq!(
        (last.status, last.header("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "1")
    );
}

#[tokio::test]
async fn paths_beside_the_endpoints_are_404_and_health_is_open() {
    let gateway = Running::start(&[]).await;
    for (path, wanted) in [
        ("/", 404),
        ("/default/demo", 404),
        ("/default/demo/mcp/", 404),
        ("/a/b/c/mcp", 404),
        ("/api/v1/groups/list", 404),
        ("/.well-known/oauth-protected-resource", 404),
    ] {
        let mut request = gateway.post(&call("echo"));
        *request.uri_mut() = path.parse().unwrap();
        let got = gateway.send(request).await;
        assert_eq!(
            (got.status.as_u16(), got.header("cache-control")),
            (wanted, "no-store"),
            "{path}"
        );
    }
    let answer = gateway
        .raw(b"GET /healthz HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")
        .await;
    assert_eq!(status(&answer), "200");
}
