//! JSON-RPC errors that the bridge makes itself, with the codes of the bridge whose configurations carry over.

use ramen_proto::code_name;
use serde_json::json;
use tonic::{Code, Status};

use super::message::{Fault, Id};

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INTERNAL: i32 = -32603;
const UNAUTHENTICATED: i32 = -32001;
const UNAVAILABLE: i32 = -32000;

fn error(id: &str, code: i32, message: &str, data: Option<&serde_json::Value>) -> Vec<u8> {
    let message = serde_json::Value::from(message);
    let data = data.map_or_else(String::new, |data| format!(",\"data\":{data}"));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into_bytes()
}

/// A gRPC status as the answer to a request.
pub(super) fn grpc(id: &Id, status: &Status) -> Vec<u8> {
    let code = match status.code() {
        Code::Unauthenticated => UNAUTHENTICATED,
        Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DeadlineExceeded => UNAVAILABLE,
        _ => INTERNAL,
    };
    let name = code_name(status.code());
    let data = json!({ "grpc": name });
    error(
        id.raw(),
        code,
        &format!("{name}: {}", status.message()),
        Some(&data),
    )
}

/// The answer to a line that is no message.
pub(super) fn fault(fault: &Fault) -> Vec<u8> {
    match fault {
        Fault::Parse(why) => error("null", PARSE_ERROR, &format!("parse error: {why}"), None),
        Fault::Invalid(why) => error(
            "null",
            INVALID_REQUEST,
            &format!("invalid request: {why}"),
            None,
        ),
    }
}

/// The answer to a message over the size cap.
pub(super) fn too_long(cap: usize) -> Vec<u8> {
    error(
        "null",
        INVALID_REQUEST,
        &format!("invalid request: a message may have at most {cap} bytes"),
        None,
    )
}

/// The answer to a request whose reply from the worker is no answer to it.
pub(super) fn bad_reply(id: &Id, why: &str) -> Vec<u8> {
    error(
        id.raw(),
        INTERNAL,
        &format!("the worker's answer cannot be passed on: {why}"),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::message::{Message, parse};

    #[test]
    fn statuses_map_to_the_codes_of_existing_bridges() {
        let Ok(Message::Request(request)) = parse(br#"{"id":"a\"b","method":"ping"}"#) else {
            panic!()
        };
        for (code, want) in [
            (Code::Unauthenticated, -32001),
            (Code::PermissionDenied, -32000),
            (Code::ResourceExhausted, -32000),
            (Code::OutOfRange, -32000),
            (Code::Unavailable, -32000),
            (Code::DeadlineExceeded, -32000),
            (Code::Internal, -32603),
            (Code::Unimplemented, -32603),
            (Code::Unknown, -32603),
        ] {
            let bytes = grpc(&request.id, &Status::new(code, "say \"why\""));
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["error"]["code"], want);
            assert_eq!(value["id"], "a\"b");
            assert_eq!(value["error"]["data"]["grpc"], code_name(code));
            assert_eq!(
                value["error"]["message"],
                format!("{}: say \"why\"", code_name(code))
            );
        }
    }
}
