//! Streamable HTTP: JSON and events, sessions, resuming, and servers that lie.

mod faults;
pub(crate) mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
async fn a_session_is_sent_with_every_request_and_given_back_at_the_end() {
    let http = serve(with_session).await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "in s1");
    soon(client.close()).await;
    let deleted = http
        .all()
        .into_iter()
        .find(|seen| seen.http_method == "DELETE")
        .unwrap();
    assert_eq!(deleted.header("mcp-session-id"), Some("s1"));
}

fn with_session(seen: &Seen) -> Vec<u8> {
    match seen.method() {
        "initialize" => {
            let minted = format!("mcp-session-id: s{}\r\n", seen.earlier("initialize") + 1);
            support::with_headers(legacy(seen).unwrap(), &minted)
        }
        "tools/call" => answer(
            seen,
            &text(&format!(
                "in {}",
                seen.header("mcp-session-id").unwrap_or("none")
            )),
        ),
        _ => legacy(seen).unwrap(),
    }
}

/// python-sdk#1676: a new session once, without the caller noticing.
#[tokio::test]
async fn a_lost_session_is_made_anew_and_the_call_goes_through() {
    let http = serve(|seen| {
        if seen.method() == "tools/call" && seen.header("mcp-session-id") == Some("s1") {
            return support::status(404, &json!({"error": "unknown session"}));
        }
        with_session(seen)
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "in s2");
    assert_eq!(http.seen("initialize").len(), 2);
    assert_eq!(http.seen("notifications/initialized").len(), 2);
    // Many calls that meet it at once make one new session.
    assert_eq!(http.seen("tools/call").len(), 2);
}

#[tokio::test]
async fn a_session_that_is_lost_again_and_again_is_an_error() {
    let http = serve(|seen| {
        if seen.method() == "tools/call" {
            return support::status(404, &json!({}));
        }
        with_session(seen)
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert!(matches!(call(&client).await, Err(ClientError::SessionLost)));
    assert_eq!(http.seen("initialize").len(), 2);
}

/// A server that lost its sessions and then hangs in the handshake: who waits for an answer waits no longer than they said,
/// and the handshake is made once more for who comes next.
#[tokio::test]
async fn a_handshake_that_hangs_when_it_is_made_anew_holds_up_nobody_for_ever() {
    let well = Arc::new(AtomicBool::new(false));
    let http = serve({
        let well = Arc::clone(&well);
        move |seen| match (seen.method(), seen.header("mcp-session-id")) {
            ("tools/call", Some("s1")) => support::status(404, &json!({})),
            ("notifications/initialized", Some(session)) if session != "s1" => {
                if well.load(Ordering::SeqCst) {
                    with_session(seen)
                } else {
                    support::then_silence(Vec::new())
                }
            }
            _ => with_session(seen),
        }
    })
    .await;
    let mut options = Options::default();
    options.limits.connect = Duration::from_secs(3);
    let config = config(&http).with_era(EraChoice::Legacy);
    let client = soon(Client::connect("web", &config, &options))
        .await
        .unwrap();
    let in_time = CallOptions {
        timeout: Some(Duration::from_millis(100)),
        ..CallOptions::default()
    };
    while http.seen("notifications/initialized").len() < 2 {
        let arguments = Json::from(&json!({}));
        let calling = client.call_tool_with("one", &arguments, in_time.clone());
        let error = soon(calling).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    }
    well.store(true, Ordering::SeqCst);
    let answer = call(&client).await.unwrap();
    assert!(answer != "in s1" && answer.starts_with("in s"), "{answer}");
    let calls = http.seen("tools/call");
    let taken = |seen: &&Seen| seen.header("mcp-session-id") != Some("s1");
    assert_eq!(calls.iter().filter(taken).count(), 1);
}

/// The stream ends before the answer; the rest of it is asked for by the id of the last event.
#[tokio::test]
async fn a_broken_stream_of_a_legacy_server_is_resumed_after_its_last_event() {
    let http = serve(|seen| {
        if seen.http_method == "GET" && seen.header("last-event-id") == Some("ev-7") {
            let call = seen.last("tools/call").unwrap();
            return events(&[format!(
                "id: ev-8\ndata: {}\n\n",
                call.result(&text("resumed"))
            )]);
        }
        legacy(seen).unwrap_or_else(|| events(&["id: ev-7\nretry: 1\ndata:\n\n".to_owned()]))
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert_eq!(call(&client).await.unwrap(), "resumed");
    assert_eq!(
        http.seen("tools/call").len(),
        1,
        "a call is never sent again"
    );
}

/// The server took the call and may have carried it out: that it has forgotten the session by the time that the rest of
/// the answer is asked for is no reason to send the call again.
#[tokio::test]
async fn a_call_whose_stream_cannot_be_resumed_fails_and_is_not_sent_again() {
    for status in [404, 400, 401, 410, 503] {
        let restarted = AtomicBool::new(false);
        let http = serve(move |seen| {
            if seen.http_method == "GET" && seen.header("last-event-id").is_some() {
                restarted.store(true, Ordering::SeqCst);
                return support::status(status, &json!({}));
            }
            match (seen.method(), seen.header("mcp-session-id")) {
                ("tools/call", Some("s1")) if restarted.load(Ordering::SeqCst) => {
                    support::status(404, &json!({"error": "unknown session"}))
                }
                ("tools/call", Some("s1")) => events(&["id: ev-7\nretry: 1\ndata:\n\n".to_owned()]),
                _ => with_session(seen),
            }
        })
        .await;
        let client = connect(&http, EraChoice::Auto).await.unwrap();
        let error = call(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Answer { .. }), "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        assert_eq!(http.seen("tools/call").len(), 1, "{status}");
        // The next call finds the session gone, before anything is done, and gets a new one.
        assert_eq!(call(&client).await.unwrap(), "in s2");
        assert_eq!(http.seen("initialize").len(), 2);
    }
}

/// rust-sdk#958: resuming that brings nothing must end.
#[tokio::test]
async fn resuming_that_brings_nothing_is_given_up() {
    let http = serve(|seen| {
        if seen.http_method == "GET" && seen.header("last-event-id").is_some() {
            return events(&[]);
        }
        legacy(seen).unwrap_or_else(|| events(&["id: 1\nretry: 1\ndata:\n\n".to_owned()]))
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Answer { .. }), "{error}");
    let resumed = http
        .all()
        .iter()
        .filter(|seen| seen.header("last-event-id").is_some())
        .count();
    assert_eq!(resumed, 5);
}

#[tokio::test]
async fn a_modern_stream_that_breaks_is_an_error_and_nothing_is_sent_again() {
    let http = serve(|seen| match seen.method() {
        "server/discover" => answer(
            seen,
            &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}),
        ),
        "tools/list" => answer(seen, &json!({"tools": [tool("one")]})),
        _ => events(&["id: 1\nretry: 1\ndata:\n\n".to_owned()]),
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    assert!(matches!(
        call(&client).await,
        Err(ClientError::Answer { .. })
    ));
    assert_eq!(http.seen("tools/call").len(), 1);
    assert!(http.all().iter().all(|seen| seen.http_method == "POST"));
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

#[tokio::test]
async fn headers_of_the_configuration_are_sent_and_never_shown() {
    let log = Log::default();
    let _guard = log.start();
    let http = serve(|seen| match seen.method() {
        "tools/call" => support::status(
            500,
            &json!({"oops": seen.header("authorization"), "k": seen.header("x-key")}),
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

#[tokio::test]
async fn done_closes_when_the_server_cannot_be_reached_any_more() {
    let http = serve(|seen| legacy(seen).unwrap_or_else(|| answer(seen, &text("ok")))).await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    http.shut_down().await;
    let error = call(&client).await.unwrap_err();
    assert!(
        matches!(
            error,
            ClientError::Connect { .. } | ClientError::Answer { .. } | ClientError::Gone { .. }
        ),
        "{error}"
    );
    // A connection that was open may break first; the next attempt finds nobody.
    let _ = call(&client).await.unwrap_err();
    soon(client.done()).await;
}

/// A legacy server whose connections serve one request each, so that the next one needs a new connection. Its calls are
/// answered when the test says so.
async fn slow() -> Http {
    serve(|seen| {
        let close = |answer| support::with_headers(answer, "connection: close\r\n");
        match seen.method() {
            "tools/call" => support::later(&close(answer(seen, &text("late")))),
            _ => close(legacy(seen).unwrap()),
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_that_is_refused_fails_its_own_call_and_none_that_is_under_way() {
    let http = slow().await;
    let client = Arc::new(connect(&http, EraChoice::Auto).await.unwrap());
    let calling = tokio::spawn({
        let client = Arc::clone(&client);
        async move { call(&client).await }
    });
    // A `GET` has no method of the protocol: it is the question for a stream, which must not come later.
    soon(http.until("")).await;
    soon(http.until("tools/call")).await;
    http.close_port().await;
    for _ in 0..3 {
        let error = call(&client).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    }
    http.go_on();
    assert_eq!(soon(calling).await.unwrap().unwrap(), "late");
    assert!(!client.is_done());
    // With nothing under way it is the end.
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    soon(client.done()).await;
}

#[tokio::test]
async fn done_closes_with_the_last_call_when_the_server_could_not_be_reached_before() {
    let http = slow().await;
    let client = Arc::new(connect(&http, EraChoice::Auto).await.unwrap());
    let calling = tokio::spawn({
        let client = Arc::clone(&client);
        async move { call(&client).await }
    });
    // A `GET` has no method of the protocol: it is the question for a stream, which must not come later.
    soon(http.until("")).await;
    soon(http.until("tools/call")).await;
    http.close_port().await;
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    http.shut_down().await;
    soon(calling).await.unwrap().unwrap_err();
    soon(client.done()).await;
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error_that_names_it() {
    let http = serve(|_| Vec::new()).await;
    let url = http.url();
    http.shut_down().await;
    let config = ServerConfig::http(url.parse().unwrap());
    let error = soon(Client::connect("web", &config, &Options::default()))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}
