//! Streamable HTTP: JSON and events, sessions, resuming, and servers that lie.

mod faults;
mod reach;
mod sessions;
pub(crate) mod support;

use std::time::Duration;

use ramen_client::{CallOptions, Client, ClientError, EraChoice, Json, Options, ServerConfig};
use serde_json::{Value, json};

use crate::support::{Log, soon, tool};
use support::{Http, Seen, answer, events, serve};

fn config(http: &Http) -> ServerConfig {
    ServerConfig::http(http.url().parse().unwrap())
}

pub(crate) async fn connect(http: &Http, era: EraChoice) -> Result<Client, ClientError> {
    let config = config(http).with_era(era);
    soon(Client::connect("web", &config, &Options::default())).await
}

async fn call(client: &Client) -> Result<String, ClientError> {
    soon(client.call_tool("one", &Json::from(&json!({"q": "x"})))).await
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A legacy server without sessions; `script` answers what it does not.
pub(crate) fn legacy(seen: &Seen) -> Option<Vec<u8>> {
    match (seen.http_method.as_str(), seen.method()) {
        ("GET" | "DELETE", _) => Some(
            b"HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n".to_vec(),
        ),
        (_, "server/discover") => Some(support::status(
            400,
            &json!({"jsonrpc": "2.0", "id": null,
            "error": {"code": -32600, "message": "unknown version"}}),
        )),
        (_, "initialize") => Some(answer(
            seen,
            &json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "web", "version": "3"}}),
        )),
        (_, method) if method.starts_with("notifications/") => {
            Some(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec())
        }
        (_, "tools/list") => Some(answer(seen, &json!({"tools": [tool("one")]}))),
        _ => None,
    }
}

#[tokio::test]
async fn connect_dials_a_legacy_server_and_calls_a_tool_answered_with_json() {
    let http = serve(|seen| legacy(seen).unwrap_or_else(|| answer(seen, &text("plain")))).await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(client.server_info(), "web 3");
    assert_eq!(call(&client).await.unwrap(), "plain");
    let call = http.seen("tools/call").pop().unwrap();
    assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(
        call.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(call.header("mcp-method"), None);
    assert_eq!(
        http.seen("initialize")[0].header("mcp-protocol-version"),
        None
    );
}

#[tokio::test]
async fn a_modern_server_gets_its_headers_and_no_handshake() {
    let http = serve(|seen| {
        let full = |mut result: Value| {
            result["resultType"] = json!("complete");
            answer(seen, &result)
        };
        match seen.method() {
            "server/discover" => full(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})),
            "tools/list" => full(json!({"tools": [
                {"name": "größe", "inputSchema": {"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"}, "n": {"type": "integer"}}}},
                {"name": "bad", "inputSchema": {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}},
            ]})),
            _ => full(text("modern")),
        }
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(
        client.tools().len(),
        1,
        "a tool whose annotations cannot be followed is left out"
    );
    let args = Json::from(&json!({"region": "eu west", "n": 1}));
    assert_eq!(
        soon(client.call_tool("größe", &args)).await.unwrap(),
        "modern"
    );
    let call = http.seen("tools/call").pop().unwrap();
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
    assert_eq!(call.header("mcp-param-region"), Some("eu west"));
    assert_eq!(call.header("mcp-session-id"), None);
    assert!(http.seen("initialize").is_empty());
    assert_eq!(
        http.seen("server/discover")[0].header("mcp-method"),
        Some("server/discover")
    );
}

