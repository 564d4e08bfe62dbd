//! The HTTP port: accepts, bounds and ends connections of HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::tls::Tls;

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
/// The handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first request of a connection, and all headers of any.
const HEADERS: Duration = Duration::from_secs(20);
/// A connection without a request for so long is asked to end.
const IDLE: Duration = Duration::from_mins(5);
/// How often a connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After a failed accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until the gateway stops; returns when the last connection has ended.
pub async fn serve(
    listener: TcpListener,
    gateway: Arc<Gateway>,
    tls: Option<Arc<Tls>>,
    max_connections: usize,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let mut stopping = gateway.stopping.clone();
    // Closed when the last connection has dropped its end.
    let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        // The semaphore is never closed.
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (gateway, tls, alive) = (Arc::clone(&gateway), tls.clone(), alive.clone());
        tokio::spawn(async move {
            if let Err(error) = connection(stream, peer, gateway, tls.as_deref()).await {
                tracing::debug!(%error, %peer, "a connection broke");
            }
            drop((place, alive));
        });
    }
    drop((listener, alive));
    ended.recv().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    gateway: Arc<Gateway>,
    tls: Option<&Tls>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match tls {
        None => speak(stream, peer, gateway).await,
        Some(tls) => {
            let stream = timeout(HANDSHAKE, tls.acceptor().accept(stream))
                .await
                .map_err(|_| io::Error::other("no TLS handshake in time"))??;
            speak(stream, peer, gateway).await
        }
    }
}

/// What a connection did, for those who end idle ones.
struct Activity {
    begin: Instant,
    open: AtomicUsize,
    /// Milliseconds after `begin` of the last request; 0: none yet.
    last: AtomicU64,
}

impl Activity {
    fn mark(&self) {
        let now = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now.max(1), Ordering::Relaxed);
    }

    fn is_silent(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0 && self.begin.elapsed() > HEADERS
    }

    fn is_idle(&self) -> bool {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.open.load(Ordering::Relaxed) == 0 && self.begin.elapsed().saturating_sub(last) > IDLE
    }
}

async fn speak<S>(stream: S, peer: SocketAddr, gateway: Arc<Gateway>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity {
        begin: Instant::now(),
        open: AtomicUsize::new(0),
        last: AtomicU64::new(0),
    });
    let mut stopping = gateway.stopping.clone();
    let service = service_fn(|request: Request<Incoming>| {
        let open = Open::new(Arc::clone(&activity));
        let gateway = Arc::clone(&gateway);
        let chunked = request.headers().contains_key(TRANSFER_ENCODING);
        async move {
            let mut answer = gateway.answer(peer.ip(), request).await;
            if chunked {
                // The parser has dropped a Content-Length beside it, so nobody can tell whether a proxy
                // in front saw the same end of the body. RFC 9112, 6.1: what follows is not read.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            drop(open);
            Ok::<_, Infallible>(answer)
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
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            _ = stopping.wait_for(|stopping| *stopping), if !asked => {
                asked = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick() => {
                if activity.is_silent() {
                    return Err(io::Error::other("no request in time"));
                }
                if !asked && activity.is_idle() {
                    asked = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

struct Open(Arc<Activity>);

impl Open {
    fn new(activity: Arc<Activity>) -> Self {
        activity.mark();
        activity.open.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.mark();
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
