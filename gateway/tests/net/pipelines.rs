//! Several requests at once on one connection, and clients that close one half of it.

use std::sync::atomic::Ordering;

use http::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Running, call, eventually};
use crate::wire::{good, post, rest, statuses, talk};
use crate::worker::Worker;

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let last = good("third").replacen("accept:", "connection: close\r\naccept:", 1);
    let all = [good("first"), good("second"), last].concat();
    let answer = talk(&gateway, &all).await;
    assert_eq!(statuses(&answer), [200, 200, 200], "{answer}");
    let at = |word: &str| answer.find(&format!("\"text\":\"{word}\"")).unwrap();
    assert!(at("first") < at("second") && at("second") < at("third"));
    assert_eq!(worker.began(), 3);
}

#[tokio::test]
async fn a_pipelined_request_begins_after_the_one_before_it_has_ended() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let last = good("second").replacen("accept:", "connection: close\r\naccept:", 1);
    let all = [good("wait"), last].concat();
    let talking = talk(&gateway, &all);
    let beside = async {
        eventually("the first runs", || worker.began() == 1).await;
        // Another connection is not held up, and the second request of the first is.
        assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
        assert_eq!(worker.began(), 2, "the first and the one beside");
        worker.state.go.notify_one();
    };
    let (answer, ()) = tokio::join!(talking, beside);
    assert_eq!(statuses(&answer), [200, 200], "{answer}");
}

#[tokio::test]
async fn nothing_that_follows_a_refusal_with_a_body_left_unread_is_run() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    // The body of the first is a request, too.
    let inner = good("echo");
    for (name, lines, wanted) in [
        ("too large", "content-length: 4194305\r\n".to_owned(), 413),
        (
            "compressed",
            format!(
                "content-encoding: gzip\r\ncontent-length: {}\r\n",
                inner.len()
            ),
            415,
        ),
        (
            "two credentials",
            format!(
                "authorization: Bearer x\r\ncontent-length: {}\r\n",
                inner.len()
            ),
            401,
        ),
    ] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let request = post(&lines, &inner);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = rest(stream).await;
        assert_eq!(statuses(&answer), [wanted], "{name}: {answer}");
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn a_client_that_closes_its_half_in_the_middle_of_a_body_runs_nothing() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    for lines in [
        format!("content-length: {}\r\n", body.len() + 1),
        "transfer-encoding: chunked\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let half = post(&lines, "4\r\n{\"js");
        stream.write_all(half.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = rest(stream).await;
        assert!(
            matches!(statuses(&answer).as_slice(), [] | [400]),
            "{answer}"
        );
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}

/// The end of what a client sends cannot be told from its end: who wants the answer keeps both halves.
#[tokio::test]
async fn a_client_that_closes_its_half_while_the_tool_runs_has_gone() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(good("hang").as_bytes()).await.unwrap();
    eventually("the call runs", || worker.began() == 1).await;
    stream.shutdown().await.unwrap();
    eventually("the call is cancelled", || {
        worker.state.given_up.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(rest(stream).await, "");
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
}
