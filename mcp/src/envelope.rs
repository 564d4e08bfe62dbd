//! One JSON-RPC 2.0 message: bytes in, [`Message`] or [`Reject`] out.
//!
//! Verdicts shared by every door of Ramen:
//!
//! - A byte order mark, bad UTF-8, broken syntax, text after the message, more than [`MAX_DEPTH`] levels,
//!   a lone surrogate, a number that no double holds: `-32700` with `id` null.
//! - A batch, a scalar, an `id` that is neither string nor integer within ±(2^53 - 1), a member of the
//!   envelope or of `params` given twice: `-32600`. An id is echoed when there is exactly one usable one.
//! - `params` or `_meta` of the wrong shape: `-32602`.

mod members;
mod scan;

use std::borrow::Cow;

use bytes::Bytes;

use crate::error::McpError;
use crate::id::RequestId;
use crate::meta::RequestMeta;

pub use members::text;
pub(crate) use members::{Members, members, pairs};

/// How deep arrays and objects may nest, the outermost object included.
pub const MAX_DEPTH: usize = 127;

/// A message that is well formed.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants a response.
    Request(Request<'a>),
    /// Wants none.
    Notification(Notification<'a>),
    /// Answers a request of ours.
    Response(Response<'a>),
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Cow<'a, str>,
    /// Its parameters.
    pub params: Params<'a>,
}

/// A notification.
#[derive(Debug)]
pub struct Notification<'a> {
    /// Its method.
    pub method: Cow<'a, str>,
    /// Its parameters.
    pub params: Params<'a>,
}

/// A response.
#[derive(Debug)]
pub struct Response<'a> {
    /// Which request it answers; `None` when the peer could not tell.
    pub id: Option<RequestId>,
    /// The text of `result`, or of `error`.
    pub outcome: Result<&'a str, &'a str>,
}

/// A message that cannot be taken, and what to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The id of the request, when it has a usable one.
    pub id: Option<RequestId>,
    /// What is wrong.
    pub error: McpError,
    /// Whether it is a notification, which is never answered.
    pub notification: bool,
}

impl Reject {
    /// The answer: `id` null where the request's is unknown, nothing for a notification.
    pub fn answer(&self) -> Option<Bytes> {
        match &self.id {
            Some(id) => Some(self.error.body(id)),
            None if self.notification => None,
            None => Some(self.error.body_without_id()),
        }
    }

    fn anonymous(error: McpError) -> Self {
        Self {
            id: None,
            error,
            notification: false,
        }
    }
}

/// The members of `params` that some method reads, each as JSON text, found in one pass.
#[derive(Debug)]
pub struct Params<'a> {
    body: &'a Bytes,
    text: Option<&'a str>,
    meta: RequestMeta<'a>,
    fields: Members<'a, FIELDS>,
}

const FIELDS: usize = 15;
const NAMES: [&str; FIELDS] = [
    "_meta",
    "name",
    "arguments",
    "uri",
    "cursor",
    "protocolVersion",
    "level",
    "ref",
    "argument",
    "context",
    "notifications",
    "requestId",
    "taskId",
    "inputResponses",
    "requestState",
];

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident = $index:literal;)*) => {
        impl<'a> Params<'a> {
            $($(#[$doc])* pub fn $name(&self) -> Option<&'a str> { self.fields.get($index) })*
        }
    };
}

fields! {
    /// JSON text of `name`.
    name = 1;
    /// JSON text of `arguments`.
    arguments = 2;
    /// JSON text of `uri`.
    uri = 3;
    /// JSON text of `cursor`.
    cursor = 4;
    /// JSON text of `protocolVersion`.
    protocol_version = 5;
    /// JSON text of `level`.
    level = 6;
    /// JSON text of `ref`.
    reference = 7;
    /// JSON text of `argument`.
    argument = 8;
    /// JSON text of `context`.
    context = 9;
    /// JSON text of `notifications`.
    notifications = 10;
    /// JSON text of `requestId`.
    request_id = 11;
    /// JSON text of `taskId`.
    task_id = 12;
}

impl<'a> Params<'a> {
    fn read(body: &'a Bytes, text: Option<&'a str>) -> Result<Self, McpError> {
        let text = text.filter(|text| *text != "null");
        let fields = match text {
            None => Members::default(),
            Some(text) if text.starts_with('{') => {
                members(text, &NAMES).map_err(|_| McpError::parse("params is not JSON"))?
            }
            Some(_) => return Err(McpError::invalid_params("params must be an object")),
        };
        if let Some(index) = fields.repeated() {
            let message = format!("params has `{}` twice", NAMES[index]);
            return Err(McpError::invalid_request(message));
        }
        let meta = RequestMeta::read(body, fields.get(0))?;
        Ok(Self {
            body,
            text,
            meta,
            fields,
        })
    }

    /// JSON text of the whole object, when there is one.
    pub fn as_json(&self) -> Option<&'a str> {
        self.text
    }

    /// What `_meta` says.
    pub fn meta(&self) -> &RequestMeta<'a> {
        &self.meta
    }

    /// A part of the message as shared bytes, without a copy. `part` comes from this message.
    pub fn share(&self, part: &'a str) -> Bytes {
        self.body.slice_ref(part.as_bytes())
    }
}

