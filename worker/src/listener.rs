//! The gRPC port: accepts, bounds and ends connections.
//!
//! Connections are served by hyper directly, because tonic's own server has no bound on
//! connections, none on silent ones, and a deadline of its own that would race with ours.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
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
/// The handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first request of a connection.
const FIRST_REQUEST: Duration = Duration::from_secs(20);
/// A connection without a request for so long is asked to end.
const IDLE: Duration = Duration::from_mins(15);
/// So are old ones, which spreads long-lived clients over workers again.
const MAX_AGE: Duration = Duration::from_mins(30);
/// How often a connection is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After a failed accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not fit together.
    #[error("certificate and key cannot be used")]
    Pair(#[source] rustls::Error),
}

/// Certificate and key, read again on request.
pub(crate) struct Tls {
    files: (PathBuf, PathBuf),
    acceptor: RwLock<TlsAcceptor>,
}

impl Tls {
    pub(crate) fn read(cert: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let acceptor = RwLock::new(acceptor(&cert, &key)?);
        Ok(Self {
            files: (cert, key),
            acceptor,
        })
    }

    /// Takes renewed files; on an error the old ones stay.
    pub(crate) fn renew(&self) -> Result<(), TlsError> {
        let new = acceptor(&self.files.0, &self.files.1)?;
        *self
            .acceptor
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.acceptor
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed(cert))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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

    /// Whether the connection was silent for too long or is too old.
    fn is_over(&self) -> bool {
        let age = self.begin.elapsed();
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        let idle = self.open.load(Ordering::Relaxed) == 0 && age.saturating_sub(last) > IDLE;
        idle || age > MAX_AGE || self.is_silent()
    }

    fn is_silent(&self) -> bool {
        self.last.load(Ordering::Relaxed) == 0 && self.begin.elapsed() > FIRST_REQUEST
    }
}

/// Serves until `stopping`; returns when the last connection has ended.
pub(crate) async fn serve(
    listener: TcpListener,
    front: Arc<Front>,
    routes: Routes,
    tls: Option<Arc<Tls>>,
    max_connections: usize,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let mut stopping = front.stopping.clone();
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
        let (front, routes, tls, alive) = (
            Arc::clone(&front),
            routes.clone(),
            tls.clone(),
            alive.clone(),
        );
        tokio::spawn(async move {
            front.metrics.connections.inc();
            if let Err(error) = connection(stream, peer, &front, routes, tls.as_deref()).await {
                tracing::debug!(%error, %peer, "a connection broke");
            }
            front.metrics.connections.dec();
            drop((place, alive));
        });
    }
    drop((listener, alive));
    ended.recv().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    front: &Arc<Front>,
    routes: Routes,
    tls: Option<&Tls>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match tls {
        None => http2(stream, peer.ip(), front, routes).await,
        Some(tls) => {
            let stream = timeout(HANDSHAKE, tls.acceptor().accept(stream))
                .await
                .map_err(|_| io::Error::other("no TLS handshake in time"))??;
            http2(stream, peer.ip(), front, routes).await
        }
    }
}

async fn http2<S>(stream: S, peer: IpAddr, front: &Arc<Front>, routes: Routes) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity {
        begin: Instant::now(),
        open: AtomicUsize::new(0),
        last: AtomicU64::new(0),
    });
    let end = Arc::<Notify>::default();
    let service = service_fn(|request: Request<Incoming>| {
        let open = Open::new(Arc::clone(&activity));
        let answer = Arc::clone(front).answer(routes.clone(), peer, Arc::clone(&end), request);
        async move {
            let response = answer.await;
            drop(open);
            Ok::<_, std::convert::Infallible>(response)
        }
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
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut stopping: watch::Receiver<bool> = front.stopping.clone();
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut asked = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            _ = stopping.wait_for(|stopping| *stopping), if !asked => {
                asked = true;
                connection.as_mut().graceful_shutdown();
            }
            () = end.notified() => return Err(io::Error::other("an answer was not read in time")),
            _ = look.tick() => {
                if activity.is_silent() {
                    return Err(io::Error::other("no request in time"));
                }
                if !asked && activity.is_over() {
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
