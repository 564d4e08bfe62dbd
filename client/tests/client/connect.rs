//! `Connect`: the handshake of the old era, the probe for the new one, and what a failure costs.

use ramen_client::{Client, ClientError, EraChoice, Options};
use serde_json::{Value, json};

use crate::support::{
    Out, connect, connect_with, legacy, legacy_client, limits, serve, soon, tool,
};

fn modern(message: &Value, out: &Out) -> bool {
    let meta = &message["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({})
    );
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "ramen");
    let info = json!({"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}});
    match message["method"].as_str() {
        Some("server/discover") => out.result(
            message,
            &json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0,
                "cacheScope": "private", "capabilities": {"tools": {"listChanged": true}}, "_meta": info,
            }),
        ),
        Some("tools/list") => out.result(
            message,
            &json!({"resultType": "complete", "tools": [tool("new")], "ttlMs": 0, "cacheScope": "private"}),
        ),
        _ => return false,
    }
    true
}

#[tokio::test]
async fn connect_performs_the_handshake_and_lists_the_tools() {
    let (client, server) = legacy_client(|_, _| {}).await;
    let after_probe = &server.methods()[1..];
    assert_eq!(
        after_probe,
        ["initialize", "notifications/initialized", "tools/list"]
    );
    let hello = &server.seen("initialize")[0]["params"];
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    assert_eq!(hello["capabilities"], json!({}));
    assert_eq!(hello["clientInfo"]["name"], "ramen");
    assert_eq!(client.tools()[0].name, "one");
    // Nothing of the new era is in what the old one is told.
    for message in ["initialize", "notifications/initialized", "tools/list"] {
        assert!(server.seen(message)[0]["params"].get("_meta").is_none());
    }
}