const ENVELOPE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const JSONRPC: usize = 0;
const ID: usize = 1;
const METHOD: usize = 2;
const PARAMS: usize = 3;
const RESULT: usize = 4;
const ERROR: usize = 5;

/// Reads one message.
pub fn parse(body: &Bytes) -> Result<Message<'_>, Reject> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Reject::anonymous(McpError::parse("the message is not UTF-8")))?;
    let envelope = scan::check(text)
        .and_then(|()| object(text))
        .map_err(Reject::anonymous)?;

    let id = match envelope.get(ID) {
        _ if envelope.has_repeated(ID) => {
            return Err(Reject::anonymous(McpError::invalid_request(
                "the message has `id` twice",
            )));
        }
        None => None,
        Some("null") if envelope.get(METHOD).is_none() => None,
        Some(token) => match RequestId::from_token(body.slice_ref(token.as_bytes())) {
            Some(id) => Some(id),
            None => return Err(Reject::anonymous(McpError::invalid_request(BAD_ID))),
        },
    };
    let refuse = |message: Cow<'static, str>| Reject {
        id: id.clone(),
        error: McpError::invalid_request(message),
        notification: false,
    };
    if let Some(index) = envelope.repeated() {
        return Err(refuse(
            format!("the message has `{}` twice", ENVELOPE[index]).into(),
        ));
    }
    if envelope.get(JSONRPC).and_then(members::text).as_deref() != Some("2.0") {
        return Err(refuse("`jsonrpc` must be \"2.0\"".into()));
    }
    let Some(name) = envelope.get(METHOD) else {
        return match (envelope.get(RESULT), envelope.get(ERROR)) {
            (Some(result), None) => Ok(Message::Response(Response {
                id,
                outcome: Ok(result),
            })),
            (None, Some(error)) => Ok(Message::Response(Response {
                id,
                outcome: Err(error),
            })),
            _ => Err(refuse("the message has no `method`".into())),
        };
    };
    let Some(method) = members::text(name) else {
        return Err(refuse("`method` must be a string".into()));
    };
    match (Params::read(body, envelope.get(PARAMS)), id) {
        (Ok(params), Some(id)) => Ok(Message::Request(Request { id, method, params })),
        (Ok(params), None) => Ok(Message::Notification(Notification { method, params })),
        (Err(error), id) => Err(Reject {
            notification: id.is_none(),
            id,
            error,
        }),
    }
}

const BAD_ID: &str = "`id` must be a string or an integer within ±9007199254740991";

/// The members of the outermost object.
fn object(text: &str) -> Result<Members<'_, 6>, McpError> {
    match text
        .trim_start_matches([' ', '\t', '\r', '\n'])
        .as_bytes()
        .first()
    {
        Some(b'{') => members(text, &ENVELOPE).map_err(|error| {
            McpError::parse(format!(
                "the message is not JSON (line {}, column {})",
                error.line(),
                error.column()
            ))
        }),
        None => Err(McpError::parse("the message is empty")),
        Some(first) => {
            let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            Err(match (json, first) {
                (false, _) => McpError::parse("the message is not JSON"),
                (true, b'[') => McpError::invalid_request("batches are not supported"),
                (true, _) => McpError::invalid_request("the message must be an object"),
            })
        }
    }
}

#[cfg(test)]
mod tests;
