//! What the token of one deploy opens, and for how long.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc;
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use ramen_group::Outcome;

use super::super::endpoint::Limits;
use super::super::*;
use super::port::{Archive, Deploying, Port, layer_path, reference, report};
use crate::testing::web::{self, Got};

#[tokio::test]
async fn a_job_reads_its_code_and_hands_over_requirements_and_one_report() {
    let port = Port::start().await;
    let mut deploy = port.deploy("calc", "1").await;
    let token = deploy.token.clone();
    let code = port
        .get(&layer_path(Kind::Code, &deploy.code), &token)
        .await;
    assert_eq!(code.status, 200);
    assert_eq!(
        ramen_source::Digest::of(&code.body).to_string(),
        deploy.code.digest
    );

    let lock = deploy.path("locks/inputs");
    assert_eq!(port.get(&lock, &token).await.status, 404);
    assert_eq!(port.put(&lock, &token, "six==1.17\n").await.status, 204);
    assert_eq!(port.get(&lock, &token).await.text(), "six==1.17");

    let path = deploy.path("layers/deps/py311");
    assert_eq!(port.get(&path, &token).await.status, 404);
    let archive = Archive::of("requirements");
    let deps = reference(&port.put_deps(&deploy, "py311", &archive).await);
    assert_eq!(deps.digest, archive.digest.to_string());
    assert_eq!(reference(&port.get(&path, &token).await), deps);
    let read = port.get(&layer_path(Kind::Deps, &deps), &token).await;
    assert_eq!((read.status, read.body), (200, archive.bytes));

    assert!(deploy.reports.borrow().is_none());
    let body = report(&deploy, Some(&deps));
    let path = deploy.path("report");
    assert_eq!(port.put(&path, &token, body.clone()).await.status, 204);
    let known = deploy
        .reports
        .wait_for(Option::is_some)
        .await
        .unwrap()
        .clone()
        .unwrap();
    assert_eq!(
        (known.outcome, known.deps.as_ref()),
        (Outcome::Ok, Some(&deps))
    );

    // The same report once more is taken for received; nothing else is.
    assert_eq!(port.put(&path, &token, body).await.status, 204);
    let shut = [
        port.get(&layer_path(Kind::Code, &deploy.code), &token)
            .await,
        port.get(&lock, &token).await,
        port.put(&lock, &token, "other").await,
        port.get(&deploy.path("layers/deps/py311"), &token).await,
        port.put_deps(&deploy, "py312", &Archive::of("more")).await,
    ];
    for got in shut {
        assert_eq!(got.status, 401);
    }
    // It outlives the process: a restarted operator has it.
    let again = port.artifacts.report(&deploy.id).await.unwrap().unwrap();
    assert_eq!(again.outcome, Outcome::Ok);
}

#[tokio::test]
async fn a_token_ends_with_its_deploy() {
    let port = Port::start().await;
    let deploy = port.deploy("calc", "1").await;
    let all = async |deploy: &Deploying| {
        let token = &deploy.token;
        let mut statuses = vec![
            port.get(&layer_path(Kind::Code, &deploy.code), token)
                .await
                .status,
        ];
        for tail in ["locks/x", "layers/deps/x", "report"] {
            statuses.push(port.get(&deploy.path(tail), token).await.status);
            statuses.push(port.put(&deploy.path(tail), token, "x").await.status);
        }
        statuses
    };
    port.artifacts.dismiss(&deploy.id);
    assert_eq!(all(&deploy).await, [401; 7]);
    // The next try of the same deploy has another token.
    let next = port.deploy("calc", "1").await;
    assert_eq!(all(&deploy).await, [401; 7]);
    assert_eq!(
        port.get(&layer_path(Kind::Code, &next.code), &next.token)
            .await
            .status,
        200
    );
    for none in ["", "rad_", "rad_00", "Bearer"] {
        let none = Secret::from(none);
        assert_eq!(
            port.put(&next.path("report"), &none, "{}").await.status,
            401
        );
    }
    assert!(next.reports.borrow().is_none());
}

