//! Forms of a request that a proxy in front may read differently.

use http::StatusCode;

use crate::support::{KEY, PATH, Running, call};
use crate::wire::{HEAD, chunked, good, post, statuses, talk};
use crate::worker::Worker;

const CLOSE: &str = "connection: close\r\n";

#[tokio::test]
async fn any_transfer_coding_but_chunked_alone_is_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = chunked(&call("echo").to_string());
    for line in [
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: chunked;q=1",
        "transfer-encoding: chunked\u{b}",
        "transfer-encoding: \u{b}chunked",
        "transfer-encoding: ,chunked",
        "transfer-encoding: chunked,",
        "transfer-encoding:",
        "transfer-encoding : chunked",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: x",
    ] {
        let answer = talk(&gateway, &post(&format!("{CLOSE}{line}\r\n"), &body)).await;
        let found = statuses(&answer);
        assert!(found.is_empty() || found == [400], "{line:?}: {answer}");
    }
    assert_eq!(worker.began(), 0);
    // Upper case and white space around are the same coding.
    let fine = post(&format!("{CLOSE}Transfer-Encoding: \t ChunkeD \r\n"), &body);
    assert_eq!(statuses(&talk(&gateway, &fine).await), [200]);
}

#[tokio::test]
async fn a_length_is_digits_once() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let length = body.len();
    for lines in [
        format!("content-length: {length}\r\ncontent-length: 0"),
        format!("content-length: {length}, {length}"),
        format!("content-length: +{length}"),
        format!("content-length: -{length}"),
        format!("content-length: 0x{length:x}"),
        format!("content-length: {length}.0"),
        format!("content-length: {length} {length}"),
        "content-length:".to_owned(),
        "content-length: 99999999999999999999999".to_owned(),
        format!("content-length : {length}"),
        format!("content-length:\r\n {length}"),
        format!("content-length: {length}\r\n\tcontent-length: 0"),
        format!("content_length: 0\r\n content-length: {length}"),
    ] {
        let answer = talk(&gateway, &post(&format!("{CLOSE}{lines}\r\n"), &body)).await;
        let found = statuses(&answer);
        assert!(
            found.is_empty() || found == [400] || found == [413],
            "{lines:?}: {answer}"
        );
    }
    assert_eq!(worker.began(), 0);
    assert_eq!(gateway.call("echo").await.status, StatusCode::OK);
    // The same length twice is one length to every reader (RFC 9110, 8.6), and the HTTP library makes it one.
    let twice = format!("{CLOSE}content-length: {length}\r\ncontent-length: {length}\r\n");
    assert_eq!(statuses(&talk(&gateway, &post(&twice, &body)).await), [200]);
}

