//! Clients that take their time. It jumps to the next timer where it is waited for, so nothing here waits long.

use std::time::Duration;

use http::StatusCode;
use ramen_gateway::callers::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Running, call, eventually, spec};
use crate::wire::{as_time_flies, good, post, rest, statuses};
use crate::worker::Worker;

async fn connect(gateway: &Running) -> TcpStream {
    TcpStream::connect(gateway.address).await.unwrap()
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let request = good("echo");
    let mut stream = connect(&gateway).await;
    // A byte now and then keeps nobody: the whole head has its time.
    let drip = async {
        for byte in request.bytes() {
            if stream.write_all(&[byte]).await.is_err() {
                return stream;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stream
    };
    let answer = as_time_flies(async { rest(drip.await).await }).await;
    assert!(
        matches!(statuses(&answer).as_slice(), [] | [408]),
        "{answer}"
    );
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn the_head_of_a_later_request_has_its_time_too() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut stream = connect(&gateway).await;
    stream.write_all(good("echo").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
        .write_all(b"POST /default/demo/mcp HTTP/1.1\r\nhost: loc")
        .await
        .unwrap();
    // It is over when the connection has ended.
    as_time_flies(rest(stream)).await;
    assert_eq!(worker.began(), 1);
}

#[tokio::test]
async fn a_body_that_never_ends_is_408_and_holds_up_only_its_own_caller() {
    let worker = Worker::start().await;
    let limits = Limits {
        in_flight: 2,
        ..Limits::default()
    };
    let gateway = Running::with(&[worker.address], limits).await;
    gateway
        .groups
        .set(&spec("other", "rmk_other", &[worker.address]));
    let mut slow = Vec::new();
    for lines in ["content-length: 1000\r\n", "transfer-encoding: chunked\r\n"] {
        let mut stream = connect(&gateway).await;
        stream
            .write_all(post(lines, "4\r\n{\"js").as_bytes())
            .await
            .unwrap();
        slow.push(stream);
    }
    // Both places of this caller are taken, and another caller has his own.
    let asked = std::cell::Cell::new(0);
    loop {
        let got = gateway.call("echo").await;
        asked.set(asked.get() + 1);
        if got.status == StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(got.header("retry-after"), "1");
            break;
        }
    }
    let mut request = gateway.post(&call("echo"));
    *request.uri_mut() = "/default/other/mcp".parse().unwrap();
    let theirs = "Bearer rmk_other".parse().unwrap();
    request.headers_mut().insert("authorization", theirs);
    assert_eq!(gateway.send(request).await.status, StatusCode::OK);
    for stream in slow {
        let answer = as_time_flies(rest(stream)).await;
        assert_eq!(statuses(&answer), [408], "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(
        gateway.call("echo").await.status,
        StatusCode::OK,
        "the places are free again"
    );
}

#[tokio::test]
async fn an_answer_that_nobody_reads_keeps_its_place_until_it_is_given_up() {
    let worker = Worker::start().await;
    let limits = Limits {
        in_flight: 1,
        ..Limits::default()
    };
    let gateway = Running::with(&[worker.address], limits).await;
    let mut deaf = connect(&gateway).await;
    deaf.write_all(good("large").as_bytes()).await.unwrap();
    deaf.write_all(good("large").as_bytes()).await.unwrap();
    deaf.write_all(good("large").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    deaf.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // Nothing more is read; the connection ends all the same, and its place is free.
    loop {
        let got = gateway.call("echo").await;
        if got.status == StatusCode::OK {
            break;
        }
        assert_eq!(got.status, StatusCode::TOO_MANY_REQUESTS);
        as_time_flies(tokio::time::sleep(Duration::from_secs(1))).await;
    }
    let mut all = Vec::new();
    let _ = deaf.read_to_end(&mut all).await;
    let answers = statuses(&String::from_utf8_lossy(&all));
    assert!(answers.len() < 3, "it was cut off");
}

#[tokio::test]
async fn a_listener_that_reads_nothing_is_cut_off_and_the_others_hear_on() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let (mut heard, _) = gateway.listen().await;
    eventually("the worker is heard", || {
        worker
            .state
            .listeners
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    })
    .await;
    worker.revision.send_modify(|revision| *revision += 1);
    assert!(heard.next().await.is_some());
}
