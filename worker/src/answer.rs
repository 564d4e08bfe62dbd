//! Between a call of MCP and a host's reply: the same for `serve` and for the golden calls of
//! `deploy`, so that what a test saw is what a caller gets.

use std::borrow::Cow;

use bytes::Bytes;
use ramen_group::{SecretFault, SecretTable};
use ramen_mcp::{Outcome, ResourceRead, Server, ToolCall};
use ramen_redact::Redactor;

use crate::hosts::{Reply, ReplyStatus};

/// The arguments as the host gets them: checked before, secret references resolved here.
pub(crate) fn arguments(call: &ToolCall, secrets: &SecretTable) -> Result<Bytes, SecretFault> {
    // Checked arguments are a part of a message that was UTF-8, or were written by us.
    let Ok(text) = std::str::from_utf8(&call.arguments) else {
        return Ok(call.arguments.clone());
    };
    Ok(match secrets.substitute(Cow::Borrowed(text))? {
        Cow::Borrowed(_) => call.arguments.clone(),
        Cow::Owned(text) => Bytes::from(text),
    })
}

/// The response of a tool call whose secret reference names nothing.
pub(crate) fn secret_reply(server: &Server, call: &ToolCall, fault: &SecretFault) -> Bytes {
    server.tool_reply(call, Outcome::Error(&format!("SecretError: {fault}")))
}

/// The response of a tool call.
pub(crate) fn tool_reply(
    server: &Server,
    call: &ToolCall,
    reply: &Reply,
    redactor: &Redactor,
) -> Bytes {
    with_outcome(reply, redactor, |outcome| server.tool_reply(call, outcome))
}

/// The response of a resource read.
pub(crate) fn resource_reply(
    server: &Server,
    read: &ResourceRead,
    reply: &Reply,
    redactor: &Redactor,
) -> Bytes {
    with_outcome(reply, redactor, |outcome| {
        server.resource_reply(read, outcome)
    })
}

fn with_outcome(
    reply: &Reply,
    redactor: &Redactor,
    answer: impl FnOnce(Outcome<'_>) -> Bytes,
) -> Bytes {
    let payload = &reply.payload;
    match reply.status {
        ReplyStatus::Text => answer(Outcome::Text(&String::from_utf8_lossy(payload))),
        ReplyStatus::Json => answer(Outcome::Json(payload)),
        ReplyStatus::Content => answer(Outcome::Content(payload)),
        ReplyStatus::Blob => answer(Outcome::Blob(payload)),
        ReplyStatus::Error => {
            let (text, _) = ramen_frame::error_parts(payload);
            let text = String::from_utf8_lossy(text);
            answer(Outcome::Error(&redactor.redact(&text)))
        }
    }
}