#[tokio::test]
async fn chunks_that_are_not_plain_are_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let (size, dec) = (format!("{:x}", body.len()), body.len());
    for (name, chunks) in [
        (
            "a bare LF after the size",
            format!("{size}\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a bare LF in an extension",
            format!("{size};a\nb\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a bare LF after the data",
            format!("{size}\r\n{body}\n0\r\n\r\n"),
        ),
        (
            "0x before the size",
            format!("0x{size}\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a sign before the size",
            format!("+{size}\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "white space before the size",
            format!(" {size}\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a size that overflows",
            format!("1{size:0>16}\r\n{body}\r\n0\r\n\r\n"),
        ),
        ("no size", format!("\r\n{body}\r\n0\r\n\r\n")),
        (
            "less data than said",
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", dec + 1),
        ),
        (
            "more data than said",
            format!("{:x}\r\n{body}\r\n0\r\n\r\n", dec - 1),
        ),
        ("a negative size", format!("-1\r\n{body}\r\n0\r\n\r\n")),
    ] {
        let request = post(&format!("{CLOSE}transfer-encoding: chunked\r\n"), &chunks);
        let answer = talk(&gateway, &request).await;
        let found = statuses(&answer);
        assert!(found.is_empty() || found == [400], "{name}: {answer}");
    }
    assert_eq!(worker.began(), 0);
    let extension = format!("{size};name=value\r\n{body}\r\n0\r\nx-trailer: 1\r\n\r\n");
    let fine = post(
        &format!("{CLOSE}transfer-encoding: chunked\r\n"),
        &extension,
    );
    assert_eq!(statuses(&talk(&gateway, &fine).await), [200]);
}

/// RFC 9112, 2.2 lets a reader end a line at a bare LF, and the HTTP library does. So what hides behind
/// one is seen here as a header of its own: a second length, or a coding beside a length.
#[tokio::test]
async fn what_hides_behind_a_bare_lf_counts_and_is_refused_as_such() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let length = body.len();
    for lines in [
        format!("content-length: {length}\r\nx-a: b\ncontent-length: 0"),
        format!("content-length: {length}\r\nx-a: b\ntransfer-encoding: xchunked"),
        format!("content-length: {length}\r\nx-a: b\nauthorization: Bearer {KEY}"),
        format!("content-length: {length}\r\nx-a: b\nhost: evil.example"),
    ] {
        let answer = talk(&gateway, &post(&format!("{CLOSE}{lines}\r\n"), &body)).await;
        let found = statuses(&answer);
        assert!(
            found.is_empty() || found == [400] || found == [401],
            "{lines:?}: {answer}"
        );
    }
    // Bare CR, NUL and other controls are never part of a value.
    for hidden in ["\r", "\0", "\u{1}", "\u{7f}"] {
        let lines = format!("{CLOSE}content-length: {length}\r\nx-a: b{hidden}c\r\n");
        let answer = talk(&gateway, &post(&lines, &body)).await;
        assert!(
            matches!(statuses(&answer).as_slice(), [] | [400]),
            "{hidden:?}: {answer}"
        );
    }
    assert_eq!(worker.began(), 0);
}

#[tokio::test]
async fn after_a_request_with_both_kinds_of_length_nothing_is_read_any_more() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = chunked(&call("echo").to_string());
    let next = good("wait");
    for lines in [
        format!(
            "transfer-encoding: chunked\r\ncontent-length: {}\r\n",
            body.len() + next.len()
        ),
        format!(
            "content-length: {}\r\ntransfer-encoding: chunked\r\n",
            body.len() + next.len()
        ),
        "content-length: 5\r\ntransfer-encoding: chunked\r\n".to_owned(),
    ] {
        // What waits on a connection that stays open would hang: the second request asks for that.
        let answer = talk(&gateway, &format!("{}{next}", post(&lines, &body))).await;
        assert_eq!(statuses(&answer).len(), 1, "{answer}");
        assert!(
            answer.to_ascii_lowercase().contains("connection: close"),
            "{answer}"
        );
    }
    let metadata = worker.state.metadata.lock().unwrap().clone();
    assert!(
        worker.began() <= 3,
        "no call of the hidden requests: {metadata:?}"
    );
}

#[tokio::test]
async fn first_lines_that_are_not_plain_are_refused() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let body = call("echo").to_string();
    let tail = format!(
        "authorization: Bearer {KEY}\r\n{CLOSE}{HEAD}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    for head in [
        format!("POST {PATH}\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/0.9\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/1.2\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/2.0\r\nhost: localhost\r\n"),
        format!("POST  {PATH}  HTTP/1.1\r\nhost: localhost\r\n"),
        format!("POST\t{PATH} HTTP/1.1\r\nhost: localhost\r\n"),
        format!("POST {PATH} x HTTP/1.1\r\nhost: localhost\r\n"),
        format!("PO ST {PATH} HTTP/1.1\r\nhost: localhost\r\n"),
        format!(" POST {PATH} HTTP/1.1\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/1.1\r\n host: localhost\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n"),
        format!("POST {PATH} HTTP/1.1\r\nhost: localhost,evil.example\r\n"),
        format!("POST {PATH} HTTP/1.1\r\nhost: user@localhost\r\n"),
        format!("POST {PATH} HTTP/1.1\r\n"),
        format!("POST http://evil.example{PATH} HTTP/1.1\r\nhost: localhost\r\n"),
        format!("POST http://localhost{PATH} HTTP/1.1\r\nhost: evil.example\r\n"),
        format!("POST http://evil.example{PATH} HTTP/1.1\r\nhost: evil.example\r\n"),
    ] {
        let answer = talk(&gateway, &format!("{head}{tail}")).await;
        let refused = matches!(statuses(&answer).as_slice(), [] | [400 | 403 | 505]);
        assert!(refused, "{head:?}: {answer}");
    }
    assert_eq!(worker.began(), 0);
    let whole = format!("POST http://localhost{PATH} HTTP/1.1\r\nhost: localhost\r\n{tail}");
    assert_eq!(
        statuses(&talk(&gateway, &whole).await),
        [200],
        "a whole address is fine"
    );
}
