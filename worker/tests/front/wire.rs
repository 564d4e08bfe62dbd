//! Requests as bytes, and a time that passes only when a test says so.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use prost::Message as _;
use ramen_proto::v1::JsonRpc;
use serde_json::{Value, json};

use crate::harness::{Group, KEY, LONG};
use crate::http2::{ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, Raw, block, frame};

/// A group whose tool `big` answers with as many bytes as it is told.
pub(crate) fn big() -> Group {
    Group::new().tool_with(
        "big",
        &json!({"bytes": {"type": "integer"}}),
        "def big(bytes): pass",
        &json!({"callable": "big"}),
    )
}

/// What needs no host.
pub(crate) fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
}

/// A message as gRPC frames it.
pub(crate) fn message(body: &Value) -> Vec<u8> {
    let body = body.to_string().into();
    let message = JsonRpc { body }.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// The head of a request to this method of `Mcp`.
pub(crate) fn head(stream: u32, method: &str) -> Vec<u8> {
    let (path, key) = (format!("/ramen.v1.Mcp/{method}"), format!("Bearer {KEY}"));
    let fields = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path.as_str()),
        ("authorization", key.as_str()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]);
    frame(HEADERS, END_HEADERS, stream, &fields)
}

/// A whole `Mcp/Call`.
pub(crate) fn request(stream: u32, body: &Value) -> Vec<u8> {
    let data = frame(DATA, END_STREAM, stream, &message(body));
    [head(stream, "Call"), data].concat()
}

/// Pings, and answers the pings of the worker until the answer has come; `false` when the connection ended. The worker
/// has looked at the connection by then.
async fn beat(client: &mut Raw) -> bool {
    const OURS: [u8; 8] = *b"the test";
    if !client.send(&frame(PING, 0, 0, &OURS)).await {
        return false;
    }
    while let Some(got) = client.next().await {
        match got.kind {
            PING if got.flags & ACK == 0 => {
                client.send(&frame(PING, ACK, 0, &got.payload)).await;
            }
            PING if got.payload == OURS => return true,
            _ => {}
        }
    }
    false
}

/// While this is there, time stands still.
pub(crate) struct Stopped {
    _hold: Sender<()>,
}

/// Stops the time of this process. The hosts have a time of their own: they answer as ever.
#[must_use]
pub(crate) fn stop_time() -> Stopped {
    tokio::time::pause();
    let (hold, ended) = channel();
    // Time would jump to the next timer whenever nothing can be done; not while a thread is at work.
    tokio::task::spawn_blocking(move || ended.recv());
    Stopped { _hold: hold }
}

/// Lets so many seconds pass one by one, in each of which this client pings and answers pings; `false` when its connection
/// ended.
pub(crate) async fn pass(seconds: u32, client: &mut Raw) -> bool {
    for _ in 0..seconds {
        tokio::time::advance(Duration::from_secs(1)).await;
        if !beat(client).await {
            return false;
        }
    }
    true
}

/// Waits for `check` to give something, while time stands still.
pub(crate) async fn settled<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(begin.elapsed() < LONG, "never came true: {what}");
        tokio::task::yield_now().await;
    }
}