#[tokio::test]
async fn a_token_opens_nothing_of_another_group() {
    let port = Port::start().await;
    let (mine, theirs) = (
        port.deploy("calc", "1").await,
        port.deploy("other", "1").await,
    );
    let deps = reference(&port.put_deps(&theirs, "k", &Archive::of("theirs")).await);
    for tail in ["locks/k", "layers/deps/k", "report"] {
        let path = theirs.path(tail);
        assert_eq!(port.get(&path, &mine.token).await.status, 401, "{tail}");
        assert_eq!(
            port.put(&path, &mine.token, "x").await.status,
            401,
            "{tail}"
        );
    }
    // Layers that it was not told of are not there for it.
    assert_eq!(
        port.get(&layer_path(Kind::Code, &theirs.code), &mine.token)
            .await
            .status,
        404
    );
    assert_eq!(
        port.get(&layer_path(Kind::Deps, &deps), &mine.token)
            .await
            .status,
        404
    );
    // The same key is another place: no group can put anything under the key of another.
    let own = reference(&port.put_deps(&mine, "k", &Archive::of("mine")).await);
    assert_ne!(own.key, deps.key);
    assert_eq!(
        reference(&port.get(&theirs.path("layers/deps/k"), &theirs.token).await),
        deps
    );
    // Nor can a report name what another handed over.
    let body = report(&mine, Some(&deps));
    assert_eq!(
        port.put(&mine.path("report"), &mine.token, body)
            .await
            .status,
        422
    );
    assert!(mine.reports.borrow().is_none());
    // The token of a group's pods opens no deploy.
    let pods = port.artifacts.read_token(&mine.id.group);
    assert_eq!(
        port.put(&mine.path("report"), &pods, "{}").await.status,
        401
    );
}

#[tokio::test]
async fn bytes_that_are_not_those_of_the_digest_are_not_kept() {
    let port = Port::start().await;
    let deploy = port.deploy("calc", "1").await;
    let before = port.files("blobs");
    let liar = Archive {
        digest: Archive::of("something else").digest,
        ..Archive::of("requirements")
    };
    let got = port.put_deps(&deploy, "k", &liar).await;
    assert_eq!(got.status, 409, "{}", got.text());
    let path = deploy.path("layers/deps/k");
    for header in ["", "sha256:", "sha256:00", "md5:00", "../../x"] {
        let headers = [("x-ramen-digest", header)];
        let got = port.put_with(&path, &deploy.token, &headers, "x").await;
        assert_eq!(got.status, 400, "{header}");
    }
    assert_eq!(port.put(&path, &deploy.token, "x").await.status, 400);
    assert_eq!(port.get(&path, &deploy.token).await.status, 404);
    assert_eq!(
        (port.files("blobs"), port.files("incoming")),
        (before, vec![])
    );
    // It may try again.
    reference(
        &port
            .put_deps(&deploy, "k", &Archive::of("requirements"))
            .await,
    );
}

#[tokio::test]
async fn a_layer_over_the_limit_is_refused_announced_or_not() {
    let limits = Limits {
        deps: 1 << 20,
        ..Limits::DEFAULT
    };
    let port = Port::with(limits).await;
    let deploy = port.deploy("calc", "1").await;
    let large = Archive::of(&"x".repeat((1 << 20) + 1));
    assert_eq!(port.put_deps(&deploy, "k", &large).await.status, 413);
    let pieces = futures::stream::repeat_with(|| {
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![0; 64 * 1024])))
    });
    let (token, digest) = (
        format!("Bearer {}", deploy.token.expose()),
        large.digest.to_string(),
    );
    let headers = [
        ("authorization", token.as_str()),
        ("x-ramen-digest", digest.as_str()),
    ];
    let path = deploy.path("layers/deps/k");
    let request = web::request(Method::PUT, &path, &headers, StreamBody::new(pieces));
    assert_eq!(
        web::exchange(port.address, request).await.unwrap().status,
        413
    );
    assert_eq!(port.files("incoming"), Vec::<String>::new());
    let fits = Archive::of(&"x".repeat(1 << 20));
    reference(&port.put_deps(&deploy, "k", &fits).await);
    // A report and a lock have limits of their own.
    let huge = vec![b' '; (8 << 20) + 1];
    assert_eq!(
        port.put(&deploy.path("report"), &deploy.token, huge.clone())
            .await
            .status,
        413
    );
    assert_eq!(
        port.put(&deploy.path("locks/k"), &deploy.token, huge)
            .await
            .status,
        413
    );
}

