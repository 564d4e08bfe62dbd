//! `ramen.v1.Mcp/Call` framed by hand: it is every call, and tonic's client takes two buffers of 8 KiB and puts the address
//! together anew for each. What is rare (a session) goes through tonic.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use prost::Message as _;
use ramen_proto::v1::JsonRpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::link::{Link, WireError};
use crate::names::MAX_MESSAGE;

/// Flag and length before a message.
const PREFIX: usize = 5;
/// The largest answer with its frame.
const MAX_ANSWER: usize = MAX_MESSAGE + 1024;

/// A message as it goes out.
pub(super) fn frame(body: Bytes) -> Bytes {
    let message = JsonRpc { body };
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX + length);
    out.put_u8(0);
    // A message of ours is far below 4 GiB.
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The buffer has room for it.
    let _ = message.encode(&mut out);
    out.freeze()
}

/// Sends a framed message and returns what the worker answers.
pub(super) async fn call(
    link: Arc<Link>,
    framed: Bytes,
    metadata: MetadataMap,
) -> Result<Bytes, Status> {
    let uri = link.call_uri();
    let (mut wire, _) = link.wire();
    let mut request = Request::new(tonic::body::Body::new(Full::new(framed)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = metadata.into_headers();
    let headers = request.headers_mut();
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let (head, body) = wire.send(request).await.map_err(broken)?.into_parts();
    if head.status != StatusCode::OK {
        return Err(Status::new(
            code_of(head.status),
            format!("the worker answered {}", head.status),
        ));
    }
    // An answer without a message has its status here.
    verdict(&head.headers).unwrap_or(Ok(()))?;
    let (message, trailers) = read(body).await?;
    match verdict(&trailers) {
        Some(Ok(())) => decode(message),
        Some(Err(status)) => Err(status),
        None => Err(Status::internal("the worker's answer has no status")),
    }
}

fn broken(error: WireError) -> Status {
    Status::from_error(Box::new(error))
}

fn verdict(headers: &HeaderMap) -> Option<Result<(), Status>> {
    let status = Status::from_header_map(headers)?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    })
}

async fn read(mut body: Incoming) -> Result<(Bytes, HeaderMap), Status> {
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame
            .map_err(|error| broken(WireError::Lost(error)))?
            .into_data()
        {
            Ok(data) => {
                if first.len() + all.len() + data.len() > MAX_ANSWER {
                    return Err(Status::out_of_range("the worker's answer is too large"));
                }
                if first.is_empty() && all.is_empty() {
                    first = data;
                } else {
                    all.extend_from_slice(&std::mem::take(&mut first));
                    all.extend_from_slice(&data);
                }
            }
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    let message = if all.is_empty() { first } else { all.freeze() };
    Ok((message, trailers))
}

/// The one message of an answer.
fn decode(mut framed: Bytes) -> Result<Bytes, Status> {
    let broken = || Status::internal("the worker's answer is no message");
    if framed.len() < PREFIX {
        return Err(broken());
    }
    let head = framed.split_to(PREFIX);
    let length = head[1..]
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    if head[0] != 0 || framed.len() != length {
        return Err(broken());
    }
    JsonRpc::decode(framed)
        .map(|message| message.body)
        .map_err(|_| broken())
}

/// What stands between may answer without gRPC.
fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_its_frame() {
        for body in [
            Bytes::new(),
            Bytes::from_static(b"{}"),
            vec![b'x'; 70_000].into(),
        ] {
            assert_eq!(decode(frame(body.clone())).unwrap(), body);
        }
    }

    #[test]
    fn what_is_no_message_is_told() {
        let whole = frame(Bytes::from_static(b"{}"));
        let mut compressed = whole.to_vec();
        compressed[0] = 1;
        for bad in [
            Bytes::new(),
            whole.slice(..4),
            whole.slice(..whole.len() - 1),
            [&whole[..], b"x"].concat().into(),
            compressed.into(),
            Bytes::from_static(&[0, 0, 0, 0, 2, 0x0a, 9]),
        ] {
            assert_eq!(decode(bad).unwrap_err().code(), Code::Internal);
        }
    }

    #[test]
    fn a_proxy_that_answers_in_the_worker_s_place_is_understood() {
        assert_eq!(code_of(StatusCode::BAD_GATEWAY), Code::Unavailable);
        assert_eq!(code_of(StatusCode::IM_A_TEAPOT), Code::Unknown);
    }
}
