//! Servers that break HTTP: each fails its own call, and the next one works.

use std::time::Duration;

use ramen_client::{
    CallOptions, Client, ClientError, EraChoice, Json, Limits, Options, ServerConfig,
};
use serde_json::json;

use super::support::{self, Seen, answer, serve, then_hang_up, then_silence};
use super::{connect, legacy, text};
use crate::support::soon;

type Fault = fn(&Seen) -> Vec<u8>;

const FAULTS: &[(&str, Fault)] = &[
    ("a length that is too long", |seen| {
        let body = seen.result(&text("x")).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len() + 100
        );
        then_hang_up(head.into_bytes())
    }),
    ("a length that is too short", |seen| {
        let body = seen.result(&text("x")).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len() / 2
        );
        then_hang_up(head.into_bytes())
    }),
    ("an answer that breaks off in its events", |seen| {
        let event = format!("data: {}\n\n", seen.result(&text("x")));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        then_hang_up(
            format!("{head}{:x}\r\n{}", event.len(), &event[..event.len() / 2]).into_bytes(),
        )
    }),
    ("no HTTP at all", |_| {
        then_hang_up(b"220 smtp.example ready\r\n".to_vec())
    }),
    ("nothing", |_| Vec::new()),
    ("another's id", |seen| {
        let mut other = seen.clone();
        other.body["id"] = json!(4_000_000);
        answer(&other, &text("x"))
    }),
    ("the id as a string", |seen| {
        let mut other = seen.clone();
        other.body["id"] = json!(seen.body["id"].to_string());
        answer(&other, &text("x"))
    }),
    ("no JSON", |_| {
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\nhello"
            .to_vec()
    }),
    ("a page", |_| {
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>".to_vec()
    }),
    ("202 to a request", |_| {
        b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_vec()
    }),
    ("a batch", |seen| {
        support::status(200, &json!([seen.result(&text("x"))]))
    }),
    ("500 with a page", |_| {
        b"HTTP/1.1 500 X\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<p/>".to_vec()
    }),
    ("a head without end", |_| {
        let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
        for n in 0..4000 {
            head.extend_from_slice(format!("x-{n}: {}\r\n", "y".repeat(40)).as_bytes());
        }
        then_hang_up(head)
    }),
    ("an answer that is too large", |_| {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{{",
            1_u64 << 40
        );
        let mut bytes = head.into_bytes();
        bytes.extend(std::iter::repeat_n(b' ', 300 * 1024));
        then_silence(bytes)
    }),
    ("chunks without end", |_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..5 {
            bytes.extend_from_slice(b"10000\r\n");
            bytes.extend(std::iter::repeat_n(b' ', 0x10000));
            bytes.extend_from_slice(b"\r\n");
        }
        then_silence(bytes)
    }),
    ("a compressed bomb", |_| support::compressed()),
    ("an event that is too large", |_| {
        let mut bytes =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 300 * 1024));
        then_silence(bytes)
    }),
];

#[tokio::test]
async fn a_server_that_breaks_http_fails_that_call_and_the_next_one_works() {
    for (what, fault) in FAULTS {
        let http = serve(move |seen| {
            legacy(seen).unwrap_or_else(|| {
                if seen.body["params"]["arguments"]["well"] == true {
                    answer(seen, &text("well"))
                } else {
                    fault(seen)
                }
            })
        })
        .await;
        let options = Options {
            limits: Limits {
                message: 256 * 1024,
                ..Limits::default()
            },
            ..Options::default()
        };
        let config = ServerConfig::http(http.url().parse().unwrap()).with_era(EraChoice::Legacy);
        let client = soon(Client::connect("web", &config, &options))
            .await
            .unwrap();
        let error = soon(client.call_tool("one", &Json::from(&json!({})))).await;
        assert!(error.is_err(), "{what}: {error:?}");
        assert_eq!(
            http.seen("tools/call").len(),
            1,
            "{what}: a call is never sent again"
        );
        let well = soon(client.call_tool("one", &Json::from(&json!({"well": true})))).await;
        assert_eq!(well.expect(what), "well");
    }
}

#[tokio::test]
async fn a_compressed_answer_is_refused_and_not_unpacked() {
    let http = serve(|seen| {
        legacy(seen).unwrap_or_else(|| {
            let mut answer = support::compressed();
            if seen.body["params"]["arguments"]["well"] == false {
                answer.splice(.."HTTP/1.1 200".len(), *b"HTTP/1.1 500");
            }
            answer
        })
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    for well in [true, false] {
        let args = Json::from(&json!({ "well": well }));
        let error = soon(client.call_tool("one", &args)).await.unwrap_err();
        assert!(error.to_string().contains("compressed"), "{error}");
    }
}

#[tokio::test]
async fn an_error_status_with_a_json_rpc_error_is_that_error() {
    let http = serve(|seen| {
        legacy(seen).unwrap_or_else(|| {
            support::status(404, &json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32601, "message": "no such"}}))
        })
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    match soon(client.call_tool("one", &Json::from(&json!({})))).await {
        Err(ClientError::Rpc(error)) => assert_eq!(error.code, -32601),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_goes_silent_in_its_answer_is_given_up_in_time() {
    let http = serve(|seen| {
        legacy(seen).unwrap_or_else(|| {
            then_silence(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{"
                    .to_vec(),
            )
        })
    })
    .await;
    let client = connect(&http, EraChoice::Auto).await.unwrap();
    let options = CallOptions {
        timeout: Some(Duration::from_secs(2)),
        ..CallOptions::default()
    };
    let error = soon(client.call_tool_with("one", &Json::from(&json!({})), options))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    soon(http.until_hung_up()).await;
}