/// A layer that is handed over piece by piece, as the test likes.
struct Slow {
    pieces: mpsc::UnboundedSender<Bytes>,
    answer: tokio::task::JoinHandle<Result<Got, hyper::Error>>,
}

impl Slow {
    fn begin(port: &Port, deploy: &Deploying, key: &str, archive: &Archive) -> Self {
        let (pieces, body) = mpsc::unbounded();
        let body = body.map(|bytes| Ok::<_, std::convert::Infallible>(Frame::data(bytes)));
        let (token, digest) = (
            format!("Bearer {}", deploy.token.expose()),
            archive.digest.to_string(),
        );
        let headers = [
            ("authorization", token.as_str()),
            ("x-ramen-digest", digest.as_str()),
        ];
        let path = deploy.path(&format!("layers/deps/{key}"));
        let request = web::request(Method::PUT, &path, &headers, StreamBody::new(body));
        let answer = tokio::spawn(web::exchange(port.address, request));
        Self { pieces, answer }
    }
}

/// Until a condition of the disk holds; nothing tells of it.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .expect(what);
}

#[tokio::test]
async fn one_layer_at_a_time_and_a_broken_one_leaves_nothing() {
    let port = Port::start().await;
    let deploy = port.deploy("calc", "1").await;
    let archive = Archive::of("requirements");
    let slow = Slow::begin(&port, &deploy, "slow", &archive);
    slow.pieces
        .unbounded_send(archive.bytes.slice(..5))
        .unwrap();
    until("the first piece", || !port.files("incoming").is_empty()).await;
    let second = port.put_deps(&deploy, "second", &archive).await;
    assert_eq!(
        (second.status, second.header("retry-after")),
        (409, Some("1"))
    );
    // Another deploy is not held up.
    let other = port.deploy("other", "1").await;
    reference(&port.put_deps(&other, "k", &archive).await);
    slow.pieces
        .unbounded_send(archive.bytes.slice(5..))
        .unwrap();
    drop(slow.pieces);
    reference(&slow.answer.await.unwrap().unwrap());

    let broken = Slow::begin(&port, &deploy, "broken", &archive);
    broken
        .pieces
        .unbounded_send(archive.bytes.slice(..5))
        .unwrap();
    until("the first piece", || !port.files("incoming").is_empty()).await;
    broken.answer.abort();
    until("nothing left", || port.files("incoming").is_empty()).await;
    assert_eq!(
        port.get(&deploy.path("layers/deps/broken"), &deploy.token)
            .await
            .status,
        404
    );
    let again = port.put_deps(&deploy, "broken", &archive).await;
    reference(&again);
}

#[tokio::test]
async fn transfers_are_bounded_and_the_next_is_told_to_come_back() {
    let limits = Limits {
        transfers: 1,
        ..Limits::DEFAULT
    };
    let port = Port::with(limits).await;
    let (deploy, other) = (
        port.deploy("calc", "1").await,
        port.deploy("other", "1").await,
    );
    let archive = Archive::of("requirements");
    let slow = Slow::begin(&port, &deploy, "slow", &archive);
    slow.pieces
        .unbounded_send(archive.bytes.slice(..5))
        .unwrap();
    until("the first piece", || !port.files("incoming").is_empty()).await;
    let path = layer_path(Kind::Code, &other.code);
    for got in [
        port.get(&path, &other.token).await,
        port.put_deps(&other, "k", &archive).await,
    ] {
        assert_eq!((got.status, got.header("retry-after")), (503, Some("1")));
    }
    slow.pieces
        .unbounded_send(archive.bytes.slice(5..))
        .unwrap();
    drop(slow.pieces);
    reference(&slow.answer.await.unwrap().unwrap());
    assert_eq!(port.get(&path, &other.token).await.status, 200);
}

