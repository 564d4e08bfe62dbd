//! JSON by default, events when something streams, and clients that go away.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Events, KEY, PATH, Running, call, eventually, spec};
use crate::worker::Worker;

fn with_progress(tool: &str) -> Value {
    let mut call = call(tool);
    call["params"]["_meta"] = json!({"progressToken": "p"});
    call
}

#[tokio::test]
async fn progress_that_was_asked_for_comes_as_events_and_the_answer_last() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let got = gateway.send(gateway.post(&with_progress("echo"))).await;
    assert_eq!(
        (got.header("x-accel-buffering"), got.header("cache-control")),
        ("no", "no-store")
    );
    let events = got.events();
    let progress: Vec<_> = events[..2]
        .iter()
        .map(|event| event["params"]["progress"].clone())
        .collect();
    assert_eq!(progress, [json!(50), json!(100)]);
    assert_eq!((events.len(), &events[2]["id"]), (3, &json!(1)));
}

#[tokio::test]
async fn it_stays_json_when_nothing_streams() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let got = gateway.send(gateway.post(&with_progress("quiet"))).await;
    assert_eq!(
        (got.header("content-type"), got.text().as_str()),
        ("application/json", "quiet")
    );
    let got = gateway.call("echo").await;
    assert_eq!(got.header("content-type"), "application/json");
}

#[tokio::test]
async fn a_client_that_reads_no_events_gets_json_and_one_that_reads_nothing_else_gets_one_event() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut request = gateway.post(&with_progress("echo"));
    request
        .headers_mut()
        .insert("accept", "application/json".parse().unwrap());
    assert_eq!(
        gateway.send(request).await.header("content-type"),
        "application/json"
    );
    let mut request = gateway.post(&call("echo"));
    request
        .headers_mut()
        .insert("accept", "text/event-stream".parse().unwrap());
    assert_eq!(gateway.send(request).await.events().len(), 1);
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_call() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("hang").to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\naccept: application/json\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    eventually("the call began", || worker.began() == 1).await;
    drop(stream);
    eventually("the call was given up", || {
        worker.state.given_up.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn a_client_that_closes_the_stream_cancels_its_call() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut events = Events::of(gateway.open(gateway.post(&with_progress("hang"))).await);
    assert_eq!(
        events.next().await.unwrap()["method"],
        "notifications/progress"
    );
    eventually("the call began", || worker.began() == 1).await;
    drop(events);
    eventually("the call was given up", || {
        worker.state.given_up.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_keeps_no_deadline_holds_no_streamed_call_and_no_place() {
    let worker = Worker::start().await;
    let gateway = Running::hurried(&[worker.address], Duration::from_millis(50)).await;
    let ended = |answer: &Value| {
        let grpc = &answer["error"]["data"]["grpc"];
        assert_eq!(
            (&answer["id"], grpc),
            (&json!(1), &json!("DEADLINE_EXCEEDED")),
            "{answer}"
        );
    };
    // After something came ...
    let events = gateway.send(gateway.post(&with_progress("hang"))).await;
    ended(events.events().last().unwrap());
    // ... before anything did ...
    let got = gateway.send(gateway.post(&with_progress("mute"))).await;
    assert_eq!(got.status, StatusCode::OK);
    ended(&got.json());
    eventually("both were given up", || {
        worker.state.given_up.load(Ordering::SeqCst) == 2
    })
    .await;
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
    // ... and where not even a session begins.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let deaf_at = deaf.local_addr().unwrap();
    gateway.groups.set(&spec("demo", KEY, &[deaf_at]));
    let got = gateway.send(gateway.post(&with_progress("echo"))).await;
    ended(&got.json());
}

#[tokio::test]
async fn a_worker_that_fails_in_mid_stream_ends_it_with_an_error_of_the_request() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let events = gateway
        .send(gateway.post(&with_progress("full")))
        .await
        .events();
    let last = events.last().unwrap();
    assert_eq!(
        (&last["id"], &last["error"]["data"]["grpc"]),
        (&json!(1), &json!("RESOURCE_EXHAUSTED"))
    );
}

#[tokio::test]
async fn http_2_is_served_on_the_same_port() {
    use http_body_util::BodyExt as _;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut request = gateway.post(&call("echo"));
    *request.uri_mut() = format!("http://{}{PATH}", gateway.address).parse().unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("isError"));
}
