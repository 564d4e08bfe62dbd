//! One HTTP/2 connection to a worker.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Status;

use crate::groups::WorkerAt;

/// Until a worker answers.
pub(super) const CONNECT: Duration = Duration::from_secs(3);
/// A worker that does not answer a ping is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// Bytes that may be on their way: a whole message on each stream, several on a connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const WINDOW: u32 = 8 * 1024 * 1024;
/// Streams on one connection; workers allow 128.
pub(super) const MAX_STREAMS: usize = 100;

/// A connection.
pub(super) struct Link {
    sender: SendRequest<tonic::body::Body>,
    origin: Uri,
    call: Uri,
    streams: AtomicUsize,
}

/// A stream of a connection, as tonic wants to see it.
pub(super) struct Wire {
    link: Arc<Link>,
    sender: SendRequest<tonic::body::Body>,
}

/// Why there was no answer.
#[derive(Debug)]
pub(super) enum WireError {
    /// The request never left.
    Unsent,
    /// The connection broke; whether the request arrived nobody knows.
    Lost(hyper::Error),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent => f.write_str("the connection to the worker takes no requests"),
            Self::Lost(error) => write!(f, "the connection to the worker was lost: {error}"),
        }
    }
}

impl std::error::Error for WireError {}

/// Whether the request behind this status never left the gateway.
pub(super) fn was_never_sent(status: &Status) -> bool {
    wire_error(status).is_some_and(|error| matches!(error, WireError::Unsent))
}

/// Whether the connection broke, as opposed to the worker saying something: what it says has no cause here.
pub(crate) fn was_lost(status: &Status) -> bool {
    status.source().is_some()
}

fn wire_error(status: &Status) -> Option<&WireError> {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        source = error.source();
    }
    None
}

/// HTTP/2 on a connection; it ends with the last sender, or with the connection.
async fn speak<S>(stream: S) -> Result<SendRequest<tonic::body::Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a worker ended");
        }
    });
    Ok(sender)
}

impl Link {
    /// Connects.
    pub(super) async fn connect(at: &WorkerAt) -> Result<Self, String> {
        let address = at.address.as_str();
        let connect = async {
            let stream = TcpStream::connect(address)
                .await
                .map_err(|error| error.to_string())?;
            stream
                .set_nodelay(true)
                .map_err(|error| error.to_string())?;
            match &at.tls {
                None => speak(stream).await,
                Some(tls) => speak(tls.handshake(address, stream).await?).await,
            }
        };
        let sender = tokio::time::timeout(CONNECT, connect)
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned()))
            .map_err(|error| format!("{address}: {error}"))?;
        let scheme = if at.tls.is_some() { "https" } else { "http" };
        let origin =
            Uri::try_from(format!("{scheme}://{address}")).map_err(|error| error.to_string())?;
        let call = Uri::try_from(format!("{scheme}://{address}/ramen.v1.Mcp/Call"))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            sender,
            origin,
            call,
            streams: AtomicUsize::new(0),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Where the one unary call goes.
    pub(super) fn call_uri(&self) -> Uri {
        self.call.clone()
    }

    /// One more stream, and where it goes.
    pub(super) fn wire(self: Arc<Self>) -> (Wire, Uri) {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let (sender, origin) = (self.sender.clone(), self.origin.clone());
        (Wire { link: self, sender }, origin)
    }
}

impl Wire {
    /// Sends one request. The stream counts until this is dropped.
    pub(super) async fn send(
        &mut self,
        request: http::Request<tonic::body::Body>,
    ) -> Result<http::Response<Incoming>, WireError> {
        self.sender.ready().await.map_err(|_| WireError::Unsent)?;
        let answer = self.sender.try_send_request(request).await;
        answer.map_err(|mut error| match error.take_message() {
            Some(_) => WireError::Unsent,
            None => WireError::Lost(error.into_error()),
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.link.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl tower::Service<http::Request<tonic::body::Body>> for Wire {
    type Response = http::Response<Incoming>;
    type Error = WireError;
    type Future = BoxFuture<'static, Result<Self::Response, WireError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        self.sender.poll_ready(cx).map_err(|_| WireError::Unsent)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let answer = self.sender.try_send_request(request);
        async move {
            answer
                .await
                .map_err(|mut error| match error.take_message() {
                    Some(_) => WireError::Unsent,
                    None => WireError::Lost(error.into_error()),
                })
        }
        .boxed()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
