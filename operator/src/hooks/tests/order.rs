//! The order of the checks, and the answer to each fault.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::Limits;
use super::port::{OLD_SECRET, Port, github, hex256, push, signature};
use crate::testing::web;

#[tokio::test]
async fn path_and_method_come_first_and_say_nothing_of_receivers() {
    let port = Port::start().await;
    for path in [
        "/",
        "/v1/hooks",
        "/v1/hooks/",
        "/v1/hooks/a/b",
        "/v1/hooks/a/b/c/d",
        "/v1/hooks/a%2fb",
        "/v1/hooks/../x",
    ] {
        assert_eq!(port.post(path, &[], b"").await.status, 404, "{path}");
    }
    for method in [Method::GET, Method::PUT, Method::HEAD, Method::OPTIONS] {
        for path in ["/v1/hooks/github", "/v1/hooks/nobody"] {
            let said = port.send(method.clone(), path, &[], b"").await;
            assert_eq!(said.status, 405, "{method} {path}");
        }
    }
    let nobody = port.post("/v1/hooks/nobody", &[], b"{}").await;
    assert_eq!((nobody.status, nobody.text.as_str()), (404, "not found"));
    assert_eq!(port.counted("", "refused"), 1);
    assert_eq!(
        port.counted("nobody", "refused"),
        0,
        "a stranger's text is no label"
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_its_signature_is_looked_at() {
    let port = Port::start().await;
    let body = vec![b' '; Limits::DEFAULT.body + 1];
    // Announced: for a receiver that is there and for one that is not.
    for path in ["/v1/hooks/github", "/v1/hooks/nobody"] {
        let signed = signature(&body);
        let said = port.post(path, &github(&signed, "1"), &body).await;
        assert_eq!(said.status, 413, "{path}");
    }
    // Not announced: in pieces, for as long as the server takes them.
    let pieces = futures::stream::repeat_with(|| {
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b' '; 64 * 1024])))
    });
    let request = web::request(
        Method::POST,
        "/v1/hooks/github",
        &[],
        StreamBody::new(pieces),
    );
    let got = web::exchange(port.address, request).await.unwrap();
    assert_eq!(got.status, 413);
    assert_eq!(port.counted("github", "refused"), 2);

    let limit = vec![b' '; Limits::DEFAULT.body];
    let signed = signature(&limit);
    let said = port
        .post("/v1/hooks/github", &github(&signed, "1"), &limit)
        .await;
    assert_eq!(
        said.status, 400,
        "what has the limit's size is read: it is not JSON"
    );
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let limits = Limits {
        body_time: Duration::from_millis(50),
        ..Limits::DEFAULT
    };
    let port = Port::with(limits).await;
    let mut stream = TcpStream::connect(port.address).await.unwrap();
    let head = "POST /v1/hooks/github HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // The server answers and closes: nothing more is sent from here.
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(port.counted("github", "refused"), 1);
}

#[tokio::test]
async fn a_receiver_without_a_secret_is_not_ready_and_never_open() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    for key in ["", "\n"] {
        let signed = format!("sha256={}", hex256(key, &body));
        let said = port
            .post("/v1/hooks/unready", &github(&signed, "1"), &body)
            .await;
        assert_eq!(said.status, 503, "{said:?}");
    }
    assert!(port.looks().is_empty());
}

#[tokio::test]
async fn the_signature_comes_before_all_that_the_body_says() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    let wrong = format!("sha256={}", hex256("another-secret", &body));
    let form = |signature| {
        let mut headers = github(signature, "1");
        headers[0].1 = "application/x-www-form-urlencoded";
        headers
    };
    let right = signature(&body);
    for (headers, body, status) in [
        // A wrong signature: nothing else is told, whatever else is wrong.
        (github(&wrong, "1"), &body[..], 401),
        (form(&wrong), &body[..], 401),
        (github(&wrong, "1"), &b"not json"[..], 401),
        (github(&right, "1"), &b"{}"[..], 401),
        (
            github(right.trim_start_matches("sha256="), "1"),
            &body[..],
            401,
        ),
        (github("sha256=", "1"), &body[..], 401),
        (github("sha1=00", "1"), &body[..], 401),
        (github("sha256=zz", "1"), &body[..], 401),
        (github("", "1"), &body[..], 401),
        // Then the media type.
        (form(&right), &body[..], 415),
    ] {
        let said = port.post("/v1/hooks/github", &headers, body).await;
        assert_eq!(said.status, status, "{headers:?}");
    }
    let twice = [
        github(&right, "1"),
        vec![("x-hub-signature-256", wrong.as_str())],
    ]
    .concat();
    assert_eq!(
        port.post("/v1/hooks/github", &twice, &body).await.status,
        401
    );
    assert!(port.looks().is_empty());

    let mut charset = github(&right, "1");
    charset[0].1 = "Application/JSON; charset=utf-8";
    assert_eq!(
        port.post("/v1/hooks/github", &charset, &body).await.status,
        202
    );
}

#[tokio::test]
async fn two_secrets_are_valid_at_once_and_a_removed_one_is_not() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    for (n, secret) in [OLD_SECRET, super::port::SECRET].into_iter().enumerate() {
        let signed = format!("sha256={}", hex256(secret, &body));
        let said = port
            .post("/v1/hooks/github", &github(&signed, &n.to_string()), &body)
            .await;
        assert_eq!(said.status, 202);
    }
    let fresh = Port::start().await;
    std::fs::write(fresh.dir.path().join("github.github"), OLD_SECRET).unwrap();
    let signed = signature(&body);
    let said = fresh
        .post("/v1/hooks/github", &github(&signed, "1"), &body)
        .await;
    assert_eq!(said.status, 401, "the new file no longer has it");
}

