//! The two ports that others reach, artifacts and hooks: HTTP/1 with bounds. Knows nothing of either.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ramen_listener::{Connection, Held, Port, Stream};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What an answer carries.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer.
pub(crate) type Answer = Response<Body>;

/// Bounds of a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections at once; further ones wait to be accepted.
    pub(crate) connections: usize,
    /// For the head of a request, and how long an idle connection is kept.
    pub(crate) head: Duration,
    /// For all that happens on one connection.
    pub(crate) connection: Duration,
    /// Bytes of a head.
    pub(crate) head_bytes: usize,
}

/// How long connections may go on when the process ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// While the other side takes nothing of an answer.
const UNREAD: Duration = Duration::from_secs(30);
/// For the other side to end a connection that is over.
const LINGER: Duration = Duration::from_secs(10);

/// Answers every request with `handler` until told to stop.
pub(crate) async fn serve<H, F>(
    listener: TcpListener,
    bounds: Bounds,
    stop: CancellationToken,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (end, stopping) = watch::channel(false);
    let port = Port {
        listener,
        tls: None,
        max_connections: bounds.connections,
        bounds: ramen_listener::Bounds {
            first_request: bounds.head,
            idle: bounds.head,
            max_age: None,
            unread: Some(UNREAD),
            linger: Some(LINGER),
        },
        stopping,
    };
    let serving = ramen_listener::serve(port, move |stream, connection| {
        speak(stream, connection, bounds, handler.clone())
    });
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        () = stop.cancelled() => {
            end.send_replace(true);
            let _ = tokio::time::timeout(LAST_ANSWERS, serving).await;
        }
    }
}

async fn speak<H, F>(
    stream: Stream,
    connection: Box<Connection>,
    bounds: Bounds,
    handler: H,
) -> io::Result<()>
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let requests = connection.requests();
    let service = service_fn(move |request| {
        let open = requests.open();
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await.map(|body| Held::new(body, open))) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(bounds.head_bytes)
        .serve_connection(TokioIo::new(stream), service);
    let driven = connection.drive(Box::pin(serving), http1::Connection::graceful_shutdown);
    let ended = tokio::time::timeout(bounds.connection, driven).await;
    ended.map_err(io::Error::other)?
}

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// More than the limit.
    TooLarge,
    /// It came too slowly.
    Slow,
    /// The connection broke.
    Broken,
}

impl BodyFault {
    /// The answer to it.
    pub(crate) fn answer(self) -> Answer {
        match self {
            Self::TooLarge => text(StatusCode::PAYLOAD_TOO_LARGE, "too large"),
            Self::Slow => text(StatusCode::REQUEST_TIMEOUT, "too slow"),
            Self::Broken => text(StatusCode::BAD_REQUEST, "the body broke off"),
        }
    }
}

/// The next piece of a body.
pub(crate) async fn piece(
    body: &mut Incoming,
    patience: Duration,
) -> Result<Option<Bytes>, BodyFault> {
    loop {
        match tokio::time::timeout(patience, body.frame()).await {
            Err(_) => return Err(BodyFault::Slow),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(BodyFault::Broken),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A whole body of at most `limit` bytes, within `time`.
pub(crate) async fn whole(
    mut body: Incoming,
    limit: usize,
    time: Duration,
) -> Result<Bytes, BodyFault> {
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyFault::TooLarge);
    }
    let read = async {
        let mut all = BytesMut::new();
        while let Some(piece) = piece(&mut body, time).await? {
            if all.len() + piece.len() > limit {
                return Err(BodyFault::TooLarge);
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    };
    match tokio::time::timeout(time, read).await {
        Ok(read) => read,
        Err(_) => Err(BodyFault::Slow),
    }
}

/// The only value of a header; `None` when it is absent, there twice, or not plain text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok().map(str::trim)
}

/// An answer of one line.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    let mut answer = Response::new(full(format!("{line}\n")));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut answer = Response::new(full(bytes));
            *answer.status_mut() = status;
            let kind = HeaderValue::from_static("application/json");
            answer.headers_mut().insert(header::CONTENT_TYPE, kind);
            answer
        }
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}

/// The same answer with the time after which to ask again.
pub(crate) fn later(mut answer: Answer, seconds: u16) -> Answer {
    answer
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// Bytes as a body.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    UnsyncBoxBody::new(Full::new(bytes.into()).map_err(|never| match never {}))
}
