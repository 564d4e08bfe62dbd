//! Requests and their answers: text, errors, cancelling, progress, and servers that answer wrongly.

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_client::{CallOptions, Client, ClientError, EraChoice, Json, Options};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{Log, connect_with, legacy, legacy_client, limits, soon, tool};

fn no_args() -> Json {
    Json::from(&json!({}))
}

async fn call(client: &Client) -> Result<String, ClientError> {
    soon(client.call_tool("one", &no_args())).await
}

#[tokio::test]
async fn call_tool_invokes_one_tool_and_flattens_the_result_into_plain_text() {
    let (client, server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            out.result(
                message,
                &json!({"content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            );
        }
    })
    .await;
    let args = Json::parse(r#"{"n": 12345678901234567890, "x": 1.50}"#).unwrap();
    assert_eq!(soon(client.call_tool("one", &args)).await.unwrap(), "a\nb");
    assert_eq!(server.seen("tools/call")[0]["params"]["name"], "one");
    assert_eq!(
        server.seen("tools/call")[0]["params"]["arguments"].to_string(),
        serde_json::from_str::<serde_json::Value>(args.get())
            .unwrap()
            .to_string()
    );
}

#[tokio::test]
async fn a_tool_level_failure_comes_back_as_text_rather_than_an_error() {
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            out.result(
                message,
                &json!({"isError": true, "content": [
                {"type": "text", "text": "ValueError: no such city"}]}),
            );
        }
    })
    .await;
    assert_eq!(call(&client).await.unwrap(), "ValueError: no such city");
}

#[tokio::test]
async fn a_protocol_error_is_an_error_with_its_code() {
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            out.error(message, -32602, "unknown tool");
        }
    })
    .await;
    match call(&client).await {
        Err(ClientError::Rpc(error)) => {
            assert_eq!((error.code, &*error.message), (-32602, "unknown tool"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn get_prompt_resolves_a_named_prompt_and_flattens_its_messages() {
    let (client, server) = legacy_client(|message, out| {
        if message["method"] == "prompts/get" {
            out.result(
                message,
                &json!({"messages": [
                {"role": "user", "content": {"type": "text", "text": "Review"}},
                {"role": "assistant", "content": {"type": "text", "text": "Sure"}}]}),
            );
        }
    })
    .await;
    let arguments = BTreeMap::from([("code".to_owned(), "x = 1".to_owned())]);
    let text = soon(client.get_prompt("review", &arguments)).await.unwrap();
    assert_eq!(text, "user: Review\n\nassistant: Sure");
    let params = &server.seen("prompts/get")[0]["params"];
    assert_eq!(
        *params,
        json!({"name": "review", "arguments": {"code": "x = 1"}})
    );
}

#[tokio::test]
async fn read_resource_flattens_to_text_and_reports_a_blob_as_a_placeholder() {
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "resources/read" {
            let uri = &message["params"]["uri"];
            out.result(message, &json!({"contents": [
                {"uri": uri, "text": "words"}, {"uri": uri, "mimeType": "image/png", "blob": "AAAA"}]}));
        }
    })
    .await;
    let text = soon(client.read_resource("file:///a")).await.unwrap();
    assert_eq!(text, "words\n[binary file:///a: image/png, 3 bytes]");
}

#[tokio::test]
async fn concurrent_calls_are_answered_in_any_order() {
    let held = std::sync::Mutex::new(Vec::new());
    let (client, _server) = legacy_client(move |message, out| {
        if message["method"] == "tools/call" {
            let mut held = held.lock().unwrap();
            held.push(message.clone());
            if held.len() == 20 {
                for message in held.drain(..).rev() {
                    let n = &message["params"]["arguments"]["n"];
                    out.result(
                        &message,
                        &json!({"content": [{"type": "text", "text": n.to_string()}]}),
                    );
                }
            }
        }
    })
    .await;
    let calls = (0..20).map(|n| {
        let args = Json::from(&json!({ "n": n }));
        let client = &client;
        async move { client.call_tool("one", &args).await.unwrap() }
    });
    let answers = soon(futures::future::join_all(calls)).await;
    assert_eq!(answers, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server_and_its_late_answer_is_nothing() {
    let (client, mut server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" && message["params"]["arguments"]["n"] == 2 {
            out.result(
                message,
                &json!({"content": [{"type": "text", "text": "second"}]}),
            );
        }
    })
    .await;
    let request = {
        let args = no_args();
        let call = client.call_tool("one", &args);
        let seen = async {
            let mut server = server.clone();
            server.until("tools/call", 1).await
        };
        tokio::select! {
            request = seen => request,
            answer = call => panic!("{answer:?}"),
        }
    };
    let cancelled = server.until("notifications/cancelled", 1).await;
    assert_eq!(cancelled["params"]["requestId"], request["id"]);
    server.out().result(
        &request,
        &json!({"content": [{"type": "text", "text": "late"}]}),
    );
    let args = Json::from(&json!({"n": 2}));
    assert_eq!(
        soon(client.call_tool("one", &args)).await.unwrap(),
        "second"
    );
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up_and_cancelled() {
    let (client, mut server) = legacy_client(|_, _| {}).await;
    let options = CallOptions {
        timeout: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    let error = soon(client.call_tool_with("one", &no_args(), options))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    server.until("notifications/cancelled", 1).await;
}

#[tokio::test]
async fn progress_reaches_who_asked_for_it_and_nobody_else() {
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            let token = &message["params"]["_meta"]["progressToken"];
            let send = |params| out.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            if !token.is_null() {
                send(json!({"progressToken": 999, "progress": 1}));
                send(json!({"progressToken": token, "progress": 1, "total": 2, "message": "half"}));
                send(json!({"progressToken": token, "progress": 2}));
            }
            out.result(message, &json!({"content": []}));
        }
    })
    .await;
    let (sender, mut reports) = mpsc::channel(8);
    let options = CallOptions {
        progress: Some(sender),
        ..CallOptions::default()
    };
    soon(client.call_tool_with("one", &no_args(), options))
        .await
        .unwrap();
    let report = |progress, total, message: Option<&str>| ramen_client::Progress {
        progress,
        total,
        message: message.map(str::to_owned),
    };
    let first = reports.recv().await.unwrap();
    assert_eq!(first, report(1.0, Some(2.0), Some("half")));
    assert_eq!(reports.recv().await.unwrap(), report(2.0, None, None));
    assert!(reports.recv().await.is_none());
}

/// python-sdk#1795: `"0"` is not `0`.
#[tokio::test]
async fn env02_an_answer_with_anothers_id_is_not_taken_and_warned_of() {
    let log = Log::default();
    let _guard = log.start();
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            let id = message["id"].as_u64().unwrap();
            let result = json!({"content": [{"type": "text", "text": "wrong"}]});
            for wrong in [
                json!(id.to_string()),
                json!(id + 77),
                json!(null),
                json!(-1),
            ] {
                out.send(&json!({"jsonrpc": "2.0", "id": wrong, "result": result}));
            }
            out.result(
                message,
                &json!({"content": [{"type": "text", "text": "right"}]}),
            );
        }
    })
    .await;
    assert_eq!(call(&client).await.unwrap(), "right");
    assert!(
        log.text().contains("an answer to nothing that was asked"),
        "{}",
        log.text()
    );
}

