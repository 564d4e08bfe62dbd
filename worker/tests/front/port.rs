//! What one connection may do, by clients that speak HTTP/2 as they like. After each the good client beside goes on.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpStream;

use crate::harness::{KEY, Running, call, eventually};
use crate::http2::{ACK, End, OK, PING, RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, frame};
use crate::wire::{head, message, pass, ping, request, settled, stop_time};
use crate::{group, setup};

const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
/// More than any buffer between the two holds.
const MUCH: usize = 64 << 20;

/// Waits until so many calls are in flight.
async fn in_flight(running: &Running, count: u64) {
    eventually(&format!("{count} calls in flight"), async || {
        (running.metric("ramen_in_flight ").await == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stream_too_many_is_refused_and_one_that_ends_makes_room() {
    let setup = setup().with(|args| args.max_inflight = "200".into());
    let running = setup.serve(&group(&["until_cancelled"])).await;
    let mut raw = Raw::open(running.grpc).await;
    let waits = call(1, "until_cancelled", json!({}));
    for n in 0..129 {
        assert!(raw.send(&request(2 * n + 1, &waits)).await);
    }
    assert_eq!(raw.end_of(2 * 128 + 1).await, End::Reset(REFUSED_STREAM));
    in_flight(&running, 128).await;
    let beside = running.client().await;
    assert!(beside.send(&ping()).await.is_ok(), "another connection");
    let gone = frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert!(raw.send(&gone).await);
    assert!(raw.send(&request(2 * 129 + 1, &ping())).await);
    assert_eq!(raw.end_of(2 * 129 + 1).await, OK);
}

/// The answer to a call with a header of so many bytes.
async fn with_header(running: &Running, bytes: usize) -> Response<Incoming> {
    let stream = TcpStream::connect(running.grpc).await.unwrap();
    let connected = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/ramen.v1.Mcp/Call", running.grpc))
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-a", "a".repeat(bytes))
        .body(Full::new(Bytes::from(message(&ping()))));
    sender.send_request(request.unwrap()).await.unwrap()
}

#[tokio::test]
async fn headers_over_16_kib_are_refused() {
    let running = setup().serve(&group(&["echo"])).await;
    let fits = with_header(&running, 15 * 1024).await;
    assert_eq!(fits.status(), StatusCode::OK);
    let refused = fits.headers().get("grpc-status");
    assert_eq!(refused, None, "a status in the head refuses");
    let large = with_header(&running, 17 * 1024).await;
    assert_eq!(
        large.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "{large:?}"
    );
}

#[tokio::test]
async fn a_client_that_answers_no_ping_is_gone_with_its_calls() {
    let setup = setup().with(|args| args.call_timeout_secs = "86400".into());
    let running = setup.serve(&group(&["until_cancelled"])).await;
    let mut lively = Raw::open(running.grpc).await;
    let mut silent = Raw::open(running.grpc).await;
    for raw in [&mut lively, &mut silent] {
        let waits = call(1, "until_cancelled", json!({}));
        assert!(raw.send(&request(1, &waits)).await);
    }
    in_flight(&running, 2).await;
    let _stopped = stop_time();
    assert!(pass(15, &mut lively).await);
    assert_eq!(running.metric("ramen_in_flight ").await, 2, "not asked yet");
    assert!(pass(20, &mut lively).await, "it answers");
    settled("the call of the silent client is given up", async || {
        (running.metric("ramen_in_flight ").await == 1).then_some(())
    })
    .await;
    let mut asked = false;
    while let Some(got) = silent.next().await {
        asked |= got.kind == PING && got.flags & ACK == 0;
    }
    assert!(asked, "it was asked before its connection ended");
}

#[tokio::test]
async fn a_client_that_floods_and_reads_nothing_loses_its_connection() {
    let running = setup().serve(&group(&["echo"])).await;
    for flood in [
        frame(PING, 0, 0, &[7; 8]),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
    ] {
        let mut raw = Raw::open(running.grpc).await;
        // It is not cut off for asking nothing.
        assert!(raw.send(&request(1, &ping())).await);
        assert_eq!(raw.end_of(1).await, OK);
        tokio::time::pause();
        let many = flood.repeat(1000);
        let mut sent = 0;
        while raw.send(&many).await {
            sent += many.len();
            assert!(sent < MUCH, "nobody ends it");
        }
        tokio::time::resume();
    }
    let mut beside = running.client().await.session().await;
    beside.send(&ping()).await;
    assert_eq!(beside.next().await["id"], 1);
}

#[tokio::test]
async fn rapid_resets_end_the_connection_and_cancel_every_call() {
    let running = setup().serve(&group(&["until_cancelled", "echo"])).await;
    let mut raw = Raw::open(running.grpc).await;
    let waits = call(1, "until_cancelled", json!({}));
    let mut all = Vec::new();
    for n in 0..5000 {
        let stream = 2 * n + 1;
        all.extend(request(stream, &waits));
        all.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    raw.send(&all).await;
    assert_eq!(raw.goodbye().await, Some(ENHANCE_YOUR_CALM));
    in_flight(&running, 0).await;
    let begun = running.metric("ramen_calls_total{outcome=\"cancelled\"}");
    let begun = begun.await;
    assert!(begun < 1000, "{begun} calls began");
    let beside = running.client().await;
    assert_eq!(beside.text("echo", json!({})).await, "{}");
}

/// Resets that the client provokes cost the worker as much as those that it sends.
#[tokio::test]
async fn a_client_that_makes_the_worker_reset_its_streams_loses_its_connection() {
    let running = setup().serve(&group(&["echo"])).await;
    let provoked = |count: u32| {
        // A window that is wider than any may be is a fault of its stream.
        let wide = |stream| frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
        let streams = (0..count).map(|n| 2 * n + 1);
        let each = streams.map(|stream| [head(stream, "Call"), wide(stream)].concat());
        each.collect::<Vec<_>>().concat()
    };
    let mut few = Raw::open(running.grpc).await;
    few.send(&provoked(50)).await;
    few.send(&request(101, &ping())).await;
    assert_eq!(few.end_of(101).await, OK);
    let mut many = Raw::open(running.grpc).await;
    many.send(&provoked(200)).await;
    assert_eq!(many.goodbye().await, Some(ENHANCE_YOUR_CALM));
    let beside = running.client().await;
    assert_eq!(beside.text("echo", json!({})).await, "{}");
}
