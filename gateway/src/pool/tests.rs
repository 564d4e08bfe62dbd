//! What becomes of workers that fail, by the clock of the test.

use std::net::{SocketAddr, TcpStream};
use std::pin::pin;

use tokio::net::{TcpListener, TcpSocket};

use super::worker::{FIRST_PAUSE, IN_A_ROW};
use super::*;

/// A port that takes no connection: as many as it lets wait are waiting, and whoever else asks hears nothing.
struct Silent {
    address: SocketAddr,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Silent {
    fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let heard = Duration::from_millis(200);
        while let Ok(stream) = TcpStream::connect_timeout(&address, heard) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "the port goes on taking connections");
        }
        Self {
            address,
            _listener: listener,
            _waiting: waiting,
        }
    }

    fn pool(&self) -> Pool {
        Pool::new(&[self.address.to_string().into()])
    }
}

async fn call(pool: &Pool) -> Result<Bytes, Status> {
    call_in(pool, None).await
}

async fn call_in(pool: &Pool, zone: Option<&str>) -> Result<Bytes, Status> {
    let keys = Credentials::new("rmk_own", "demo").unwrap();
    let carried = Carried {
        caller: AsciiMetadataValue::from_static("key:1"),
        copies: Vec::new(),
        zone: zone.map(str::to_owned),
    };
    let body = Bytes::from_static(b"{}");
    pool.call(&keys, &carried, body, Duration::from_mins(1))
        .await
}

#[tokio::test(start_paused = true)]
async fn calls_at_a_worker_that_does_not_answer_wait_for_one_attempt_and_not_for_one_each() {
    let silent = Silent::start();
    let pool = silent.pool();
    for answer in futures::future::join_all((0..8).map(|_| call(&pool))).await {
        assert_eq!(answer.unwrap_err().code(), tonic::Code::Unavailable);
    }
    assert_eq!(pool.ejections(), 1, "attempts for all of them");
    // Whoever comes later tries again.
    call(&pool).await.unwrap_err();
    assert_eq!(pool.ejections(), 2);
}

#[tokio::test(start_paused = true)]
async fn while_one_call_finds_out_whether_a_worker_is_back_others_go_elsewhere() {
    let silent = Silent::start();
    let pool = silent.pool();
    let workers = pool.workers();
    let worker = &workers[0];
    let mut first = pin!(worker.link());
    assert!(futures::poll!(first.as_mut()).is_pending());
    assert!(!worker.stands_aside(), "nothing is known against it");
    first.await.unwrap_err();
    assert!(worker.stands_aside());
    tokio::time::advance(FIRST_PAUSE).await;
    assert!(!worker.stands_aside(), "its pause is over");
    let mut again = pin!(worker.link());
    assert!(futures::poll!(again.as_mut()).is_pending());
    assert!(worker.stands_aside());
    again.await.unwrap_err();
}

/// Whom the next four calls would ask first.
fn asked_first(pool: &Pool) -> Vec<String> {
    let workers = pool.workers();
    let first = |_| pool.order(&workers, None)[0].address().to_owned();
    (0..4).map(first).collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_fails_in_a_row_is_asked_last_until_its_pause_is_over_or_it_answers() {
    let pool = Pool::new(&["a:1".to_owned().into(), "b:1".to_owned().into()]);
    let workers = pool.workers();
    let bad = &workers[0];
    let takes_turns = || {
        let first = asked_first(&pool);
        first.iter().any(|one| one == "a:1") && first.iter().any(|one| one == "b:1")
    };
    let lost = Status::from_error(Box::new(std::io::Error::other("gone")));
    for failure in [lost, not_begun("nothing"), Status::unavailable("died")] {
        for _ in 1..IN_A_ROW {
            bad.ended(&failure);
            assert!(takes_turns(), "{failure}");
        }
        bad.ended(&failure);
        assert_eq!(asked_first(&pool), ["b:1"; 4], "{failure}");
        tokio::time::advance(FIRST_PAUSE).await;
        assert!(takes_turns(), "{failure}");
        // The next time it is longer.
        bad.ended(&failure);
        tokio::time::advance(FIRST_PAUSE).await;
        assert_eq!(asked_first(&pool), ["b:1"; 4], "{failure}");
        bad.answered();
        assert!(takes_turns(), "{failure}");
    }
    assert_eq!(pool.ejections(), 6);
    let full = Status::resource_exhausted("too many calls in flight; try again later");
    for _ in 0..IN_A_ROW {
        bad.ended(&Status::unavailable("died"));
        bad.ended(&full);
    }
    assert!(takes_turns(), "not in a row");
}

#[test]
fn an_error_of_a_session_is_the_status_that_its_call_ended_with() {
    let error = |data: &str| format!(r#"{{"code":-32603,"message":"m","data":{data}}}"#);
    for (data, code, refused) in [
        (
            r#"{"grpc":"UNAVAILABLE","notBegun":true}"#,
            Code::Unavailable,
            true,
        ),
        (r#"{"grpc":"UNAVAILABLE"}"#, Code::Unavailable, false),
        (
            r#"{"grpc":"RESOURCE_EXHAUSTED"}"#,
            Code::ResourceExhausted,
            false,
        ),
        (
            r#"{"grpc":"DEADLINE_EXCEEDED"}"#,
            Code::DeadlineExceeded,
            false,
        ),
        (r#"{"grpc":"INTERNAL"}"#, Code::Internal, false),
    ] {
        let status = failure(&error(data)).unwrap();
        assert_eq!((status.code(), status.message()), (code, "m"), "{data}");
        assert_eq!(is_not_begun(&status), refused, "{data}");
        assert!(!was_lost(&status), "the worker says it: {data}");
    }
    for data in [
        r#"{"grpc":"OK"}"#,
        r#"{"grpc":1}"#,
        r#"{"uri":"own://r"}"#,
        "null",
    ] {
        assert!(failure(&error(data)).is_none(), "{data}");
    }
    assert!(failure(r#"{"code":-32602,"message":"no"}"#).is_none());
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_connection_that_break_with_it_are_one_failure() {
    let pool = Pool::new(&["a:1".to_owned().into()]);
    let workers = pool.workers();
    let lost = Status::from_error(Box::new(std::io::Error::other("gone")));
    for _ in 0..100 {
        workers[0].ended(&lost);
    }
    assert_eq!(pool.ejections(), 1);
    tokio::time::advance(FIRST_PAUSE).await;
    assert!(!workers[0].stands_aside());
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_has_no_worker_for_a_moment_is_waited_for() {
    let address = ramen_source::testing::FreePort::nobody().unwrap();
    let address = address.to_string();
    let at = |zone: &str| WorkerAt {
        address: address.clone(),
        zone: Some(zone.to_owned()),
        tls: None,
    };
    let pool = Pool::new(&[at("east")]);
    let mut waiting = pin!(call_in(&pool, Some("west")));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    pool.set(&[at("east"), at("west")]);
    let error = waiting.await.unwrap_err();
    assert_eq!(error.message(), "no worker of the group can be reached");
    let error = call_in(&pool, Some("north")).await.unwrap_err();
    assert_eq!(error.message(), "the zone has no worker");
}
