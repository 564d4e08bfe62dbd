//! Which worker gets a call, and what happens when one is not there.

use std::sync::atomic::Ordering;

use http::StatusCode;
use ramen_source::testing::FreePort;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{KEY, Running, call, eventually, spec};
use crate::worker::Worker;

#[tokio::test]
async fn a_worker_that_cannot_be_reached_costs_no_call() {
    let worker = Worker::start().await;
    let [one, two] = [(), ()].map(|()| FreePort::nobody().unwrap());
    let gateway = Running::start(&[one, worker.address, two]).await;
    for _ in 0..20 {
        assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
    }
    assert_eq!(worker.began(), 20);
}

#[tokio::test]
async fn without_a_worker_it_is_503_and_says_when_to_come_again() {
    let gateway = Running::start(&[FreePort::nobody().unwrap()]).await;
    let got = gateway.call("echo").await;
    assert_eq!(
        (got.status, got.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, "1")
    );
    let error = &got.json()["error"];
    assert_eq!(
        (error["code"].as_i64(), error["data"]["grpc"].as_str()),
        (Some(-32603), Some("UNAVAILABLE"))
    );
}

#[tokio::test]
async fn a_worker_that_appears_within_the_grace_gets_the_call() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[]).await;
    let waiting = gateway.call("echo");
    let appears = async {
        tokio::task::yield_now().await;
        gateway.groups.set(&spec("demo", KEY, &[worker.address]));
    };
    let (got, ()) = tokio::join!(waiting, appears);
    assert_eq!(got.status, StatusCode::OK);
}

#[tokio::test]
async fn the_least_loaded_worker_gets_the_next_call() {
    let workers = [Worker::start().await, Worker::start().await];
    let gateway = Running::start(&[workers[0].address, workers[1].address]).await;
    let hanging = tokio::spawn({
        let (gateway, request) = (gateway.address, gateway.post(&call("hang")));
        async move {
            let stream = tokio::net::TcpStream::connect(gateway).await.unwrap();
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            let _ = sender.send_request(request).await;
        }
    });
    eventually("one hangs", || {
        workers.iter().any(|worker| worker.began() == 1)
    })
    .await;
    let busy = usize::from(workers[1].began() == 1);
    for _ in 0..10 {
        gateway.call("echo").await;
    }
    assert_eq!((workers[busy].began(), workers[1 - busy].began()), (1, 10));
    hanging.abort();
}

#[tokio::test]
async fn a_call_that_may_have_reached_a_worker_is_never_sent_again() {
    // Speaks enough HTTP/2 to take a request, then breaks the connection.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, seen) = tokio::sync::watch::channel(0_u32);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let taken = taken.clone();
            let service = hyper::service::service_fn(
                move |_request: http::Request<hyper::body::Incoming>| {
                    taken.send_modify(|taken| *taken += 1);
                    std::future::ready(
                        Err::<http::Response<http_body_util::Full<bytes::Bytes>>, _>(
                            std::io::Error::other("broken"),
                        ),
                    )
                },
            );
            let io = hyper_util::rt::TokioIo::new(stream);
            let builder =
                hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            tokio::spawn(builder.serve_connection(io, service));
        }
    });
    let spare = Worker::start().await;
    let gateway = Running::start(&[address]).await;
    let got = gateway.call("echo").await;
    assert_eq!(*seen.borrow(), 1);
    assert!(got.json()["error"].is_object(), "{:?}", got.json());
    assert_eq!(spare.state.began.load(Ordering::SeqCst), 0);
}

/// A call, and one that asks for progress.
fn both_ways() -> [Value; 2] {
    let mut streamed = call("echo");
    streamed["params"]["_meta"] = json!({"progressToken": "p"});
    [call("echo"), streamed]
}