#[tokio::test]
async fn a_ping_is_fine_and_wakes_nobody() {
    let port = Port::start().await;
    let body = br#"{"zen": "Keep it logically awesome.", "hook_id": 1}"#;
    let signed = signature(body);
    for event in ["ping", "issues", "pull_request", "", "PUSH"] {
        let mut headers = github(&signed, "1");
        headers[1].1 = event;
        let said = port.post("/v1/hooks/github", &headers, body).await;
        assert_eq!(
            (said.status, said.text.as_str()),
            (200, "ignored"),
            "{event}"
        );
    }
    assert_eq!(port.counted("github", "ignored"), 5);
    assert!(port.looks().is_empty());
}

#[tokio::test]
async fn a_body_that_is_not_a_push_is_refused_without_a_panic() {
    let port = Port::start().await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deeper = format!("{{\"ref\": {deep}}}");
    let bodies = [
        "",
        "x",
        "null",
        "3",
        "\"ref\"",
        "[]",
        "[{}]",
        "{}",
        "{\"ref\": 3}",
        "{\"ref\": null}",
        "{\"ref\": []}",
        "{\"ref\": \"refs/heads/main\"}",
        "{\"ref\": \"refs/heads/main\", \"repository\": []}",
        "{\"ref\": \"refs/heads/main\", \"repository\": {\"clone_url\": 3, \"ssh_url\": {}}}",
        "{\"ref\": \"refs/heads/main\", \"repository\": {\"clone_url\": \"ext::sh -c x\"}}",
        &deep,
        &deeper,
        "{\"ref\": \"\u{0}",
    ];
    for body in bodies {
        let signed = signature(body.as_bytes());
        let said = port
            .post("/v1/hooks/github", &github(&signed, "1"), body.as_bytes())
            .await;
        assert_eq!(said.status, 400, "{}", body.get(..80).unwrap_or(body));
    }
    assert!(port.looks().is_empty());
    // The port lives.
    let body = push("refs/heads/main");
    let signed = signature(&body);
    let said = port
        .post("/v1/hooks/github", &github(&signed, "1"), &body)
        .await;
    assert_eq!(said.status, 202);
}

#[tokio::test]
async fn a_delivery_that_came_before_is_known_and_changes_nothing() {
    let port = Port::start().await;
    let body = push("refs/heads/main");
    let signed = signature(&body);
    let path = "/v1/hooks/github";
    assert_eq!(
        port.post(path, &github(&signed, "d-1"), &body).await.status,
        202
    );
    for _ in 0..3 {
        let said = port.post(path, &github(&signed, "d-1"), &body).await;
        assert_eq!((said.status, said.text.as_str()), (200, "known"));
    }
    assert_eq!(port.looks(), ["head", "library"]);
    assert_eq!(port.counted("github", "ignored"), 3);
    // What was refused before is not known.
    let wrong = format!("sha256={}", hex256("another-secret", &body));
    assert_eq!(
        port.post(path, &github(&wrong, "d-2"), &body).await.status,
        401
    );
    assert_eq!(
        port.post(path, &github(&signed, "d-2"), &body).await.status,
        202
    );
}

#[tokio::test]
async fn an_answer_does_not_tell_which_groups_there_are() {
    let port = Port::start().await;
    let known = push("refs/heads/main");
    let unknown = String::from_utf8(known.clone())
        .unwrap()
        .replace("acme/library", "acme/secret");
    let mut answers = Vec::new();
    for (n, body) in [&known[..], unknown.as_bytes()].into_iter().enumerate() {
        let signed = signature(body);
        answers.push(
            port.post("/v1/hooks/github", &github(&signed, &n.to_string()), body)
                .await,
        );
    }
    for (n, path) in [
        "/v1/hooks/github/team-a/other",
        "/v1/hooks/github/team-b/nothing",
    ]
    .iter()
    .enumerate()
    {
        let signed = signature(&known);
        answers.push(
            port.post(path, &github(&signed, &format!("p{n}")), &known)
                .await,
        );
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(answers[0].status, 202);
    assert_eq!(port.counted("github", "accepted"), 2);
    assert_eq!(port.counted("github", "unmatched"), 2);
    // The second path names a group of another repository: it is meant all the same.
    assert_eq!(port.looks(), ["head", "library", "other"]);
}

#[tokio::test]
async fn only_groups_that_follow_a_pushed_ref_look() {
    for (reference, looks) in [
        ("refs/heads/main", &["head", "library"][..]),
        ("refs/heads/topic", &["head"][..]),
        ("refs/tags/main", &["release"][..]),
        ("refs/tags/v1.2.0", &["release"][..]),
        ("refs/notes/commits", &[][..]),
        ("main", &[][..]),
    ] {
        let port = Port::start().await;
        let body = push(reference);
        let signed = signature(&body);
        let said = port
            .post("/v1/hooks/github", &github(&signed, "1"), &body)
            .await;
        assert_eq!(said.status, 202, "{reference}");
        assert_eq!(port.looks(), looks, "{reference}");
    }
}