#[tokio::test]
async fn paths_with_something_odd_in_them_name_nothing() {
    let port = Port::start().await;
    let deploy = port.deploy("calc", "1").await;
    let archive = Archive::of("x");
    let digest = archive.digest.to_string();
    for tail in [
        "layers/deps/..",
        "layers/deps/.",
        "layers/deps/../../x",
        "layers/deps/%2e%2e",
        "layers/deps/a%2fb",
        "layers/deps/a\\b",
        "layers/deps//k",
        "layers/deps/k/",
        "layers/deps/k/../../../../read-key",
        "layers/code/k",
        "layers/deps/.hidden",
        "locks/../report",
        "report/../report",
        "Report",
        "",
    ] {
        let path = deploy.path(tail);
        let headers = [("x-ramen-digest", digest.as_str())];
        let put = port
            .put_with(&path, &deploy.token, &headers, archive.bytes.clone())
            .await;
        assert_eq!(put.status, 404, "{tail}");
        assert_eq!(port.get(&path, &deploy.token).await.status, 404, "{tail}");
    }
    for path in [
        "/v1/layers/code/read-key",
        "/v1/layers/../read-key",
        "/read-key",
        "/v1/memos/x",
        "/",
    ] {
        assert_eq!(port.get(path, &deploy.token).await.status, 404, "{path}");
    }
    let long = deploy.path(&format!("locks/{}", "k".repeat(101)));
    assert_eq!(port.put(&long, &deploy.token, "x").await.status, 404);
    for method in [Method::POST, Method::DELETE, Method::PATCH] {
        let token = format!("Bearer {}", deploy.token.expose());
        let headers = [("authorization", token.as_str())];
        let got = web::send(port.address, method, &deploy.path("report"), &headers, "x").await;
        assert_eq!(got.status, 404);
    }
    assert!(deploy.reports.borrow().is_none());
}

#[tokio::test]
async fn a_report_that_is_none_is_refused_and_may_be_sent_again() {
    let port = Port::start().await;
    let mut deploy = port.deploy("calc", "1").await;
    let path = deploy.path("report");
    for junk in ["", "{", "null", "[]", "{}", "\u{0}"] {
        assert_eq!(
            port.put(&path, &deploy.token, junk).await.status,
            422,
            "{junk:?}"
        );
    }
    let good = report(&deploy, None);
    assert_eq!(port.put(&path, &deploy.token, good).await.status, 204);
    assert!(deploy.reports.wait_for(Option::is_some).await.is_ok());
    // The first one counts.
    let worse = String::from_utf8(report(&deploy, None))
        .unwrap()
        .replace("\"ok\"", "\"failed\"");
    assert_eq!(port.put(&path, &deploy.token, worse).await.status, 204);
    let kept = port.artifacts.report(&deploy.id).await.unwrap().unwrap();
    assert_eq!(kept.outcome, Outcome::Ok);
}

#[tokio::test]
async fn two_reports_at_once_are_one() {
    let port = Port::start().await;
    let mut deploy = port.deploy("calc", "1").await;
    let path = deploy.path("report");
    let send = || port.put(&path, &deploy.token, report(&deploy, None));
    let all = futures::future::join_all((0..8).map(|_| send())).await;
    assert!(all.iter().all(|got| got.status == 204), "{all:?}");
    deploy.reports.borrow_and_update();
    assert!(!deploy.reports.has_changed().unwrap());
}

#[tokio::test]
async fn a_replica_that_does_not_write_gives_layers_and_puts_the_rest_off() {
    let port = Port::start().await;
    let deploy = port.deploy("calc", "1").await;
    let standby = Port::over(&port).await;
    let pods = port.artifacts.read_token(&deploy.id.group);
    let code = layer_path(Kind::Code, &deploy.code);
    assert_eq!(standby.get(&code, &pods).await.status, 200);
    let stranger = Secret::from("rar_team-a_calc_00");
    assert_eq!(standby.get(&code, &stranger).await.status, 401);
    let absent = format!("/v1/layers/code/{}", Archive::of("absent").digest);
    for got in [
        standby.get(&absent, &pods).await,
        standby.get(&code, &deploy.token).await,
        standby
            .put(&deploy.path("report"), &deploy.token, "{}")
            .await,
        standby.get(&deploy.path("locks/k"), &deploy.token).await,
        standby.put_deps(&deploy, "k", &Archive::of("x")).await,
    ] {
        assert_eq!((got.status, got.header("retry-after")), (503, Some("1")));
    }
    assert!(!standby.artifacts.take_lost(&deploy.id.group));
    standby.leads.begin();
    assert_eq!(standby.get(&absent, &pods).await.status, 404);
    assert!(standby.artifacts.take_lost(&deploy.id.group));
}