#[tokio::test]
async fn a_worker_that_refuses_a_call_before_it_begins_costs_no_call() {
    let workers = [
        Worker::start().await,
        Worker::start().await,
        Worker::start().await,
    ];
    for empty in &workers[..2] {
        empty.state.empty.store(true, Ordering::SeqCst);
    }
    let addresses: Vec<_> = workers.iter().map(|worker| worker.address).collect();
    let gateway = Running::start(&addresses).await;
    for way in both_ways() {
        let before = workers[2].began();
        for _ in 0..10 {
            let got = gateway.send(gateway.post(&way)).await;
            let text = String::from_utf8_lossy(&got.body).into_owned();
            assert!(
                got.status == StatusCode::OK && text.contains("isError"),
                "{text}"
            );
        }
        assert_eq!(workers[2].began(), before + 10);
    }
}

#[tokio::test]
async fn workers_that_all_refuse_are_503_with_their_own_words() {
    let workers = [Worker::start().await, Worker::start().await];
    for worker in &workers {
        worker.state.empty.store(true, Ordering::SeqCst);
    }
    let gateway = Running::start(&[workers[0].address, workers[1].address]).await;
    for way in both_ways() {
        let got = gateway.send(gateway.post(&way)).await;
        assert_eq!(
            (got.status, got.header("retry-after")),
            (StatusCode::SERVICE_UNAVAILABLE, "1")
        );
        let error = &got.json()["error"];
        assert_eq!(error["message"], "no revision of the group is loaded yet");
        assert_eq!(error["data"]["grpc"], "UNAVAILABLE");
    }
}

#[tokio::test]
async fn a_call_whose_process_a_worker_lost_is_not_sent_again() {
    let workers = [Worker::start().await, Worker::start().await];
    let gateway = Running::start(&[workers[0].address, workers[1].address]).await;
    let began = || workers[0].began() + workers[1].began();
    let got = gateway.call("crashes").await;
    assert_eq!(got.status, StatusCode::OK);
    assert_eq!(got.json()["error"]["data"]["grpc"], "UNAVAILABLE");
    assert_eq!(began(), 1);
    let mut streamed = call("crashes");
    streamed["params"]["_meta"] = json!({"progressToken": "p"});
    let events = gateway.send(gateway.post(&streamed)).await.events();
    let last = events.last().unwrap();
    assert_eq!(last["error"]["data"]["grpc"], "UNAVAILABLE", "{last}");
    assert_eq!(began(), 2);
}

#[tokio::test]
async fn a_connection_that_died_is_made_anew() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for _ in 0..20 {
        assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
        worker.cut();
    }
}

#[tokio::test]
async fn a_zone_that_is_asked_for_gets_the_call_and_no_other() {
    let workers = [Worker::start().await, Worker::start().await];
    let gateway = Running::start(&[]).await;
    let mut group = spec("demo", KEY, &[workers[0].address, workers[1].address]);
    for (at, zone) in group.workers.iter_mut().zip(["east", "west"]) {
        at.zone = Some(zone.to_owned());
    }
    gateway.groups.set(&group);
    let ask = async |zones: &[&str]| {
        let mut request = gateway.post(&call("echo"));
        for zone in zones {
            let value = http::HeaderValue::from_str(zone).unwrap();
            request.headers_mut().append("ramen-zone", value);
        }
        gateway.send(request).await
    };
    for _ in 0..4 {
        assert_eq!(ask(&["west"]).await.status, StatusCode::OK);
    }
    assert_eq!((workers[0].began(), workers[1].began()), (0, 4));
    assert_eq!(ask(&["east"]).await.status, StatusCode::OK);
    assert_eq!((workers[0].began(), workers[1].began()), (1, 4));
    // Without one, all take turns.
    for _ in 0..4 {
        assert_eq!(ask(&[]).await.status, StatusCode::OK);
    }
    assert_eq!((workers[0].began(), workers[1].began()), (3, 6));
    let nowhere = ask(&["north"]).await;
    assert_eq!(nowhere.status, StatusCode::SERVICE_UNAVAILABLE);
    let error = &nowhere.json()["error"];
    assert_eq!(
        error["data"]["grpc"].as_str(),
        Some("UNAVAILABLE"),
        "{error}"
    );
    for twice in [&["east", "west"][..], &[""]] {
        let refused = ask(twice).await.json();
        assert_eq!(refused["error"]["code"].as_i64(), Some(-32600), "{refused}");
    }
    assert_eq!((workers[0].began(), workers[1].began()), (3, 6));
}