#[tokio::test]
async fn waiting_requests_are_bounded() {
    let tools = json!([tool("one")]);
    let (client, mut server) = connect_with(
        move |message, out| {
            legacy(message, out, &tools);
        },
        EraChoice::Legacy,
        limits(|limits| limits.pending = 3),
    )
    .await
    .unwrap();
    let args = no_args();
    let waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(client.call_tool("one", &args)))
        .collect();
    let fourth = async {
        server.until("tools/call", 3).await;
        client.call_tool("one", &args).await
    };
    tokio::select! {
        fourth = soon(fourth) => assert!(matches!(fourth, Err(ClientError::Busy { pending: 3 })), "{fourth:?}"),
        _ = futures::future::select_all(waiting) => panic!("nobody answers"),
    }
}

#[tokio::test]
async fn a_ping_of_the_server_is_answered_and_anything_else_it_asks_is_refused() {
    let (_client, mut server) = legacy_client(|_, _| {}).await;
    let ask =
        |id, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}});
    server.out().send(&ask("p", "ping"));
    assert_eq!(server.answer(&json!("p")).await["result"], json!({}));
    server.out().send(&ask("r", "sampling/createMessage"));
    assert_eq!(server.answer(&json!("r")).await["error"]["code"], -32601);
}

#[tokio::test]
async fn done_closes_once_the_transport_has_gone_away_and_waiting_calls_fail() {
    let (client, server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            out.close();
        }
    })
    .await;
    assert!(!client.is_done());
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Gone { .. }), "{error}");
    soon(client.done()).await;
    assert!(client.is_done());
    let before = server.methods().len();
    let error = call(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Gone { .. }), "{error}");
    assert_eq!(server.methods().len(), before);
}

#[tokio::test]
async fn done_closes_when_close_is_called_deliberately() {
    let (client, _server) = legacy_client(|_, _| {}).await;
    let (closed, ()) = tokio::join!(client.done(), client.close());
    assert_eq!(closed, ());
    soon(client.close()).await;
}

/// An answer and the end of the connection in one moment: the answer counts, however they interleave.
#[tokio::test]
async fn an_answer_that_came_before_the_end_is_an_answer() {
    for round in 0..200 {
        let (client, _server) = legacy_client(move |message, out| {
            if message["method"] == "tools/call" {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                                    "result": {"content": [{"type": "text", "text": "last words"}]}});
                if round % 2 == 0 {
                    out.raw(format!("{answer}\n"));
                } else {
                    // Cut anywhere, and the rest in a piece of its own.
                    let line = format!("{answer}\n");
                    let (head, tail) = line.split_at(round % line.len());
                    out.raw(format!("\n{head}"));
                    out.raw(tail);
                }
                out.close();
            }
        })
        .await;
        let args = no_args();
        let (answer, ()) =
            soon(async { tokio::join!(client.call_tool("one", &args), client.done()) }).await;
        assert_eq!(answer.unwrap(), "last words", "{round}");
    }
}

#[tokio::test]
async fn a_dropped_client_ends_its_connection() {
    let (client, mut server) = legacy_client(|_, _| {}).await;
    let options = Options::default();
    drop((client, options));
    // The server's own reading ends, which closes its side.
    server.until("notifications/initialized", 1).await;
    let closed = async {
        while server.still_open() {
            tokio::task::yield_now().await;
        }
    };
    soon(closed).await;
}
