//! What the bridge must know about one message: its kind, its id, and how it has to travel.
//!
//! Everything else is forwarded byte for byte. Numbers are never parsed, so an id of any length keeps its digits.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A request id: the raw JSON token, and a key by which equal ids compare equal.
#[derive(Debug, Clone)]
pub(super) struct Id {
    raw: Box<RawValue>,
    key: String,
}

impl Id {
    /// Reads an id token: a string or a plain integer, else nothing.
    fn parse(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let key = if text.starts_with('"') {
            // `"\u0031"` and `"1"` are one id. A lone surrogate has no string: its token is its key.
            let decoded = serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned());
            format!("s{decoded}")
        } else {
            let digits = text.strip_prefix('-').unwrap_or(text);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            format!("n{text}")
        };
        Some(Self {
            raw: raw.to_owned(),
            key,
        })
    }

    /// The JSON token exactly as it came.
    pub(super) fn raw(&self) -> &str {
        self.raw.get()
    }

    /// Equal for equal ids; a number and a string of the same digits differ.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

/// What a message is.
#[derive(Debug)]
pub(super) enum Message {
    /// A request, to be answered exactly once.
    Request(Request),
    /// A notification, never answered.
    Notification {
        /// The method.
        method: String,
        /// The id that `notifications/cancelled` names.
        cancels: Option<Id>,
        /// Whether the message carries modern metadata.
        modern: bool,
    },
    /// An answer to something; the bridge never asks, so it is dropped.
    Response(Option<Id>),
}

/// A request and how it has to travel.
#[derive(Debug)]
pub(super) struct Request {
    /// The id to answer with.
    pub(super) id: Id,
    /// The method.
    pub(super) method: String,
    /// The request expects notifications before its answer (a progress token, a log level or a listen).
    pub(super) streams: bool,
    /// The request carries modern metadata.
    pub(super) modern: bool,
}

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not JSON, not UTF-8, or begun by a byte order mark: `-32700`.
    Parse(String),
    /// JSON, but no JSON-RPC 2.0 message: `-32600`.
    Invalid(&'static str),
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow, default)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow, default)]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
}

/// Keeps `null` apart from an absent member.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads an object of interest, or its default when it is something else: the worker judges the content.
fn lenient<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.filter(|raw| raw.get().starts_with('{'))
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

/// Looks at one message.
pub(super) fn parse(line: &[u8]) -> Result<Message, Fault> {
    if line.starts_with(b"\xEF\xBB\xBF") {
        return Err(Fault::Parse(
            "a message must not begin with a byte order mark".to_owned(),
        ));
    }
    let whole: &RawValue = serde_json::from_slice(line).map_err(|e| Fault::Parse(e.to_string()))?;
    match whole.get().as_bytes().first() {
        Some(b'{') => {}
        Some(b'[') => {
            return Err(Fault::Invalid(
                "batches are not supported: send one message a line",
            ));
        }
        _ => return Err(Fault::Invalid("a message must be a JSON object")),
    }
    let head: Head<'_> = serde_json::from_str(whole.get())
        .map_err(|_| Fault::Invalid("a member of the envelope is given twice"))?;
    let params: Params<'_> = lenient(head.params);
    let meta: Meta<'_> = lenient(params.meta);
    let modern = meta.version.is_some();
    let Some(method) = head.method else {
        return match head.id {
            Some(id) => Ok(Message::Response(Id::parse(id))),
            None => Err(Fault::Invalid("a message needs a method or an id")),
        };
    };
    let Ok(method) = serde_json::from_str::<Cow<'_, str>>(method.get()) else {
        return Err(Fault::Invalid("method must be a string"));
    };
    let method = method.into_owned();
    match head.id {
        None => Ok(Message::Notification {
            cancels: (method == "notifications/cancelled")
                .then(|| params.request_id.and_then(Id::parse))
                .flatten(),
            method,
            modern,
        }),
        Some(id) => {
            let id =
                Id::parse(id).ok_or(Fault::Invalid("id must be a string or a plain integer"))?;
            let streams = meta.progress_token.is_some()
                || meta.log_level.is_some()
                || method == "subscriptions/listen";
            Ok(Message::Request(Request {
                id,
                method,
                streams,
                modern,
            }))
        }
    }
}

/// The raw `params` of a message that [`parse`] accepted; `{}` when it has none.
pub(super) fn params(line: &[u8]) -> Box<RawValue> {
    serde_json::from_slice::<Head<'_>>(line)
        .ok()
        .and_then(|head| head.params.map(ToOwned::to_owned))
        .unwrap_or_else(|| RawValue::from_string("{}".to_owned()).expect("{} is JSON"))
}

/// A message on one line: the line breaks that JSON allows between tokens become spaces.
pub(super) fn one_line(body: &[u8]) -> Vec<u8> {
    let mut line = body.to_vec();
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line
}

#[cfg(test)]
mod tests;
