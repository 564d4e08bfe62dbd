//! What becomes of workers that fail, by the clock of the test.

use std::net::{SocketAddr, TcpStream};
use std::pin::pin;

use tokio::net::{TcpListener, TcpSocket};

use super::worker::FIRST_PAUSE;
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
    let keys = Credentials::new("rmk_own", "demo").unwrap();
    let carried = Carried {
        caller: AsciiMetadataValue::from_static("key:1"),
        copies: Vec::new(),
        zone: None,
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
