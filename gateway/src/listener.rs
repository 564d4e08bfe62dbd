//! The HTTP port: how long its connections may do nothing, and how HTTP/1.1 and HTTP/2 are bounded.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ramen_listener::{Bounds, Connection, Held, Port, Stream, Tls};
use tokio::net::TcpListener;

use crate::answer::Body;
use crate::gateway::Gateway;

/// Streams at once on one connection.
const MAX_STREAMS: u32 = 256;
/// Bytes of the headers of one request; the gate is stricter and answers.
const MAX_HEADER_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 128;
/// Bytes of one stream that wait for the peer to read.
const SEND_BUFFER: usize = 256 * 1024;
/// A peer that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// All headers of a request.
const HEADERS: Duration = Duration::from_secs(20);
const BOUNDS: Bounds = Bounds {
    first_request: HEADERS,
    idle: Duration::from_mins(5),
    max_age: None,
    unread: Some(Duration::from_secs(30)),
    linger: Some(Duration::from_secs(10)),
};

/// Serves until the gateway stops; returns when the last connection has ended.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    tls: Option<Arc<Tls>>,
    max_connections: usize,
) {
    let port = Port {
        listener,
        tls,
        max_connections,
        bounds: BOUNDS,
        stopping: gateway.stopping.clone(),
    };
    ramen_listener::serve(port, move |stream, connection| {
        speak(stream, connection, Arc::clone(&gateway))
    })
    .await;
}

async fn speak(
    stream: Stream,
    connection: Box<Connection>,
    gateway: Arc<Gateway>,
) -> io::Result<()> {
    let _counted = gateway.metrics.connected();
    let speaking = speaking(stream, &connection, gateway);
    connection
        .drive(speaking, |speaking| speaking.get_mut().ask_to_end())
        .await
}

/// What is spoken on a connection. Not in [`speak`] itself, which would keep the place of all that is needed here.
fn speaking(
    stream: Stream,
    connection: &Connection,
    gateway: Arc<Gateway>,
) -> Pin<Box<Speaking<impl Answering + use<>>>> {
    let (peer, requests, cut) = (connection.peer, connection.requests(), connection.cut());
    let service = service_fn(move |request: Request<Incoming>| {
        let open = requests.open();
        let (gateway, cut) = (Arc::clone(&gateway), Arc::clone(&cut));
        let chunked = request.headers().contains_key(TRANSFER_ENCODING);
        async move {
            // Boxed: a connection keeps the place of what makes its answers, and a listener has one for hours.
            let mut answer = Box::pin(gateway.answer(peer, request)).await;
            if chunked {
                // The parser has dropped a Content-Length beside it, so nobody can tell whether a proxy
                // in front saw the same end of the body. RFC 9112, 6.1: what follows is not read.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer.map(|body| Held::new(body, open).read_or(&cut)))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(16 * 1024 + 1024)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(128))
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_ANSWER);
    Box::pin(Speaking::Silent(Some(Box::new((builder, stream, service)))))
}

/// What answers the requests of a connection.
trait Answering:
    Service<
        Request<Incoming>,
        Response = Response<Held<Body>>,
        Error = Infallible,
        Future: Send + 'static,
    > + Unpin
{
}

impl<S> Answering for S where
    S: Service<
            Request<Incoming>,
            Response = Response<Held<Body>>,
            Error = Infallible,
            Future: Send + 'static,
        > + Unpin
{
}

/// A connection, before and after its first bytes.
///
/// hyper tells HTTP/1.1 from HTTP/2 too, but hands the bytes that it read for it on as a read of their own, after which its
/// parser doubles the buffer for the next: 8 KiB more that a listener holds for hours.
enum Speaking<S: Answering> {
    /// `None` when it was asked to end.
    Silent(Option<Box<(auto::Builder<TokioExecutor>, Stream, S)>>),
    Served(Pin<Box<auto::Connection<'static, TokioIo<Stream>, S, TokioExecutor>>>),
}

impl<S: Answering> Speaking<S> {
    fn ask_to_end(&mut self) {
        match self {
            Self::Silent(silent) => *silent = None,
            Self::Served(serving) => serving.as_mut().graceful_shutdown(),
        }
    }
}

impl<S: Answering> Future for Speaking<S> {
    type Output = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut *self {
                Self::Served(serving) => return serving.as_mut().poll(cx),
                Self::Silent(silent) => {
                    let Some(begun) = silent.take() else {
                        return Poll::Ready(Ok(()));
                    };
                    let Poll::Ready(is_http1) = begun.1.poll_is_http1(cx) else {
                        *silent = Some(begun);
                        return Poll::Pending;
                    };
                    let (is_http1, (builder, stream, service)) = (is_http1?, *begun);
                    let builder = if is_http1 {
                        builder.http1_only()
                    } else {
                        builder
                    };
                    let serving = builder.serve_connection(TokioIo::new(stream), service);
                    *self = Self::Served(Box::pin(serving.into_owned()));
                }
            }
        }
    }
}