#[tokio::test]
async fn server_info_is_the_servers_self_reported_name_and_version() {
    let (client, _server) = legacy_client(|_, _| {}).await;
    assert_eq!(client.server_info(), "scripted 1.2");
    let (client, _server) = connect(|message, out| {
        if message["method"] == "initialize" {
            out.result(message, &json!({"protocolVersion": "2025-06-18"}));
        } else if message["method"] != "notifications/initialized" {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    assert_eq!(client.server_info(), "");
    assert_eq!(client.version().as_str(), "2025-06-18");
}

#[tokio::test]
async fn a_server_of_the_new_era_is_recognised_by_the_probe_and_gets_no_handshake() {
    let (client, mut server) = connect(|message, out| {
        modern(message, out);
    })
    .await
    .unwrap();
    assert_eq!(client.version().as_str(), "2026-07-28");
    assert_eq!(client.server_info(), "new 2");
    assert_eq!(client.tools()[0].name, "new");
    let listen = server.until("subscriptions/listen", 1).await;
    assert_eq!(listen["params"]["notifications"]["toolsListChanged"], true);
    assert!(server.seen("initialize").is_empty());
}

/// Servers refuse what they do not know in many ways; each of them gets a handshake.
#[tokio::test]
async fn whatever_an_old_server_says_to_the_probe_it_gets_a_handshake() {
    for code in [-32601, -32602, -32600, -32000, -32603, 0, 1] {
        let (client, _server) = connect(move |message, out| {
            if message["method"] == "server/discover" {
                out.error(message, code, "what?");
            } else {
                legacy(message, out, &json!([]));
            }
        })
        .await
        .unwrap();
        assert_eq!(client.version().as_str(), "2025-11-25", "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_to_the_probe_gets_a_handshake() {
    let (client, _server) = connect(|message, out| {
        if message["method"] != "server/discover" {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    assert_eq!(client.version().as_str(), "2025-11-25");
}

#[tokio::test]
async fn a_server_that_names_another_modern_revision_or_is_modern_after_all_is_asked_again() {
    let unsupported = |message: &Value, out: &Out| {
        out.send(&json!({"jsonrpc": "2.0", "id": message["id"], "error": {
            "code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "?"}}}));
    };
    // Too slow for the probe: it says so to the handshake.
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let (client, server) = connect(move |message, out| match message["method"].as_str() {
        Some("initialize") => unsupported(message, out),
        Some("server/discover") if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => {
            out.error(message, -32000, "starting");
        }
        _ => {
            modern(message, out);
        }
    })
    .await
    .unwrap();
    assert_eq!(client.version().as_str(), "2026-07-28");
    assert_eq!(server.seen("server/discover").len(), 2);
}

#[tokio::test]
async fn a_server_that_fails_any_step_is_an_error_that_says_which() {
    type Script = fn(&Value, &Out);
    let cases: [(&str, Script); 5] = [
        (
            "no handshake today",
            |message, out| match message["method"].as_str() {
                Some("initialize") => out.error(message, -32603, "no handshake today"),
                _ => {
                    legacy(message, out, &json!([]));
                }
            },
        ),
        ("protocol version", |message, out| {
            match message["method"].as_str() {
                Some("initialize") => {
                    out.result(message, &json!({"protocolVersion": "1999-01-01"}));
                }
                _ => {
                    legacy(message, out, &json!([]));
                }
            }
        }),
        ("broken list", |message, out| {
            match message["method"].as_str() {
                Some("tools/list") => out.error(message, -32603, "broken list"),
                _ => {
                    legacy(message, out, &json!([]));
                }
            }
        }),
        ("tools/list", |message, out| {
            match message["method"].as_str() {
                Some("tools/list") => out.result(message, &json!({"tools": 7})),
                _ => {
                    legacy(message, out, &json!([]));
                }
            }
        }),
        ("gone", |message, out| match message["method"].as_str() {
            Some("tools/list") => out.close(),
            _ => {
                legacy(message, out, &json!([]));
            }
        }),
    ];
    for (part, script) in cases {
        let error = connect(script).await.unwrap_err();
        assert!(error.chain().contains(part), "{part}: {}", error.chain());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_in_bounded_time() {
    let (reads, writes, _server) = serve(|_, _| {});
    let options = limits(|_| {});
    let connecting = Client::over_streams("mute", reads, writes, EraChoice::Auto, &options);
    let error = soon_in_its_own_time(connecting).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
}

/// Paused time moves as far as it must.
async fn soon_in_its_own_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(std::time::Duration::from_mins(10), what)
        .await
        .expect("bounded")
}

#[tokio::test]
async fn a_server_of_resources_alone_need_not_know_tools() {
    let (client, _server) = connect(|message, out| match message["method"].as_str() {
        Some("initialize") => out.result(
            message,
            &json!({"protocolVersion": "2025-11-25", "capabilities": {"resources": {}},
                    "serverInfo": {"name": "files", "version": "0"}}),
        ),
        Some("tools/list") => out.error(message, -32601, "no tools here"),
        _ => {
            legacy(message, out, &json!([]));
        }
    })
    .await
    .unwrap();
    assert!(client.tools().is_empty());
}

#[tokio::test]
async fn a_modern_server_may_want_its_state_back() {
    let (client, mut server) = connect_with(
        |message, out| {
            if !modern(message, out) && message["method"] == "tools/call" {
                match message["params"]["requestState"].as_str() {
                    None => out.result(
                        message,
                        &json!({"resultType": "input_required", "requestState": "s1"}),
                    ),
                    Some("s1") => out.result(
                        message,
                        &json!({"resultType": "input_required", "requestState": "s2"}),
                    ),
                    Some(state) => out.result(
                        message,
                        &json!({"resultType": "complete",
                        "content": [{"type": "text", "text": format!("done with {state}")}]}),
                    ),
                }
            }
        },
        EraChoice::Modern,
        Options::default(),
    )
    .await
    .unwrap();
    let args = ramen_client::Json::from(&json!({"a": 1}));
    assert_eq!(
        soon(client.call_tool("new", &args)).await.unwrap(),
        "done with s2"
    );
    let last = server.until("tools/call", 3).await;
    assert_eq!(last["params"]["arguments"], json!({"a": 1}));
    let ids: std::collections::HashSet<_> = server
        .seen("tools/call")
        .iter()
        .map(|m| m["id"].to_string())
        .collect();
    assert_eq!(ids.len(), 3, "each round is a request of its own");
}

#[tokio::test]
async fn a_question_to_a_person_is_an_error_that_says_so() {
    let (client, _server) = connect_with(
        |message, out| {
            if !modern(message, out) && message["method"] == "tools/call" {
                out.result(
                    message,
                    &json!({"resultType": "input_required", "inputRequests": {
                    "name": {"method": "elicitation/create", "params": {}}}}),
                );
            }
        },
        EraChoice::Modern,
        Options::default(),
    )
    .await
    .unwrap();
    let args = ramen_client::Json::from(&json!({}));
    let error = soon(client.call_tool("new", &args)).await.unwrap_err();
    assert!(
        matches!(error, ClientError::InputRequired { .. }),
        "{error}"
    );
}

/// Answers every question with its own message, and counts nothing.
fn person() -> Options {
    Options {
        person: Some(ramen_client::Elicit::new(
            |question: ramen_client::Json| async move {
                let question: Value = question.to().unwrap();
                ramen_client::Json::from(
                    &json!({"action": "accept", "content": {"said": question["message"]}}),
                )
            },
        )),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_person_answers_what_a_legacy_server_asks() {
    let (_client, mut server) = connect_with(
        |message, out| {
            legacy(message, out, &json!([]));
        },
        EraChoice::Legacy,
        person(),
    )
    .await
    .unwrap();
    let hello = &server.seen("initialize")[0]["params"];
    assert_eq!(hello["capabilities"], json!({"elicitation": {}}));
    server.out().send(&json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Who?"}}));
    let answer = server.answer(&json!("q")).await;
    assert_eq!(
        answer["result"],
        json!({"action": "accept", "content": {"said": "Who?"}})
    );
}

#[tokio::test]
async fn a_person_answers_what_a_modern_server_asks_and_no_state_is_made_up() {
    let (client, mut server) = connect_with(
        |message, out| {
            let mut plain = message.clone();
            let capabilities =
                &message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(*capabilities, json!({"elicitation": {}}));
            plain["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            if !modern(&plain, out) && message["method"] == "tools/call" {
                let responses = &message["params"]["inputResponses"];
                if responses.is_null() {
                    out.result(
                        message,
                        &json!({"resultType": "input_required", "inputRequests": {
                        "k": {"method": "elicitation/create", "params": {"message": "Sure?"}}}}),
                    );
                } else {
                    out.result(
                        message,
                        &json!({"content": [{"type": "text", "text": responses.to_string()}]}),
                    );
                }
            }
        },
        EraChoice::Modern,
        person(),
    )
    .await
    .unwrap();
    let args = ramen_client::Json::from(&json!({}));
    let text = soon(client.call_tool("new", &args)).await.unwrap();
    assert_eq!(
        text,
        r#"{"k":{"action":"accept","content":{"said":"Sure?"}}}"#
    );
    let last = server.until("tools/call", 2).await;
    assert!(last["params"].get("requestState").is_none());
}
