//! The gRPC port: how long its connections may do nothing, and what they speak.
//!
//! Connections are served by hyper directly, because tonic's own server has no bound on
//! connections, none on silent ones, and a deadline of its own that would race with ours.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ramen_listener::{Bounds, Connection, Port, Stream, Tls};
use tokio::net::TcpListener;
use tonic::service::Routes;

use crate::service::Front;

/// Streams at once on one connection.
const MAX_STREAMS: u32 = 128;
/// Bytes of the headers of one request.
const MAX_HEADERS: u32 = 16 * 1024;
/// Bytes of one stream that wait for the peer to read.
const SEND_BUFFER: usize = 256 * 1024;
/// A peer that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);
const BOUNDS: Bounds = Bounds {
    first_request: Duration::from_secs(20),
    idle: Duration::from_mins(15),
    max_age: Some(Duration::from_mins(30)),
    // Large answers are watched one by one, and sessions have bounds of their own; but where the peer takes no byte, not
    // even the ping can be written that would tell that it is gone.
    unread: Some(Duration::from_secs(30)),
    linger: None,
};

/// Serves until the front stops; returns when the last connection has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    front: Arc<Front>,
    routes: Routes,
    tls: Option<Arc<Tls>>,
    max_connections: usize,
) {
    let port = Port {
        listener,
        tls,
        max_connections,
        bounds: BOUNDS,
        stopping: front.stopping.clone(),
    };
    ramen_listener::serve(port, move |stream, connection| {
        let (front, routes) = (Arc::clone(&front), routes.clone());
        async move {
            front.metrics.connections.inc();
            let ended = http2(stream, connection, &front, routes).await;
            front.metrics.connections.dec();
            ended
        }
    })
    .await;
}

async fn http2(
    stream: Stream,
    connection: Box<Connection>,
    front: &Arc<Front>,
    routes: Routes,
) -> std::io::Result<()> {
    let (peer, cut) = (connection.peer, connection.cut());
    let requests = connection.requests();
    let service = service_fn(move |request: Request<Incoming>| {
        let (front, cut) = (Arc::clone(front), Arc::clone(&cut));
        front.answer(&routes, peer, cut, requests.open(), request)
    });
    let serving = Box::pin(builder().serve_connection(TokioIo::new(stream), service));
    connection
        .drive(serving, http2::Connection::graceful_shutdown)
        .await
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(128))
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_ANSWER);
    builder
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http::Response;
    use http_body::{Body, Frame};
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// A body without an end, which counts what was taken of it.
    struct Endless(Arc<AtomicUsize>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            static PIECE: [u8; 4096] = [0; 4096];
            self.0.fetch_add(PIECE.len(), Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE)))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_a_peer_does_not_read_only_so_much_waits() {
        let taken = Arc::<AtomicUsize>::default();
        let body = Arc::clone(&taken);
        let service = service_fn(move |_: Request<Incoming>| {
            let body = Endless(Arc::clone(&body));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let (mut peer, ours) = tokio::io::duplex(1024);
        let serving = tokio::spawn(builder().serve_connection(TokioIo::new(ours), service));
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // The windows of streams and of the connection are as wide as can be: they are not what holds it back.
        hello.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
        hello.extend([0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0]);
        // GET / over http, by the table that every peer has.
        hello.extend([0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84]);
        peer.write_all(&hello).await.unwrap();
        // Time passes when nothing else can be done.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let taken = taken.load(Ordering::Relaxed);
        let most = SEND_BUFFER + 64 * 1024;
        assert!((SEND_BUFFER..most).contains(&taken), "{taken} bytes");
        serving.abort();
    }
}
