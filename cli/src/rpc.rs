//! JSON-RPC requests of `call` and `ls` over one connection.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::upstream::{Upstream, code_name};

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

/// Asks one request; `params` is JSON text, so numbers keep their digits.
pub(crate) async fn request(
    upstream: &Upstream,
    method: &str,
    params: &str,
) -> Result<Box<RawValue>, Failure> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let reply = upstream.call(body.into()).await.map_err(|status| {
        let (code, message) = (code_name(status.code()), status.message());
        let address = upstream.address();
        Failure::transport(if message.contains(address) {
            format!("{code}: {message}")
        } else {
            format!("{code}: {message} ({address})")
        })
    })?;
    let answer: Answer<'_> = serde_json::from_slice(&reply)
        .map_err(|error| Failure::error(format!("the worker's answer is no JSON-RPC: {error}")))?;
    match answer {
        Answer {
            error: Some(error), ..
        } => {
            let message = format!("{} (code {})", error.message, error.code);
            Err(match error.code {
                // What was asked for is not there, or not so: as when it is seen before it is sent.
                METHOD_NOT_FOUND | INVALID_PARAMS => Failure::usage(message),
                _ => Failure::error(message),
            })
        }
        Answer {
            result: Some(result),
            ..
        } => Ok(result.to_owned()),
        Answer { .. } => Err(Failure::error(
            "the worker's answer has neither result nor error",
        )),
    }
}

/// All items of `tools/list` and its like, page by page.
pub(crate) async fn list(upstream: &Upstream, kind: &str) -> Result<Vec<Value>, Failure> {
    let method = format!("{kind}/list");
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    let mut seen = std::collections::HashSet::new();
    loop {
        let params = cursor
            .as_ref()
            .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let page = request(upstream, &method, &params.to_string()).await?;
        let mut page: Value = serde_json::from_str(page.get()).map_err(|error| {
            Failure::error(format!("the answer of {method} cannot be read: {error}"))
        })?;
        if let Some(Value::Array(more)) = page.get_mut(kind).map(Value::take) {
            items.extend(more);
        }
        cursor = match page.get("nextCursor").and_then(Value::as_str) {
            None => return Ok(items),
            Some(next) => Some(next.to_owned()),
        };
        if !seen.insert(cursor.clone()) {
            return Err(Failure::error(format!(
                "{method} gives the same cursor twice"
            )));
        }
    }
}
