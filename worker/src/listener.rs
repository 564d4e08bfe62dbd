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
    // Large answers are watched one by one, and sessions have bounds of their own.
    unread: None,
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
    let serving = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    connection
        .drive(serving, http2::Connection::graceful_shutdown)
        .await
}
