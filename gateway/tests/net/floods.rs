//! HTTP/2 as an attacker speaks it.

use std::sync::atomic::Ordering;

use http::StatusCode;

use crate::http2::{
    BAD_REQUEST, CONTINUATION, DATA, END_HEADERS, END_STREAM, End, HEADERS, OK, PING, RST_STREAM,
    Raw, SETTINGS, WINDOW_UPDATE, block, field, frame, number,
};
use crate::support::{KEY, PATH, Running, call, eventually};
use crate::wire::as_time_flies;
use crate::worker::Worker;

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;
/// More than any buffer between the two holds.
const MUCH: usize = 64 << 20;

/// The headers of a good request, with more behind them.
fn good_block(more: &[(&str, &str)]) -> Vec<u8> {
    let key = format!("Bearer {KEY}");
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", PATH),
        ("authorization", key.as_str()),
        ("accept", "application/json"),
        ("content-type", "application/json"),
    ];
    fields.extend(more);
    block(&fields)
}

/// A good request, whole.
fn request(stream: u32, tool: &str) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &good_block(&[]));
    let body = call(tool).to_string();
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

#[tokio::test]
async fn a_plain_request_by_hand_is_answered() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut raw = Raw::open(gateway.address).await;
    raw.send(&request(1, "echo")).await;
    assert_eq!(raw.end_of(1).await, OK);
}

#[tokio::test]
async fn rapid_resets_end_the_connection_and_cancel_every_call() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut raw = Raw::open(gateway.address).await;
    let mut all = Vec::new();
    for n in 0..5000 {
        let stream = n * 2 + 1;
        all.extend(request(stream, "hang"));
        all.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    raw.send(&all).await;
    assert_eq!(raw.goodbye().await, Some(ENHANCE_YOUR_CALM));
    eventually("no call is left", || {
        worker.began() == worker.state.given_up.load(Ordering::SeqCst)
    })
    .await;
    assert!(worker.began() < 1000, "{} calls began", worker.began());
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn headers_that_go_on_for_ever_end_the_connection() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for piece in [vec![], field("x-a", &"a".repeat(8000))] {
        let mut raw = Raw::open(gateway.address).await;
        assert!(raw.send(&frame(HEADERS, 0, 1, &good_block(&[]))).await);
        let more = frame(CONTINUATION, 0, 1, &piece).repeat(1000);
        let mut sent = 0;
        while raw.send(&more).await {
            sent += more.len();
            assert!(sent < MUCH, "nobody ends it");
        }
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_small_block_that_unpacks_into_much_is_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut raw = Raw::open(gateway.address).await;
    // One header of 3 KiB goes into the table, and is named ten thousand times by one byte each (0xbe: index 62).
    let mut bomb = good_block(&[]);
    bomb.push(0x40);
    for text in ["x-a".to_owned(), "a".repeat(3000)] {
        number(&mut bomb, text.len());
        bomb.extend(text.bytes());
    }
    bomb.extend(vec![0xbe; 10_000]);
    raw.send(&frame(HEADERS, END_HEADERS, 1, &bomb)).await;
    let body = call("echo").to_string();
    raw.send(&frame(DATA, END_STREAM, 1, body.as_bytes())).await;
    let end = raw.end_of(1).await;
    assert!(!matches!(end, End::Answer(0x88)), "{end:?}");
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

/// Pings, settings, empty frames and updates cost the sender as much as us, and what they make us say
/// is never queued without bound: a client that does not read is not read from either.
#[tokio::test]
async fn floods_of_small_frames_by_a_client_that_does_not_read_end_its_connection() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for flood in [
        frame(PING, 0, 0, &[7; 8]),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
    ] {
        let mut raw = Raw::open(gateway.address).await;
        let many = flood.repeat(1000);
        let mut sent = 0;
        as_time_flies(async {
            while raw.send(&many).await {
                sent += many.len();
                assert!(sent < MUCH, "nobody ends it");
            }
        })
        .await;
    }
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn empty_frames_between_are_borne_or_end_the_connection_and_nothing_else() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut raw = Raw::open(gateway.address).await;
    raw.send(&frame(HEADERS, END_HEADERS, 1, &good_block(&[])))
        .await;
    for _ in 0..100 {
        let empty = frame(DATA, 0, 1, &[]).repeat(100);
        let update = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()).repeat(100);
        raw.send(&[empty, update].concat()).await;
    }
    let body = call("echo").to_string();
    raw.send(&frame(DATA, END_STREAM, 1, body.as_bytes())).await;
    let end = raw.end_of(1).await;
    assert!(matches!(end, End::Closed | End::Answer(0x88)), "{end:?}");
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_means_something_in_http_1_alone_is_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let wrong_length = (body.len() - 1).to_string();
    for (name, more) in [
        ("a transfer coding", vec![("transfer-encoding", "chunked")]),
        ("a connection header", vec![("connection", "close")]),
        ("an upgrade", vec![("upgrade", "h2c")]),
        ("upper case", vec![("X-A", "1")]),
        (
            "a length that lies",
            vec![("content-length", &wrong_length)],
        ),
        (
            "two lengths",
            vec![("content-length", "1"), ("content-length", "2")],
        ),
        ("a second path", vec![(":path", "/healthz")]),
        (
            "a line break in a value",
            vec![("x-a", "b\r\nhost: evil.example")],
        ),
        ("a line break in a name", vec![("x-a: b\r\nx", "1")]),
        ("an empty name", vec![("", "1")]),
        ("another host", vec![("host", "evil.example")]),
    ] {
        let mut raw = Raw::open(gateway.address).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &good_block(&more)))
            .await;
        raw.send(&frame(DATA, END_STREAM, 1, body.as_bytes())).await;
        let end = raw.end_of(1).await;
        let refused = [End::Reset(PROTOCOL_ERROR), End::Closed, BAD_REQUEST];
        assert!(refused.contains(&end), "{name}: {end:?}");
    }
    assert_eq!(worker.began(), 0);
}
