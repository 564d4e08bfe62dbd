//! Clients that do not read what they asked for.

use serde_json::json;
use tonic::Code;

use crate::harness::{Running, call};
use crate::http2::{DATA, OK, Raw, frame};
use crate::setup;
use crate::wire::{big, head, message, pass, ping, request, settled, stop_time};

/// Calls of one session: more answers than its queue and the windows of HTTP/2 have room for.
const CALLS: u32 = 40;

/// A worker with room for all that waits.
async fn serve() -> Running {
    let setup = setup().with(|args| {
        args.max_inflight = "100".into();
        args.call_timeout_secs = "86400".into();
    });
    setup.serve(&big()).await
}

async fn ran(running: &Running, count: u64) {
    settled("the calls have run", async || {
        let done = running.metric("ramen_calls_total{outcome=\"ok\"}").await;
        (done == count).then_some(())
    })
    .await;
}

async fn in_flight(running: &Running) -> u64 {
    running.metric("ramen_in_flight ").await
}

#[tokio::test]
async fn an_answer_keeps_its_place_until_its_connection_is_ended() {
    let running = serve().await;
    let mut deaf = Raw::open(running.grpc).await;
    let _stopped = stop_time();
    let large = call(1, "big", json!({"bytes": 1 << 20}));
    assert!(deaf.send(&request(1, &large)).await);
    // The window of HTTP/2, which is not opened again.
    let mut read = 0;
    while read < 65_535 {
        let got = deaf.next().await.expect("an open connection");
        if got.kind == DATA {
            read += got.payload.len();
        }
    }
    assert_eq!(in_flight(&running).await, 1);
    assert!(pass(110, &mut deaf).await, "it has two minutes");
    assert_eq!(in_flight(&running).await, 1);
    assert!(!pass(20, &mut deaf).await, "it had its time");
    settled("its place is free", async || {
        (in_flight(&running).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_ends_and_its_client_is_told_that_answers_are_missing() {
    let running = serve().await;
    let mut session = running.client().await.session().await;
    let mut beside = Raw::open(running.grpc).await;
    assert!(beside.send(&request(1, &ping())).await);
    assert_eq!(beside.end_of(1).await, OK);
    let _stopped = stop_time();
    for id in 0..CALLS {
        session
            .send(&call(id, "big", json!({"bytes": 1 << 20})))
            .await;
    }
    ran(&running, CALLS.into()).await;
    settled("the answers that wait have places", async || {
        (in_flight(&running).await > 0).then_some(())
    })
    .await;
    assert!(pass(25, &mut beside).await);
    assert_eq!(running.metric("ramen_sessions ").await, 1);
    assert!(pass(10, &mut beside).await);
    settled("the session has ended", async || {
        let open = running.metric("ramen_sessions ").await;
        (open == 0 && in_flight(&running).await == 0).then_some(())
    })
    .await;
    let mut answers = 0;
    let status = loop {
        match session.try_next().await {
            Ok(Some(_)) => answers += 1,
            Ok(None) => panic!("nothing tells of the answers that are missing"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(answers < CALLS, "{answers} answers");
}

#[tokio::test]
async fn what_a_session_left_behind_is_read_in_time_or_its_connection_ends() {
    let running = serve().await;
    let mut deaf = Raw::open(running.grpc).await;
    let _stopped = stop_time();
    let mut all = head(1, "Session");
    for id in 0..CALLS {
        let large = call(id, "big", json!({"bytes": 100_000}));
        all.extend(frame(DATA, 0, 1, &message(&large)));
    }
    assert!(deaf.send(&all).await);
    ran(&running, CALLS.into()).await;
    assert!(pass(60, &mut deaf).await);
    assert_eq!(running.metric("ramen_sessions ").await, 0);
    assert!(!pass(120, &mut deaf).await, "it had its time");
}
