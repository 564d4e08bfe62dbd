//! What a worker answered, as HTTP sees it.

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use ramen_mcp::{McpError, Message, RequestId, envelope};
use ramen_proto::{code_name, is_not_begun};
use serde::Deserialize;
use serde_json::json;
use tonic::{Code, Status};

use super::Ask;
use crate::answer::{self, Answer};
use crate::metrics::Outcome;
use crate::pool::was_lost;
use crate::reference::Reference;

/// `None`: a result. `Some`: the code of an error. An answer to another request is none of ours.
pub(super) fn code_of(reply: &bytes::Bytes, id: &RequestId) -> Result<Option<i32>, &'static str> {
    // What our workers write; anything else is read properly.
    let rest = reply
        .strip_prefix(br#"{"jsonrpc":"2.0","id":"#.as_slice())
        .and_then(|rest| rest.strip_prefix(id.raw().as_bytes()));
    if rest.is_some_and(|rest| rest.starts_with(br#","result":{"#)) {
        return Ok(None);
    }
    match envelope::parse(reply) {
        Ok(Message::Response(response)) => {
            let error = response.outcome.err();
            match response.id {
                Some(answered) if answered.key() == id.key() => {}
                // The worker could not read the request, so it could not name it either.
                None if error.is_some() => {}
                _ => return Err("it answers another request"),
            }
            error
                .map(|error| serde_json::from_str::<McpError>(error).map(|error| error.code))
                .transpose()
                .map_err(|_| "its error is none of JSON-RPC")
        }
        _ => Err("it is no response"),
    }
}

/// Whether a result says that the tool failed.
pub(super) fn is_error(reply: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Reply {
        result: Ending,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ending {
        is_error: bool,
    }
    // Most say nothing like it, and are not read.
    let text = std::str::from_utf8(reply).unwrap_or_default();
    text.contains(r#""isError":true"#)
        && serde_json::from_str::<Reply>(text).is_ok_and(|reply| reply.result.is_error)
}

/// A worker that answered what cannot be passed on.
pub(super) fn unusable(ask: &Ask, why: &'static str) -> Answer {
    answer::json(StatusCode::BAD_GATEWAY, unusable_error(why).body(&ask.id))
}

/// The same in a stream.
pub(super) fn unusable_error(why: &'static str) -> McpError {
    let reference = Reference::new();
    tracing::error!(why, %reference, "a worker's answer cannot be passed on");
    McpError::internal("the worker's answer cannot be passed on")
        .with_data(&json!({ "ref": reference.as_str() }))
}

/// A call that failed on the way, as a JSON-RPC error with the name of the status in `data.grpc`.
pub(super) fn error_of(status: &Status) -> McpError {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            let reference = Reference::new();
            tracing::error!(code = code_name(status.code()), error = status.message(), %reference, "a worker refuses the gateway");
            McpError::internal("the workers of this group refuse the gateway")
                .with_data(&json!({ "ref": reference.as_str() }))
        }
        _ if was_lost(status) => McpError::internal(
            "the connection to the worker was lost; whether the call ran is not known",
        )
        .with_data(&json!({ "grpc": "UNAVAILABLE" })),
        code => McpError::internal(status.message().to_owned())
            .with_data(&json!({ "grpc": code_name(code) })),
    }
}

/// What such a call counts as.
pub(super) fn outcome_of(status: &Status) -> Outcome {
    // A worker that lost the process of a call cannot say either whether it ran.
    let lost = was_lost(status) || status.code() == Code::Unavailable && !is_not_begun(status);
    Outcome::of_status(status.code(), lost)
}

/// The whole answer of such a call.
pub(super) fn failed(ask: &Ask, status: &Status) -> Answer {
    let body = error_of(status).body(&ask.id);
    outcome_of(status).mark(match status.code() {
        // Trying again is safe.
        Code::Unavailable if is_not_begun(status) => {
            let mut answer = answer::json(StatusCode::SERVICE_UNAVAILABLE, body);
            answer
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Code::Unauthenticated | Code::PermissionDenied => {
            answer::json(StatusCode::BAD_GATEWAY, body)
        }
        _ => answer::json(StatusCode::OK, body),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn code(reply: &'static str, id: &str) -> Result<Option<i32>, &'static str> {
        let id = RequestId::from_token(Bytes::copy_from_slice(id.as_bytes())).unwrap();
        code_of(&Bytes::from_static(reply.as_bytes()), &id)
    }

    #[test]
    fn an_error_of_a_tool_is_told_from_a_result_that_speaks_of_one() {
        for (reply, wanted) in [
            (r#"{"result":{"content":[],"isError":true}}"#, true),
            (r#"{"result":{"isError":true,"content":[]}}"#, true),
            (r#"{"result":{"content":[],"isError":false}}"#, false),
            (r#"{"result":{"content":[]}}"#, false),
            (
                r#"{"result":{"structuredContent":{"isError":true},"isError":false}}"#,
                false,
            ),
            (
                r#"{"result":{"content":[{"text":"\"isError\":true"}],"isError":false}}"#,
                false,
            ),
        ] {
            assert_eq!(is_error(reply.as_bytes()), wanted, "{reply}");
        }
    }

    #[test]
    fn results_and_errors_of_this_request_pass_and_others_do_not() {
        assert_eq!(
            code(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "1"),
            Ok(None)
        );
        assert_eq!(
            code(
                r#"{ "result": {}, "id": "a", "jsonrpc": "2.0" }"#,
                r#""\u0061""#
            ),
            Ok(None)
        );
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#;
        assert_eq!(code(error, "1"), Ok(Some(-32601)));
        let anonymous = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#;
        assert_eq!(code(anonymous, "1"), Ok(Some(-32700)));
        for (reply, id) in [
            (r#"{"jsonrpc":"2.0","id":11,"result":{}}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "1"),
            (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, "1"),
            ("", "1"),
            ("[]", "1"),
        ] {
            assert!(code(reply, id).is_err(), "{reply}");
        }
    }
}
