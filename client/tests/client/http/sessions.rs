//! Sessions that a server forgets, and streams that break off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ramen_client::{CallOptions, Client, ClientError, EraChoice, Json, Options};
use serde_json::json;

use super::support::{self, Seen, answer, events, serve};
use super::{call, config, connect, legacy, text};
use crate::support::{soon, tool};

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
