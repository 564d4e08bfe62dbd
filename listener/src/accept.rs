//! Accepts connections, no more than there are places.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::activity::{Activity, Bounds, Connection};
use crate::stream::Stream;
use crate::tls::Tls;

/// The handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// After a failed accept (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A port that is served.
pub struct Port {
    /// Where connections come in.
    pub listener: TcpListener,
    /// Certificate and key; without: plain text.
    pub tls: Option<Arc<Tls>>,
    /// Connections at once.
    pub max_connections: usize,
    /// How long a connection may do nothing.
    pub bounds: Bounds,
    /// Set when no new requests are taken.
    pub stopping: watch::Receiver<bool>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// Gives each connection to `speak` until the port stops; returns when the last one has ended.
pub async fn serve<S, F>(port: Port, speak: S)
where
    S: Fn(Stream, Box<Connection>) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let Port {
        listener,
        tls,
        max_connections,
        bounds,
        mut stopping,
    } = port;
    let places = Arc::new(Semaphore::new(max_connections));
    let crowded = Arc::<AtomicBool>::default();
    // Closed when the last connection has dropped its end.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    loop {
        let place = tokio::select! {
            place = take(&places, &crowded) => place,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        // The semaphore is never closed.
        let Some(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Idle connections hold the descriptors that are missing.
                crowded.store(true, Ordering::Relaxed);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Boxed: each future that it is handed to keeps its place in what the connection takes for hours.
        let connection = Box::new(Connection {
            peer: peer.ip(),
            activity: Arc::new(Activity::new()),
            cut: Arc::default(),
            bounds,
            stopping: stopping.clone(),
            crowded: Arc::clone(&crowded),
        });
        let (speak, tls, alive) = (speak.clone(), tls.clone(), alive.clone());
        tokio::spawn(async move {
            if let Err(error) = begin(stream, peer, connection, tls, speak).await {
                tracing::debug!(%error, %peer, "a connection broke");
            }
            drop((place, alive));
        });
    }
    drop((listener, alive));
    ended.recv().await;
}

/// A free place. While there is none, connections that do nothing are asked to go.
async fn take(places: &Arc<Semaphore>, crowded: &AtomicBool) -> Option<OwnedSemaphorePermit> {
    let free = Arc::clone(places).try_acquire_owned();
    crowded.store(free.is_err(), Ordering::Relaxed);
    match free {
        Ok(place) => Some(place),
        Err(_) => Arc::clone(places).acquire_owned().await.ok(),
    }
}

async fn begin<S, F>(
    stream: TcpStream,
    peer: SocketAddr,
    connection: Box<Connection>,
    tls: Option<Arc<Tls>>,
    speak: S,
) -> io::Result<()>
where
    S: Fn(Stream, Box<Connection>) -> F,
    F: Future<Output = io::Result<()>>,
{
    stream.set_nodelay(true)?;
    let activity = Arc::clone(&connection.activity);
    let stream = match tls {
        None => Stream::plain(stream, activity),
        Some(tls) => {
            // Boxed: a connection keeps the place of its handshake for as long as it lasts, also without one.
            let handshake = Box::pin(timeout(HANDSHAKE, tls.acceptor().accept(stream)));
            let encrypted = handshake
                .await
                .map_err(|_| io::Error::other("no TLS handshake in time"))??;
            tracing::trace!(%peer, "TLS is agreed on");
            Stream::encrypted(encrypted, activity)
        }
    };
    speak(stream, connection).await
}
