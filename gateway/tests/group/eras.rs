//! Both eras on one URL, and the headers that repeat the body.

use http::{Method, StatusCode};
use serde_json::json;

use crate::support::{KEY, Running, call, spec};
use crate::worker::Worker;

#[tokio::test]
async fn a_legacy_client_shakes_hands_and_calls_without_a_session() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let got =
        gateway
            .send(gateway.post(
                &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
            ))
            .await;
    assert_eq!(got.json()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(
        (got.header("mcp-session-id"), got.header("content-type")),
        ("", "application/json")
    );
    let got = gateway
        .send(gateway.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})))
        .await;
    assert_eq!((got.status, got.body.len()), (StatusCode::ACCEPTED, 0));
    let got = gateway.call("echo").await;
    assert_eq!(
        (got.status, got.text().as_str()),
        (StatusCode::OK, r#"{"a":1}"#)
    );
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake_on_the_same_url() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let got = gateway
        .send(gateway.modern("tools/call", json!({"name": "echo", "arguments": {}})))
        .await;
    assert_eq!(got.text(), "{}");
    let got = gateway
        .send(gateway.modern("server/discover", json!({})))
        .await;
    let capabilities = &got.json()["result"]["capabilities"];
    assert_eq!(
        capabilities["tools"]["listChanged"], true,
        "the stream works, so it is told"
    );
}

#[tokio::test]
async fn the_gateway_calls_workers_with_its_own_key_and_names_the_caller() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    gateway.call("echo").await;
    let metadata = worker.state.metadata.lock().unwrap().clone();
    assert_eq!(
        metadata.get("authorization").unwrap(),
        "Bearer rmk_of_the_gateway"
    );
    let caller = format!("key:{}", ramen_redact::KeyDigest::of(KEY).fingerprint());
    assert_eq!(metadata.get("ramen-caller").unwrap(), &caller);
    assert_eq!(metadata.get("ramen-group").unwrap(), "demo");
}

#[tokio::test]
async fn the_ramen_group_header_routes_too() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for (name, wanted) in [
        ("demo", 200),
        ("default/demo", 200),
        ("other", 401),
        ("", 401),
    ] {
        let mut request = gateway.post(&call("echo"));
        *request.uri_mut() = "/mcp".parse().unwrap();
        request
            .headers_mut()
            .insert("ramen-group", name.parse().unwrap());
        assert_eq!(
            gateway.send(request).await.status.as_u16(),
            wanted,
            "{name:?}"
        );
    }
}

#[tokio::test]
async fn header_copies_that_lack_differ_or_repeat_are_a_mismatch() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let request = || gateway.modern("tools/call", json!({"name": "echo", "arguments": {}}));
    for (header, value) in [
        ("mcp-method", None),
        ("mcp-name", None),
        ("mcp-protocol-version", None),
        ("mcp-method", Some("tools/list")),
        ("mcp-name", Some("other")),
        ("mcp-name", Some("Echo")),
        ("mcp-name", Some("=?base64?%%?=")),
        ("mcp-protocol-version", Some("2025-11-25")),
    ] {
        let mut request = request();
        request.headers_mut().remove(header);
        if let Some(value) = value {
            request.headers_mut().insert(header, value.parse().unwrap());
        }
        let got = gateway.send(request).await;
        assert_eq!(
            (got.status, &got.json()["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(-32020)),
            "{header} {value:?}"
        );
    }
    let mut twice = request();
    twice
        .headers_mut()
        .append("mcp-name", "echo".parse().unwrap());
    assert_eq!(gateway.send(twice).await.json()["error"]["code"], -32020);
    assert_eq!(worker.began(), 0);
    let mut coded = request();
    coded
        .headers_mut()
        .insert("mcp-name", "=?base64?ZWNobw==?=".parse().unwrap());
    assert_eq!(gateway.send(coded).await.status, StatusCode::OK);
}

#[tokio::test]
async fn copies_of_arguments_reach_the_worker_that_knows_the_schema() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut request = gateway.modern("tools/call", json!({"name": "echo", "arguments": {}}));
    request
        .headers_mut()
        .insert("mcp-param-region", "eu".parse().unwrap());
    gateway.send(request).await;
    let metadata = worker.state.metadata.lock().unwrap().clone();
    assert_eq!(metadata.get("mcp-param-region").unwrap(), "eu");
    assert_eq!(metadata.get("mcp-protocol-version").unwrap(), "2026-07-28");
}

#[tokio::test]
async fn the_status_of_an_error_is_that_of_its_era() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let modern = gateway
        .send(gateway.modern("tools/call", json!({"name": "unknown"})))
        .await;
    assert_eq!(
        (modern.status, &modern.json()["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!(-32602))
    );
    assert_eq!(gateway.call("unknown").await.status, StatusCode::OK);
    let modern = gateway.send(gateway.modern("no/such", json!({}))).await;
    assert_eq!(
        (modern.status, &modern.json()["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!(-32601))
    );
    let legacy = gateway
        .send(gateway.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "no/such"})))
        .await;
    assert_eq!(
        (legacy.status, &legacy.json()["error"]["code"]),
        (StatusCode::OK, &json!(-32601))
    );
    let modern = gateway.send(gateway.modern("initialize", json!({}))).await;
    assert_eq!(
        modern.status,
        StatusCode::NOT_FOUND,
        "the era decides, not the method"
    );
}

#[tokio::test]
async fn an_unknown_version_is_400_in_both_eras() {
    let gateway = Running::start(&[]).await;
    let mut legacy = gateway.post(&call("echo"));
    legacy
        .headers_mut()
        .insert("mcp-protocol-version", "1999-01-01".parse().unwrap());
    assert_eq!(gateway.send(legacy).await.status, StatusCode::BAD_REQUEST);
    let mut broken = gateway.post(&call("echo"));
    broken
        .headers_mut()
        .insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
    let got = gateway.send(broken).await;
    assert_eq!(
        (got.status, &got.json()["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!(-32602))
    );
}

#[tokio::test]
async fn net09_every_other_method_is_405_with_allow_post() {
    let gateway = Running::start(&[]).await;
    for method in [
        Method::GET,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::HEAD,
    ] {
        let mut request = gateway.post(&call("echo"));
        *request.method_mut() = method.clone();
        let got = gateway.send(request).await;
        assert_eq!(
            (
                got.status.as_u16(),
                got.header("allow"),
                got.header("cache-control")
            ),
            (405, "POST", "no-store"),
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_group_that_is_not_there_looks_like_one_whose_key_is_wrong() {
    let gateway = Running::start(&[]).await;
    gateway.groups.set(&spec("other", "rmk_other", &[]));
    let ask = async |path: &str, key: &str| {
        let mut request = gateway.post(&call("echo"));
        *request.uri_mut() = path.parse().unwrap();
        request
            .headers_mut()
            .insert("authorization", format!("Bearer {key}").parse().unwrap());
        let got = gateway.send(request).await;
        (got.status, got.body)
    };
    let absent = ask("/default/nowhere/mcp", KEY).await;
    assert_eq!(absent.0, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("/default/other/mcp", KEY).await, absent);
    assert_eq!(ask("/default/demo/mcp", "rmk_wrong").await, absent);
}
