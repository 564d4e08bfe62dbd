//! What goes back over HTTP. Every answer of the gateway is made here, so every answer has
//! `Cache-Control: no-store`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use ramen_mcp::McpError;
use serde_json::json;
use tokio::sync::mpsc;

use crate::callers::Place;

/// Bytes that are handed out at once: the connection asks for more when it has room.
const PIECE: usize = 64 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub struct Body {
    content: Content,
    /// The place of its request, which is not free before the client has read the answer.
    place: Option<Place>,
}

#[derive(Debug)]
enum Content {
    /// All of it, once.
    Whole(Option<Bytes>),
    /// Pieces as they come. Dropping the body closes the channel, which tells the sender.
    Pieces(mpsc::Receiver<Bytes>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut self.get_mut().content {
            Content::Whole(bytes) => Poll::Ready(match bytes {
                Some(rest) if rest.len() > PIECE => Some(rest.split_to(PIECE)),
                _ => bytes.take(),
            }),
            Content::Pieces(pieces) => pieces.poll_recv(cx),
        };
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Content::Pieces(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Content::Pieces(_) => SizeHint::default(),
        }
    }
}

/// The same answer, which keeps the place of its request until it was read.
pub fn holding(mut answer: Answer, place: Place) -> Answer {
    answer.body_mut().place = Some(place);
    answer
}

/// An answer.
pub type Answer = Response<Body>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

fn build(status: StatusCode, kind: Option<HeaderValue>, content: Content) -> Answer {
    let mut answer = Response::new(Body {
        content,
        place: None,
    });
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, kind);
    }
    answer
}

/// JSON.
pub fn json(status: StatusCode, body: Bytes) -> Answer {
    build(status, Some(JSON), Content::Whole(Some(body)))
}

/// Plain text.
pub fn text(status: StatusCode, body: &'static str) -> Answer {
    let body = Bytes::from_static(body.as_bytes());
    build(status, Some(TEXT), Content::Whole(Some(body)))
}

/// Nothing but a status.
pub fn empty(status: StatusCode) -> Answer {
    build(status, None, Content::Whole(None))
}

/// A stream of events.
pub fn events(pieces: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = build(StatusCode::OK, Some(EVENTS), Content::Pieces(pieces));
    // Proxies that collect answers would hold events back.
    let name = HeaderName::from_static("x-accel-buffering");
    answer
        .headers_mut()
        .insert(name, HeaderValue::from_static("no"));
    answer
}

/// A JSON-RPC error as the whole answer to no request in particular.
pub fn rpc_error(status: StatusCode, error: &McpError) -> Answer {
    json(status, error.body_without_id())
}

/// The error envelope of the JSON API: `{"error":{"code","message","ref"?}}`.
pub fn envelope(code: &str, message: &str, reference: Option<&str>) -> Bytes {
    let mut error = json!({ "code": code, "message": message });
    if let Some(reference) = reference {
        error["ref"] = reference.into();
    }
    json!({ "error": error }).to_string().into()
}

/// Why a request is turned away before anything of it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many headers, or too large ones.
    Headers,
    /// A request that two readers may read in two ways.
    Ambiguous,
    /// No credential, several, one of another form, or one that is not valid.
    Credential,
    /// Whether the credential is valid cannot be told now.
    Unverified,
    /// The key is valid, and its bearer may use nothing here.
    Forbidden,
    /// The token is valid, and its bearer may use nothing here: another one may say more of them.
    Insufficient,
    /// The address may not call.
    Address,
    /// The `Host` is none of ours.
    Host,
    /// The `Origin` may not call.
    Origin,
    /// Not POST.
    Method,
    /// Larger than a message may be.
    Size,
    /// Compressed.
    Encoding,
    /// Too many requests in a second.
    Rate,
    /// Too many requests at once.
    InFlight,
    /// The body did not arrive in time.
    Slow,
    /// Nothing is at this path.
    Path,
}

impl Refusal {
    /// Every one.
    pub(crate) const ALL: [Self; 16] = [
        Self::Headers,
        Self::Ambiguous,
        Self::Credential,
        Self::Unverified,
        Self::Forbidden,
        Self::Insufficient,
        Self::Address,
        Self::Host,
        Self::Origin,
        Self::Method,
        Self::Size,
        Self::Encoding,
        Self::Rate,
        Self::InFlight,
        Self::Slow,
        Self::Path,
    ];

    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Headers => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
                "the request has too many or too large headers",
            ),
            Self::Ambiguous => (
                StatusCode::BAD_REQUEST,
                "bad_request",
                "the request can be read in two ways",
            ),
            Self::Credential => (
                StatusCode::UNAUTHORIZED,
                "unauthenticated",
                "no valid key: send `Authorization: Bearer rmk_…`",
            ),
            Self::Unverified => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "credentials cannot be verified now; try again later",
            ),
            Self::Forbidden | Self::Insufficient => (
                StatusCode::FORBIDDEN,
                "forbidden",
                "no access rule lets this caller in here",
            ),
            Self::Address => (
                StatusCode::FORBIDDEN,
                "address_denied",
                "this address may not call",
            ),
            Self::Host => (
                StatusCode::FORBIDDEN,
                "host_denied",
                "this Host is not served; name it in RAMEN_ALLOWED_HOSTS",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "origin_denied",
                "this Origin may not call; name it in RAMEN_ALLOWED_ORIGINS",
            ),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "only POST is answered here",
            ),
            Self::Size => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "a message may have at most 4194304 bytes",
            ),
            Self::Encoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_encoding",
                "compressed bodies are not read",
            ),
            Self::Rate => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "too many requests; try again later",
            ),
            Self::InFlight => (
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_in_flight",
                "too many requests at once; try again later",
            ),
            Self::Slow => (
                StatusCode::REQUEST_TIMEOUT,
                "request_timeout",
                "the request did not arrive in time",
            ),
            Self::Path => (StatusCode::NOT_FOUND, "not_found", "nothing is here"),
        }
    }

    /// The status that it answers.
    pub fn status(self) -> StatusCode {
        self.parts().0
    }

    /// The word that programs read.
    pub fn code(self) -> &'static str {
        self.parts().1
    }

    /// The whole answer.
    pub fn answer(self) -> Answer {
        let (status, code, message) = self.parts();
        let mut answer = json(status, envelope(code, message, None));
        answer.extensions_mut().insert(self);
        let headers = answer.headers_mut();
        match self {
            Self::Credential => {
                let value = HeaderValue::from_static("Bearer realm=\"ramen\"");
                headers.insert(WWW_AUTHENTICATE, value);
            }
            Self::Method => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            Self::Unverified | Self::Rate | Self::InFlight => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // What is left of the body is not read: the connection cannot be used again.
            Self::Ambiguous | Self::Size | Self::Slow | Self::Headers => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        answer
    }
}
