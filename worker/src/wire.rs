//! gRPC for the one unary call that must be fast: message framing, deadlines, and the bodies of
//! answers. Everything else goes through tonic.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use prost::Message;
use ramen_listener::until_written;
use ramen_proto::v1::JsonRpc;
use tonic::Status;

use crate::gate::Permit;
use crate::names::MAX_MESSAGE;

/// What protobuf may add to a body of [`MAX_MESSAGE`] bytes.
const ENVELOPE: usize = 64;
/// Flag and length before a message.
const PREFIX: usize = 5;

/// Refuses what is larger than [`MAX_MESSAGE`].
pub(crate) fn too_large(what: &str, size: usize) -> Status {
    Status::resource_exhausted(format!(
        "{what} has {size} bytes; at most {MAX_MESSAGE} are allowed"
    ))
}

/// `grpc-timeout`; one that cannot be read counts as none.
pub(crate) fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

/// Reads the one message of a unary call. A length over the limit is refused before any of it is
/// kept.
pub(crate) async fn read_unary<B>(mut body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut wanted = None;
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| Status::cancelled(format!("broken request: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest = BytesMut::from(std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
        let held: &[u8] = if rest.is_empty() { &first } else { &rest };
        if wanted.is_none() {
            wanted = length(held)?;
        }
        if wanted.is_some_and(|wanted| held.len() > wanted + PREFIX) {
            return Err(Status::internal(
                "a unary request has more than one message",
            ));
        }
    }
    let message = if rest.is_empty() {
        first
    } else {
        rest.freeze()
    };
    match wanted {
        Some(wanted) if message.len() == wanted + PREFIX => decode(message.slice(PREFIX..)),
        _ => Err(Status::internal("the request ends before its message does")),
    }
}

fn length(held: &[u8]) -> Result<Option<usize>, Status> {
    let Some(&[flag, a, b, c, d]) = held.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(Status::unimplemented("compressed messages are not taken"));
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > MAX_MESSAGE + ENVELOPE {
        return Err(too_large("the message", length));
    }
    Ok(Some(length))
}

fn decode(message: Bytes) -> Result<Bytes, Status> {
    let body = JsonRpc::decode(message)
        .map_err(|_| Status::internal("the request is not a ramen.v1.JsonRpc"))?
        .body;
    if body.len() > MAX_MESSAGE {
        return Err(too_large("the message", body.len()));
    }
    Ok(body)
}

/// The framed `JsonRpc` with this body.
fn encode(body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + 6 + body.len());
    out.put_slice(&[0; PREFIX]);
    if !body.is_empty() {
        out.put_u8(0x0a); // field 1, bytes
        prost::encoding::encode_varint(body.len() as u64, &mut out);
        out.put_slice(body);
    }
    let length = u32::try_from(out.len() - PREFIX).unwrap_or(u32::MAX);
    if let Some(field) = out.get_mut(1..PREFIX) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    out.freeze()
}

/// Any body that we answer with.
#[derive(Default)]
pub(crate) enum Body {
    /// A status in the headers is all there is.
    #[default]
    Empty,
    /// One message and `grpc-status: 0`.
    Unary {
        /// The framed message, until it was sent.
        message: Option<Bytes>,
        /// Whether the trailers were sent.
        done: bool,
    },
    /// What tonic answers.
    Tonic(tonic::body::Body),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Unary { message, done } => Poll::Ready(match message.take() {
                Some(message) => Some(Ok(Frame::data(message))),
                None if *done => None,
                None => {
                    *done = true;
                    let mut trailers = HeaderMap::with_capacity(1);
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    Some(Ok(Frame::trailers(trailers)))
                }
            }),
            Self::Tonic(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Unary { done, .. } => *done,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Unary { message, .. } => {
                SizeHint::with_exact(message.as_ref().map_or(0, |message| message.len() as u64))
            }
            Self::Tonic(body) => body.size_hint(),
        }
    }
}

/// A large answer counts as a call in flight until it was written.
pub(crate) type SlowReader = ramen_listener::SlowReader<Option<Permit>>;

/// The answer of a unary call.
pub(crate) fn respond(outcome: Result<Bytes, Status>, guard: Option<SlowReader>) -> Response<Body> {
    match outcome {
        Ok(body) if body.len() > MAX_MESSAGE => too_large("the response", body.len()).into_http(),
        Ok(body) => {
            let mut response = Response::new(Body::Unary {
                message: Some(match guard {
                    Some(guard) => until_written(encode(&body), guard),
                    None => encode(&body),
                }),
                done: false,
            });
            let grpc = HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(header::CONTENT_TYPE, grpc);
            response
        }
        Err(status) => status.into_http(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    fn framed(body: &[u8]) -> Bytes {
        encode(body)
    }

    async fn read_in_pieces(bytes: &[u8], size: usize) -> Result<Bytes, Status> {
        let pieces: Vec<_> = bytes
            .chunks(size)
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        read_unary(StreamBody::new(futures::stream::iter(pieces))).await
    }

    #[tokio::test]
    async fn a_message_is_the_same_whole_and_in_pieces() {
        let body = b"{\"jsonrpc\":\"2.0\"}".as_slice();
        for size in [1, 4, 5, 6, 100] {
            assert_eq!(
                read_in_pieces(&framed(body), size).await.unwrap(),
                body,
                "{size}"
            );
        }
        assert_eq!(
            read_unary(Full::new(framed(b""))).await.unwrap(),
            b"".as_slice()
        );
    }

    #[tokio::test]
    async fn res13_the_limit_is_exact() {
        let most = vec![b' '; MAX_MESSAGE];
        assert_eq!(
            read_unary(Full::new(framed(&most))).await.unwrap().len(),
            MAX_MESSAGE
        );
        let over = vec![b' '; MAX_MESSAGE + 1];
        let refused = read_unary(Full::new(framed(&over))).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(
            refused.message().contains("4194305"),
            "{}",
            refused.message()
        );
    }

    #[tokio::test]
    async fn an_announced_length_over_the_limit_is_refused_without_its_bytes() {
        let announced = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1]);
        let refused = read_unary(Full::new(announced)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn broken_requests_are_refused() {
        let twice = [framed(b"{}"), framed(b"{}")].concat();
        for (name, bytes) in [
            ("nothing", vec![]),
            ("half a prefix", vec![0, 0]),
            ("half a message", vec![0, 0, 0, 0, 9, 0x0a]),
            ("two messages", twice),
            ("compressed", vec![1, 0, 0, 0, 0]),
            ("not protobuf", vec![0, 0, 0, 0, 2, 0x0a, 0x7f]),
        ] {
            assert!(read_in_pieces(&bytes, 3).await.is_err(), "{name}");
        }
    }

    #[test]
    fn timeouts_are_read_by_unit_and_garbage_is_none() {
        for (text, wanted) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("9u", Some(Duration::from_micros(9))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("123456789S", None),
            ("1s", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(timeout_of(&headers), wanted, "{text}");
        }
    }
}
