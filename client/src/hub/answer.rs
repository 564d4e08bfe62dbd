//! Answers of the hub: results of other servers in the form of the era that the caller speaks.

use bytes::Bytes;
use indexmap::IndexMap;
use ramen_mcp::model::{Implementation, Json};
use ramen_mcp::names::meta_key;
use ramen_mcp::{Era, McpError, RequestId, code};
use serde_json::{Value, json};

use super::{Audience, Hub};
use crate::error::ClientError;

/// A result, member by member, each as it was written.
pub type Members = IndexMap<String, Json>;

/// The bytes of a response.
pub(super) fn response(id: &RequestId, result: &Members) -> Bytes {
    let result = serde_json::to_string(result).unwrap_or_else(|_| "{}".to_owned());
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        id.raw()
    ))
}

/// Makes a result fit the era: a modern one says its type and who answered, a legacy one says neither.
pub(super) fn fit(mut result: Members, era: Era, info: &Implementation) -> Members {
    result.shift_remove("resultType");
    if !era.is_modern() {
        result.shift_remove("ttlMs");
        result.shift_remove("cacheScope");
        return result;
    }
    result.insert("resultType".to_owned(), Json::from(&json!("complete")));
    let meta: Option<Members> = result.get("_meta").and_then(|meta| meta.to().ok());
    let mut meta = meta.unwrap_or_default();
    meta.insert(meta_key::SERVER_INFO.to_owned(), Json::from(&json!(info)));
    if let Ok(meta) = Json::of(&meta) {
        result.insert("_meta".to_owned(), meta);
    }
    result
}

/// Says how long a modern caller may keep a result: not at all, since it may change with any server.
pub(super) fn uncached(result: &mut Members) {
    result.insert("ttlMs".to_owned(), Json::from(&json!(0)));
    result.insert("cacheScope".to_owned(), Json::from(&json!("private")));
}

/// An object with one member.
pub(super) fn single(name: &str, value: &impl serde::Serialize) -> Members {
    let value = Json::of(value).unwrap_or_else(|_| Json::from(&Value::Null));
    IndexMap::from([(name.to_owned(), value)])
}

impl Hub {
    /// Why a server could not answer, as an error of the protocol. What the server itself says passes through.
    pub(super) fn failure(&self, server: &str, error: ClientError) -> McpError {
        match (error, self.inner.audience) {
            (ClientError::Rpc(error), _) => error,
            (error, Audience::Owner) => {
                let message = format!("{server}: {}", error.chain());
                let code = match error {
                    ClientError::SignIn { .. } | ClientError::SignInFailed { .. } => {
                        code::BRIDGE_UNAUTHENTICATED
                    }
                    _ => code::BRIDGE_TRANSPORT,
                };
                McpError::new(code, message).with_data(&json!({ "server": server }))
            }
            (error, Audience::Callers) => {
                tracing::warn!(
                    server,
                    error = error.chain(),
                    "a request to a server failed"
                );
                let (reason, what) = reason(&error);
                McpError::internal(format!("the server `{server}` {what}"))
                    .with_data(&json!({ "upstream": server, "reason": reason }))
            }
        }
    }
}

/// A failure without what only the owner of a server should know: where it is, and what it is made of.
fn reason(error: &ClientError) -> (&'static str, &'static str) {
    match error {
        ClientError::Timeout { .. } => ("timeout", "did not answer in time"),
        ClientError::Busy { .. } => ("busy", "has too many requests to answer already"),
        ClientError::TooLarge { .. } => ("too_large", "answered more than may be passed on"),
        ClientError::Answer { .. } => (
            "broken_answer",
            "gave no answer that can be passed on; whether it did what was asked is not known",
        ),
        ClientError::InputRequired { .. } => (
            "input_required",
            "asks a person something, which cannot be passed on",
        ),
        ClientError::SignIn { .. } | ClientError::SignInFailed { .. } => {
            ("refused", "refuses the credentials that it is called with")
        }
        _ => ("unavailable", "is not available now"),
    }
}

/// The tool's definition under its name here. A legacy list shows an output schema only when it is one of an object.
pub(super) fn tool(definition: &Json, name: &str, era: Era) -> Option<Members> {
    let mut tool: Members = definition.to().ok()?;
    tool.insert("name".to_owned(), Json::from(&json!(name)));
    if !era.is_modern() {
        let object = |schema: &Json| {
            let schema: Option<Value> = schema.to().ok();
            schema.is_some_and(|schema| schema["type"] == "object")
        };
        if tool
            .get("outputSchema")
            .is_some_and(|schema| !object(schema))
        {
            tool.shift_remove("outputSchema");
        }
    }
    Some(tool)
}

/// A tool's result. Structured content of a legacy one is an object.
pub(super) fn tool_result(result: &Json, era: Era) -> Result<Members, ClientError> {
    let mut members: Members = result
        .to()
        .map_err(|error| ClientError::answer("tools/call", error.to_string()))?;
    if !era.is_modern()
        && let Some(structured) = members.get("structuredContent")
        && !structured.get().starts_with('{')
    {
        members.shift_remove("structuredContent");
    }
    Ok(members)
}
