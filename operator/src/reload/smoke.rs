//! What a worker offers after a reload is what the deploy said.

use std::collections::BTreeSet;

use ramen_redact::Secret;
use serde_json::{Value, json};
use tonic::Code;

use super::Expected;
use super::worker::Worker;

/// Pages of a list that are read.
const MAX_PAGES: usize = 64;

/// Asks for `tools/list` as a caller would, and compares the names. A worker whose ranges do not admit
/// the operator cannot be asked: the numbers have to do.
pub(super) async fn tools(
    worker: &Worker,
    key: &Secret,
    expected: &Expected,
) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut cursor: Option<String> = None;
    for page in 0..MAX_PAGES {
        let request = json!({
            "jsonrpc": "2.0", "id": page, "method": "tools/list",
            "params": cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor})),
        });
        let answer = match worker.call(request.to_string().into_bytes(), key).await {
            Ok(answer) => answer,
            Err(status)
                if matches!(
                    status.code(),
                    Code::PermissionDenied | Code::Unauthenticated | Code::ResourceExhausted
                ) =>
            {
                tracing::debug!(code = %status.code(), "the tools cannot be asked for");
                return Ok(());
            }
            Err(status) => {
                let (code, message) = (status.code(), status.message());
                return Err(format!("tools/list fails: {code}: {message}"));
            }
        };
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("tools/list answers no JSON: {error}"))?;
        let Some(tools) = answer.pointer("/result/tools").and_then(Value::as_array) else {
            let error = answer.pointer("/error/message").and_then(Value::as_str);
            let error: String = error
                .unwrap_or("no list of tools")
                .chars()
                .take(300)
                .collect();
            return Err(format!("tools/list fails: {error}"));
        };
        let of_page = tools.iter().filter_map(|tool| tool.get("name")?.as_str());
        names.extend(of_page.map(str::to_owned));
        cursor = match answer.pointer("/result/nextCursor").and_then(Value::as_str) {
            Some(next) => Some(next.to_owned()),
            None => return expected.names(&names),
        };
    }
    Err(format!("tools/list has more than {MAX_PAGES} pages"))
}
