//! What comes over a stream that is no message, or comes large or slowly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ramen_client::{Client, ClientError, EraChoice, Json};
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};

use crate::support::{Log, connect_with, legacy, legacy_client, limits, serve, soon, tool};

#[tokio::test]
async fn net03_lines_that_are_no_messages_are_skipped_and_warnings_of_them_are_bounded() {
    let log = Log::default();
    let _guard = log.start();
    let (client, _server) = legacy_client(|message, out| {
        if message["method"] == "tools/call" {
            out.raw(b"\xff\xfe\n".to_vec());
            for n in 0..500 {
                out.raw(format!("listening on port {n}\n"));
                out.raw("{\"half\": \n");
                out.raw("[1]\n\n");
            }
            out.result(
                message,
                &json!({"content": [{"type": "text", "text": "still here"}]}),
            );
        }
    })
    .await;
    let answer = soon(client.call_tool("one", &Json::from(&json!({})))).await;
    assert_eq!(answer.unwrap(), "still here");
    assert_eq!(log.text().matches("skipped what a server sent").count(), 10);
}

/// One 5 MiB answer, and one that is too large: that call fails, the next one works.
#[tokio::test]
async fn net14_a_large_answer_arrives_whole_and_a_too_large_one_fails_its_own_call_only() {
    let tools = json!([tool("one")]);
    let (client, _server) = connect_with(
        move |message, out| {
            if !legacy(message, out, &tools) && message["method"] == "tools/call" {
                let size = message["params"]["arguments"]["size"].as_u64().unwrap();
                let text = "x".repeat(usize::try_from(size).unwrap());
                out.result(
                    message,
                    &json!({"content": [{"type": "text", "text": text}]}),
                );
            }
        },
        EraChoice::Legacy,
        limits(|limits| limits.message = 6 * 1024 * 1024),
    )
    .await
    .unwrap();
    let sized = |size: usize| Json::from(&json!({ "size": size }));
    let text = soon(client.call_tool("one", &sized(5 << 20)))
        .await
        .unwrap();
    assert_eq!(text.len(), 5 << 20);
    let error = soon(client.call_tool("one", &sized(7 << 20)))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
    assert_eq!(soon(client.call_tool("one", &sized(1))).await.unwrap(), "x");
    let error = soon(client.call_tool("one", &Json::from(&json!({"size": "x".repeat(7 << 20)}))))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
}

/// Hands over one byte each time.
struct Drops(tokio::io::DuplexStream);

impl AsyncRead for Drops {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut one = [0];
        let mut drop = ReadBuf::new(&mut one);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut drop))?;
        into.put_slice(drop.filled());
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn net14_an_answer_that_comes_byte_by_byte_arrives_whole() {
    let tools = json!([tool("one")]);
    let (reads, writes, _server) = serve(move |message, out| {
        if !legacy(message, out, &tools) && message["method"] == "tools/call" {
            let size = message["params"]["arguments"]["size"].as_u64().unwrap();
            let text = "x".repeat(usize::try_from(size).unwrap());
            let content = json!([{"type": "text", "text": text}]);
            out.result(message, &json!({"content": content}));
        }
    });
    let options = limits(|limits| limits.message = 6 << 20);
    let reads = Drops(reads);
    let client = Client::over_streams("scripted", reads, writes, EraChoice::Legacy, &options)
        .await
        .unwrap();
    let sized = |size: usize| Json::from(&json!({ "size": size }));
    let whole = soon(client.call_tool("one", &sized(1 << 20))).await;
    assert_eq!(whole.unwrap().len(), 1 << 20);
    assert_eq!(soon(client.call_tool("one", &sized(1))).await.unwrap(), "x");
}
