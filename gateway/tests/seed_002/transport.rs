//! What the endpoint answers before and around MCP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use ramen_gateway::{Gateway, Groups, gateway};
use serde_json::json;

use crate::support::{Bench, Got, KEY, PEER, builder, door, post};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

#[tokio::test]
async fn it_is_mounted_at_api_v1_mcp() {
    let bench = Bench::plain();
    let (_stop, stopping) = tokio::sync::watch::channel(false);
    let gateway = Gateway {
        groups: Groups::default(),
        door: door(),
        call_timeout: Duration::from_secs(1),
        stopping,
        oidc: None,
        operations: Some(bench.operations),
        recent: Arc::default(),
        metrics: Arc::default(),
        info: gateway::info(),
    };
    let got = Got::of(Box::pin(gateway.answer(PEER, post(LIST))).await).await;
    assert_eq!(got.json()["result"]["tools"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_gate_is_the_api_trees() {
    let bench = Bench::plain();
    let api = |key: &str| {
        Request::post("/api/v1/bookmarks/create")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {key}"))
            .body(Full::new(Bytes::new()))
            .unwrap()
    };
    let got = Got::of(
        bench
            .operations
            .api(&bench.door, PEER, "bookmarks/create", api(KEY))
            .await,
    )
    .await;
    assert_eq!(
        (got.status, got.json()["done"].as_bool()),
        (StatusCode::OK, Some(true))
    );
    let got = Got::of(
        bench
            .operations
            .api(&bench.door, PEER, "bookmarks/create", api("rmk_other"))
            .await,
    )
    .await;
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    assert_eq!(got.header("cache-control"), "no-store");
}

#[tokio::test]
async fn a_missing_or_bad_token_gets_the_apis_401() {
    let bench = Bench::plain();
    for authorization in [
        None,
        Some("Bearer rmk_other"),
        Some("Bearer "),
        Some("Basic cm1r"),
        Some(KEY),
    ] {
        let mut request = post(LIST);
        request.headers_mut().remove("authorization");
        if let Some(value) = authorization {
            request
                .headers_mut()
                .insert("authorization", value.parse().unwrap());
        }
        let got = bench.send(request).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{authorization:?}");
        assert_eq!(got.json()["error"]["code"], "unauthenticated");
        assert!(got.header("www-authenticate").starts_with("Bearer"));
    }
}

#[tokio::test]
async fn every_request_runs_behind_gate_wrap_before_anything_else_is_judged() {
    let bench = Bench::plain();
    let mut get = post("");
    *get.method_mut() = Method::GET;
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#;
    let bare = builder().body(Full::default()).unwrap();
    for mut request in [get, post("[]"), post(listen), call_with_id("1.5"), bare] {
        request.headers_mut().remove("authorization");
        let got = bench.send(request).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED);
        assert_eq!(got.json()["error"]["code"], "unauthenticated");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_verified_gets_the_apis_503() {
    let bench = Bench::plain();
    bench.script.down.store(true, Ordering::SeqCst);
    let got = bench.send(post(LIST)).await;
    assert_eq!(got.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(got.json()["error"]["code"], "unavailable");
}

#[tokio::test]
async fn every_answer_has_cache_control_no_store() {
    let bench = Bench::plain();
    let bare = || {
        builder()
            .body(Full::new(Bytes::from_static(LIST.as_bytes())))
            .unwrap()
    };
    let mut get = post("");
    *get.method_mut() = Method::GET;
    let mut stranger = post(LIST);
    stranger.headers_mut().remove("authorization");
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let mut elsewhere = post(LIST);
    *elsewhere.headers_mut().get_mut("host").unwrap() = "evil.example".parse().unwrap();
    let mut large = post(LIST);
    let length = "99999999".parse().unwrap();
    large.headers_mut().insert("content-length", length);
    for request in [
        elsewhere,
        large,
        call_with_id("1"),
        call_with_id("1.5"),
        post(LIST),
        post("{"),
        post("[]"),
        post(listen),
        post(note),
        bare(),
        get,
        stranger,
    ] {
        let got = bench.send(request).await;
        assert_eq!(got.header("cache-control"), "no-store", "{}", got.status);
    }
}

#[tokio::test]
async fn it_answers_only_post_and_any_other_method_is_405_with_allow_post() {
    let bench = Bench::plain();
    for method in [
        Method::GET,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::HEAD,
        Method::PATCH,
    ] {
        let mut request = post(LIST);
        *request.method_mut() = method.clone();
        let got = bench.send(request).await;
        assert_eq!(
            (got.status, got.header("allow")),
            (StatusCode::METHOD_NOT_ALLOWED, "POST"),
            "{method}"
        );
    }
}

#[tokio::test]
async fn a_batch_is_400_with_a_json_rpc_error() {
    let bench = Bench::plain();
    let call =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bookmarks_create"}}"#;
    for batch in [
        "[]".to_owned(),
        format!("[{LIST}]"),
        format!("[{call},{call}]"),
    ] {
        let got = bench.send(post(&batch)).await;
        assert_eq!(got.status, StatusCode::BAD_REQUEST);
        assert_eq!(got.json()["error"]["code"], -32600);
    }
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn subscriptions_listen_is_404_with_a_json_rpc_error() {
    let bench = Bench::plain();
    let legacy =
        json!({"jsonrpc": "2.0", "id": "a", "method": "subscriptions/listen", "params": {}});
    let got = bench.send(post(&legacy.to_string())).await;
    assert_eq!(
        (got.status, got.json()["error"]["code"].as_i64()),
        (StatusCode::NOT_FOUND, Some(-32601))
    );
    assert_eq!(got.json()["id"], "a");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let modern =
        json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let mut request = post(&modern.to_string());
    request
        .headers_mut()
        .insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
    request
        .headers_mut()
        .insert("mcp-method", "subscriptions/listen".parse().unwrap());
    let got = bench.send(request).await;
    assert_eq!(
        (got.status, got.json()["error"]["code"].as_i64()),
        (StatusCode::NOT_FOUND, Some(-32601))
    );
}

#[tokio::test]
async fn without_accept_it_is_a_plain_text_400() {
    let bench = Bench::plain();
    let mut request = post(LIST);
    request.headers_mut().remove("accept");
    let got = bench.send(request).await;
    assert_eq!(got.status, StatusCode::BAD_REQUEST);
    assert!(got.header("content-type").starts_with("text/plain"));
    assert!(
        serde_json::from_slice::<serde_json::Value>(&got.body).is_err(),
        "no JSON-RPC error"
    );
}

#[tokio::test]
async fn without_content_type_it_is_a_plain_text_415() {
    let bench = Bench::plain();
    let mut request = post(LIST);
    request.headers_mut().remove("content-type");
    let got = bench.send(request).await;
    assert_eq!(got.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(got.header("content-type").starts_with("text/plain"));
    assert!(
        serde_json::from_slice::<serde_json::Value>(&got.body).is_err(),
        "no JSON-RPC error"
    );
}

fn call_with_id(id: &str) -> Request<Full<Bytes>> {
    post(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"bookmarks_create"}}}}"#
    ))
}

#[tokio::test]
async fn a_number_id_that_is_no_plain_integer_in_range_is_refused_and_nothing_runs() {
    let bench = Bench::plain();
    for id in [
        "1.0",
        "1.5",
        "1e3",
        "1E0",
        "-0.0",
        "9007199254740992",
        "-9007199254740992",
        "123456789012345678901234567890",
        "0.1e1",
    ] {
        let got = bench.send(call_with_id(id)).await;
        let body = got.json();
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{id}");
        assert_eq!(
            (&body["error"]["code"], &body["id"]),
            (&json!(-32600), &json!(null)),
            "{id}"
        );
        assert!(
            body.as_object().unwrap().contains_key("id"),
            "the id is there, and null"
        );
    }
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn plain_integers_within_the_range_come_back_as_they_were() {
    let bench = Bench::plain();
    for id in ["0", "1", "-1", "9007199254740991", "-9007199254740991"] {
        let got = bench.send(call_with_id(id)).await;
        let text = String::from_utf8(got.body.to_vec()).unwrap();
        assert!(text.contains(&format!(r#""id":{id},"#)), "{text}");
        assert_eq!(got.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_string_id_is_never_refused() {
    let bench = Bench::plain();
    let giant = format!("\"{}\"", "i".repeat(1024 * 1024));
    for id in [
        r#""""#,
        r#""1.5""#,
        r#""9007199254740992""#,
        r#""\u0061\"\n""#,
        "\"größe\"",
        &giant,
    ] {
        let got = bench.send(call_with_id(id)).await;
        let text = String::from_utf8(got.body.to_vec()).unwrap();
        assert_eq!(got.status, StatusCode::OK);
        assert!(text.contains(&format!(r#""id":{id},"#)), "byte for byte");
    }
}

#[tokio::test]
async fn each_request_gets_its_own_stateless_server_that_answers_plain_json_and_never_advertises_list_changes()
 {
    let bench = Bench::plain();
    // No handshake before it, and none remembered after it.
    assert_eq!(bench.names().await.len(), 2);
    let got = bench
        .rpc("initialize", json!({"protocolVersion": "2025-11-25"}))
        .await;
    assert_eq!(got.header("content-type"), "application/json");
    assert_eq!(got.header("mcp-session-id"), "");
    let capabilities = got.json()["result"]["capabilities"].to_string();
    assert!(!capabilities.contains("listChanged"), "{capabilities}");
    let params = json!({"name": "bookmarks_create", "_meta": {"progressToken": 1}});
    let got = bench.rpc("tools/call", params).await;
    assert_eq!(
        got.header("content-type"),
        "application/json",
        "also when progress is asked for"
    );
}

#[tokio::test]
async fn any_message_with_such_a_number_id_is_refused_an_answer_of_the_client_too() {
    let bench = Bench::plain();
    for message in [
        r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":9007199254740992,"method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1e0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
    ] {
        let got = bench.send(post(message)).await;
        let body = got.json();
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{message}");
        assert_eq!(
            (&body["error"]["code"], &body["id"]),
            (&json!(-32600), &json!(null))
        );
    }
}

#[tokio::test]
async fn accept_and_content_type_as_they_are_to_be_sent_are_taken_and_others_are_not() {
    let bench = Bench::plain();
    for (accept, kind, status) in [
        (
            "application/json, text/event-stream",
            "application/json",
            200,
        ),
        (
            "application/json,text/event-stream;q=0.5",
            "application/json; charset=utf-8",
            200,
        ),
        ("*/*", "application/json", 200),
        ("text/html", "application/json", 406),
        ("application/json, text/event-stream", "text/plain", 415),
    ] {
        let mut request = post(LIST);
        let headers = request.headers_mut();
        headers.insert("accept", accept.parse().unwrap());
        headers.insert("content-type", kind.parse().unwrap());
        let got = bench.send(request).await;
        assert_eq!(got.status.as_u16(), status, "{accept} {kind}");
        assert_eq!(got.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn list_changes_are_advertised_to_modern_clients_no_more_than_to_others() {
    let bench = Bench::plain();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}});
    let mut request = post(&message.to_string());
    let headers = request.headers_mut();
    headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
    headers.insert("mcp-method", "server/discover".parse().unwrap());
    let got = bench.send(request).await;
    let result = &got.json()["result"];
    assert!(result["capabilities"]["tools"].is_object(), "{result}");
    assert!(!result.to_string().contains("listChanged"), "{result}");
}
