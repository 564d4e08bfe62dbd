//! `subscriptions/listen` on the group endpoint.

use std::sync::atomic::Ordering;

use http::StatusCode;
use ramen_gateway::callers::Limits;
use serde_json::{Value, json};

use crate::support::{Events, KEY, Running, eventually, spec};
use crate::worker::Worker;

async fn listen(gateway: &Running) -> Events {
    let (events, first) = gateway.listen().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    assert_eq!(id(&first), 1);
    events
}

fn id(message: &Value) -> &Value {
    let params = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    if params.is_null() {
        &message["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    } else {
        params
    }
}

#[tokio::test]
async fn list_changed_reaches_open_streams_when_a_revision_goes_live() {
    let workers = [Worker::start().await, Worker::start().await];
    let gateway = Running::start(&[workers[0].address, workers[1].address]).await;
    let mut streams = [listen(&gateway).await, listen(&gateway).await];
    eventually("each worker is heard, once", || {
        workers
            .iter()
            .all(|worker| worker.state.listeners.load(Ordering::SeqCst) == 1)
    })
    .await;
    // Whichever worker goes live last: all hear of it.
    for worker in &workers {
        worker.revision.send_modify(|revision| *revision += 1);
        for events in &mut streams {
            let change = events.next().await.unwrap();
            assert_eq!(
                change["method"], "notifications/tools/list_changed",
                "only what was asked for"
            );
            assert_eq!(id(&change), 1);
        }
    }
    drop(streams);
    eventually("nobody listens, so no worker is asked", || {
        workers
            .iter()
            .all(|worker| worker.state.listeners.load(Ordering::SeqCst) == 0)
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_joins_is_news() {
    let first = Worker::start().await;
    let gateway = Running::start(&[first.address]).await;
    let mut events = listen(&gateway).await;
    eventually("the worker is heard", || {
        first.state.listeners.load(Ordering::SeqCst) == 1
    })
    .await;
    let second = Worker::start().await;
    gateway
        .groups
        .set(&spec("demo", KEY, &[first.address, second.address]));
    assert_eq!(
        events.next().await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn a_stream_ends_with_a_result_when_the_gateway_stops() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut events = listen(&gateway).await;
    gateway.stop.send_replace(true);
    let last = events.next().await.unwrap();
    assert_eq!(
        (&last["id"], &last["result"]["resultType"]),
        (&json!(1), &json!("complete"))
    );
    assert_eq!(id(&last), 1);
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_key_revoked_in_mid_stream_hears_nothing_any_more() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut events = listen(&gateway).await;
    eventually("the worker is heard", || {
        worker.state.listeners.load(Ordering::SeqCst) == 1
    })
    .await;
    gateway
        .groups
        .set(&spec("demo", "rmk_new", &[worker.address]));
    worker.revision.send_modify(|revision| *revision += 1);
    assert!(
        events.next().await.unwrap()["result"].is_object(),
        "the end, not the change"
    );
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn one_caller_has_so_many_streams_and_no_more() {
    let worker = Worker::start().await;
    let limits = Limits {
        streams: 1,
        ..Limits::default()
    };
    let gateway = Running::with(&[worker.address], limits).await;
    let first = listen(&gateway).await;
    let params = json!({"notifications": {"toolsListChanged": true}});
    let second = gateway
        .send(gateway.modern("subscriptions/listen", params.clone()))
        .await;
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    let freed = async || {
        gateway
            .open(gateway.modern("subscriptions/listen", params.clone()))
            .await
            .status()
    };
    while freed().await != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_filter_that_is_none_is_refused() {
    let gateway = Running::start(&[]).await;
    let got = gateway
        .send(gateway.modern("subscriptions/listen", json!({"notifications": []})))
        .await;
    assert_eq!(
        (got.status, &got.json()["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!(-32602))
    );
    let mut deaf = gateway.modern("subscriptions/listen", json!({"notifications": {}}));
    deaf.headers_mut()
        .insert("accept", "application/json".parse().unwrap());
    assert_eq!(gateway.send(deaf).await.status, StatusCode::NOT_ACCEPTABLE);
}
