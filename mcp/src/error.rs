//! Errors as JSON-RPC carries them.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::code;
use crate::era::Era;
use crate::id::RequestId;
use crate::model::Json;
use crate::version::Version;

/// An error of the protocol: what goes into the `error` member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpError {
    /// One of [`crate::code`], or what a peer sent.
    pub code: i32,
    /// One sentence for people.
    pub message: Cow<'static, str>,
    /// Details for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

impl McpError {
    /// An error without details.
    pub fn new(code: i32, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with details.
    #[must_use]
    pub fn with_data(mut self, data: &serde_json::Value) -> Self {
        self.data = Some(Json::from(data));
        self
    }

    /// The bytes are no JSON.
    pub fn parse(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::PARSE_ERROR, message)
    }

    /// JSON, but no request.
    pub fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// Bad parameters.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Something failed on our side. The message must not quote a secret.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INTERNAL_ERROR, message)
    }

    /// A method that this server does not have.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("method not found: {}", quoted(method)),
        )
    }

    /// A tool that this server does not have.
    pub fn unknown_tool(name: &str, era: Era) -> Self {
        let code = if era.is_modern() {
            code::INVALID_PARAMS
        } else {
            code::METHOD_NOT_FOUND
        };
        Self::new(code, format!("unknown tool {}", quoted(name)))
    }

    /// A resource that this server does not have.
    pub fn unknown_resource(uri: &str, era: Era) -> Self {
        let code = if era.is_modern() {
            code::INVALID_PARAMS
        } else {
            code::RESOURCE_NOT_FOUND
        };
        Self::new(code, "resource not found").with_data(&json!({ "uri": clip_uri(uri) }))
    }

    /// A prompt that this server does not have.
    pub fn unknown_prompt(name: &str) -> Self {
        Self::invalid_params(format!("unknown prompt {}", quoted(name)))
    }

    /// A header copy that does not equal its body field.
    pub fn header_mismatch(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::HEADER_MISMATCH, message)
    }

    /// A capability that the client had to declare; `required` is a `ClientCapabilities` object.
    pub fn missing_capability(required: &serde_json::Value) -> Self {
        Self::new(
            code::MISSING_CLIENT_CAPABILITY,
            "the request needs a client capability",
        )
        .with_data(&json!({ "requiredCapabilities": required }))
    }

    /// A revision that we do not serve.
    pub fn unsupported_version(requested: &str) -> Self {
        let supported: Vec<_> = Version::modern().map(Version::as_str).collect();
        Self::new(
            code::UNSUPPORTED_PROTOCOL_VERSION,
            "unsupported protocol version",
        )
        .with_data(&json!({ "supported": supported, "requested": clip(requested) }))
    }

    /// The body of the answer to the request with this id.
    pub fn body(&self, id: &RequestId) -> Bytes {
        self.render(id.raw())
    }

    /// The body of an answer that cannot name a request: `id` is null.
    pub fn body_without_id(&self) -> Bytes {
        self.render("null")
    }

    /// The body that refuses a notification over HTTP: it has no `id`, for there is no request.
    #[expect(
        clippy::missing_panics_doc,
        reason = "strings and raw JSON can be written"
    )]
    pub fn body_of_notification(&self) -> Bytes {
        let error = serde_json::to_string(self).expect("an error holds strings and raw JSON only");
        Bytes::from(format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#))
    }

    fn render(&self, id: &str) -> Bytes {
        let mut out = Vec::with_capacity(96 + id.len() + self.message.len());
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(br#","error":"#);
        serde_json::to_writer(&mut out, self).expect("an error holds strings and raw JSON only");
        out.push(b'}');
        Bytes::from(out)
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for McpError {}

/// How much of a name that a caller sent comes back in a message.
const ECHO_NAME: usize = 128;

/// How much of a URI that a caller sent comes back in `data`.
const ECHO_URI: usize = 4096;

/// The first characters of a caller's name.
pub(crate) fn clip(text: &str) -> &str {
    first_chars(text, ECHO_NAME)
}

/// The first characters of a caller's URI, which is all of it but for abuse.
pub(crate) fn clip_uri(text: &str) -> &str {
    first_chars(text, ECHO_URI)
}

fn first_chars(text: &str, count: usize) -> &str {
    match text.char_indices().nth(count) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// A caller's name in a message: bounded, control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", clip(text).escape_debug())
}