#[tokio::test]
async fn an_answer_may_come_as_events_after_notifications() {
    let http = serve(|seen| {
        legacy(seen).unwrap_or_else(|| {
            events(&[
                "event: ping\ndata: {}\n\n".to_owned(),
                format!(
                    "data: {}\n\n",
                    json!({"jsonrpc": "2.0", "method": "notifications/message",
                    "params": {"level": "info", "data": "hi"}})
                ),
                format!("data: {}\n\n", seen.result(&text("streamed"))),
            ])
        })
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "streamed");
}

#[tokio::test]
async fn list_changed_on_the_stream_of_a_legacy_server_refreshes_the_tools() {
    let http = serve(|seen| match (seen.http_method.as_str(), seen.method()) {
        // One event, then the stream stays open.
        ("GET", _) => support::open_events(&[format!(
            "data: {}\n\n",
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        )]),
        (_, "tools/list") => answer(
            seen,
            &json!({"tools": [tool(&format!("v{}", seen.earlier("tools/list")))]}),
        ),
        _ => legacy(seen).unwrap(),
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    let mut updates = client.updates();
    soon(updates.wait_for(|updates| updates.tools >= 1))
        .await
        .unwrap();
    assert_eq!(client.tools()[0].name, "v1");
}

#[tokio::test]
async fn cancelling_tells_a_legacy_server_and_closes_the_stream_of_a_modern_one() {
    for era in [EraChoice::Legacy, EraChoice::Modern] {
        let http = serve(|seen| match seen.method() {
            "server/discover" => answer(
                seen,
                &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
            ),
            "tools/call" => support::open_events(&[": working\n\n".to_owned()]),
            _ => legacy(seen).unwrap(),
        })
        .await;
        let client = connect(&http, era).await.unwrap();
        let options = ramen_client::CallOptions {
            timeout: Some(Duration::from_secs(2)),
            ..Default::default()
        };
        let args = Json::from(&json!({}));
        let error = soon(client.call_tool_with("one", &args, options))
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        soon(http.until_hung_up()).await;
        if era == EraChoice::Legacy {
            let cancelled = soon(http.until("notifications/cancelled")).await;
            let call = http.seen("tools/call").pop().unwrap();
            assert_eq!(cancelled.body["params"]["requestId"], call.body["id"]);
        } else {
            assert!(http.seen("notifications/cancelled").is_empty());
        }
    }
}

/// The server hangs at what has no answer: notices that nobody waits for must not be in the way of later ones for ever.
#[tokio::test]
async fn notices_that_a_server_hangs_at_are_given_up() {
    let http = serve(|seen| match seen.method() {
        "tools/call" => support::open_events(&[": working\n\n".to_owned()]),
        "notifications/cancelled" => support::then_silence(Vec::new()),
        _ => legacy(seen).unwrap(),
    })
    .await;
    let mut options = Options::default();
    options.limits.connect = Duration::from_secs(2);
    options.limits.request = Duration::from_secs(2);
    let config = config(&http).with_era(EraChoice::Legacy);
    let client = soon(Client::connect("web", &config, &options))
        .await
        .unwrap();
    let in_time = CallOptions {
        timeout: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    // More than are on their way at once.
    soon(async {
        while http.seen("notifications/cancelled").len() <= 8 {
            let arguments = Json::from(&json!({}));
            let calling = client.call_tool_with("one", &arguments, in_time.clone());
            calling.await.unwrap_err();
        }
    })
    .await;
}

#[tokio::test]
async fn headers_of_the_configuration_are_sent_and_never_shown() {
    let log = Log::default();
    let _guard = log.start();
    let http = serve(|seen| match seen.method() {
        "tools/call" => support::status(
            500,
            &json!({"oops": seen.header("authorization"), "k": seen.header("x-key"),
                "token": seen.header("authorization").unwrap().trim_start_matches("Bearer ")}),
        ),
        _ => legacy(seen).unwrap(),
    })
    .await;
    let config = ServerConfig::http(http.url().parse().unwrap())
        .with("Authorization", "Bearer planted-token")
        .with("X-Key", "planted-key");
    let client = soon(Client::connect("web", &config, &Options::default()))
        .await
        .unwrap();
    let error = call(&client).await.unwrap_err();
    assert_eq!(
        http.seen("tools/call")[0].header("authorization"),
        Some("Bearer planted-token")
    );
    let shown = format!("{error} {error:?} {config:?} {client:?}");
    assert!(
        shown.contains("HTTP 500") && shown.contains("***") && !shown.contains("planted"),
        "{shown}"
    );
    assert!(!log.text().contains("planted"), "{}", log.text());
}

#[tokio::test]
async fn a_secret_at_the_edge_of_what_is_shown_is_masked_as_a_whole() {
    let http = serve(|seen| match seen.method() {
        "tools/call" => {
            let said = format!("{}{}", "x".repeat(290), seen.header("x-key").unwrap());
            support::status(500, &json!(said))
        }
        _ => legacy(seen).unwrap(),
    })
    .await;
    let config = ServerConfig::http(http.url().parse().unwrap())
        .with("X-Key", "planted-and-long-enough-to-be-cut");
    let client = soon(Client::connect("web", &config, &Options::default()))
        .await
        .unwrap();
    let shown = call(&client).await.unwrap_err().to_string();
    assert!(shown.contains("***") && !shown.contains("plant"), "{shown}");
}

#[tokio::test]
async fn the_password_of_an_address_is_sent_and_never_shown() {
    let http = serve(|seen| match seen.method() {
        "tools/call" => support::status(
            500,
            &json!({"sent": seen.header("authorization"), "read": "planted pass"}),
        ),
        _ => legacy(seen).unwrap(),
    })
    .await;
    let url = http.url().replace("://", "://user:planted%20pass@");
    let config = ServerConfig::http(url.parse().unwrap());
    let client = soon(Client::connect("web", &config, &Options::default()))
        .await
        .unwrap();
    let error = call(&client).await.unwrap_err();
    let pair = "dXNlcjpwbGFudGVkIHBhc3M=";
    let call = &http.seen("tools/call")[0];
    assert_eq!(
        call.header("authorization"),
        Some(format!("Basic {pair}").as_str())
    );
    let shown = format!("{error} {error:?} {config:?} {client:?}");
    assert!(
        shown.contains("***") && !shown.contains("planted") && !shown.contains(pair),
        "{shown}"
    );
}

#[tokio::test]
async fn a_server_that_wants_a_sign_in_is_an_error_that_says_so() {
    let http = serve(|_| {
        b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer resource_metadata=\"http://h/x\"\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
    .await;
    match connect(&http, EraChoice::Auto).await {
        Err(ClientError::SignIn {
            status: 401,
            challenge: Some(challenge),
            ..
        }) => {
            assert!(challenge.contains("resource_metadata"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        http.all().len(),
        1,
        "asking again with a handshake would meet the same"
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_what_is_for_one_address() {
    let http = serve(|_| {
        b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://other.example/mcp?token=planted\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
    .await;
    let error = connect(&http, EraChoice::Legacy).await.unwrap_err().chain();
    assert!(
        error.contains("redirects to http://other.example/mcp") && !error.contains("planted"),
        "{error}"
    );
}
