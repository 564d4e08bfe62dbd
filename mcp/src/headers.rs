//! Header copies of body fields, as modern HTTP clients send them.

mod params;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::envelope::{Request, text};
use crate::error::McpError;
use crate::names::method;

pub use params::{ParamCopies, ParamHeader, param_headers};

const OPENING: &str = "=?base64?";
const CLOSING: &str = "?=";

/// The headers that repeat fields of the body. `None`: not sent. A header sent twice is to be
/// refused by the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderCopies {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Option<String>,
    /// `Mcp-Method`.
    pub method: Option<String>,
    /// `Mcp-Name`.
    pub name: Option<String>,
}

impl HeaderCopies {
    /// Holds them against the body of a modern request.
    pub fn check(&self, request: &Request<'_>) -> Result<(), McpError> {
        let version = request.params.meta().protocol_version.as_deref();
        same(
            "MCP-Protocol-Version",
            self.protocol_version.as_deref(),
            version,
        )?;
        same("Mcp-Method", self.method.as_deref(), Some(&request.method))?;
        let named = match &*request.method {
            method::TOOLS_CALL | method::PROMPTS_GET => request.params.name(),
            method::RESOURCES_READ => request.params.uri(),
            name if name.starts_with("tasks/") => request.params.task_id(),
            _ => return Ok(()),
        };
        let header = match self.name.as_deref().map(decode) {
            Some(None) => {
                return Err(McpError::header_mismatch(
                    "Mcp-Name is not the base64 it says",
                ));
            }
            Some(Some(name)) => Some(name),
            None => None,
        };
        same(
            "Mcp-Name",
            header.as_deref(),
            named.and_then(text).as_deref(),
        )
    }
}

fn same(name: &'static str, header: Option<&str>, body: Option<&str>) -> Result<(), McpError> {
    match (header, body) {
        (Some(header), Some(body)) if header == body => Ok(()),
        // The body lacks what it must have: the method's own check says so better.
        (None, None) => Ok(()),
        (None, Some(_)) => Err(McpError::header_mismatch(format!("{name} is missing"))),
        (Some(_), _) => Err(McpError::header_mismatch(format!(
            "{name} differs from the body"
        ))),
    }
}

/// The value of a header: literal, or `=?base64?…?=`. `None` when that does not decode.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let value = value.trim_matches([' ', '\t']);
    let Some(coded) = value
        .strip_prefix(OPENING)
        .and_then(|rest| rest.strip_suffix(CLOSING))
    else {
        return Some(Cow::Borrowed(value));
    };
    String::from_utf8(STANDARD.decode(coded).ok()?)
        .ok()
        .map(Cow::Owned)
}

/// A text as the value of a header.
pub fn encode(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim_matches(' ') == text
        && !text.starts_with(OPENING);
    if plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{OPENING}{}{CLOSING}", STANDARD.encode(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_come_back_as_they_were() {
        for text in [
            "",
            "calc",
            " calc",
            "größe",
            "=?base64?x?=",
            "a b",
            "tab\t",
            "ünï",
        ] {
            let sent = encode(text);
            assert!(
                sent.bytes().all(|byte| matches!(byte, 0x20..=0x7e)),
                "{sent}"
            );
            assert_eq!(decode(&sent).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_sentinel_with_bad_base64_is_refused_and_a_broken_one_is_literal() {
        assert_eq!(decode("=?base64?%%?="), None);
        assert_eq!(decode("=?base64?/w==?="), None);
        assert_eq!(decode("=?base64??=").as_deref(), Some(""));
        assert_eq!(
            decode("=?BASE64?YQ==?=").as_deref(),
            Some("=?BASE64?YQ==?=")
        );
        assert_eq!(decode("=?base64?YQ==").as_deref(), Some("=?base64?YQ=="));
    }
}
