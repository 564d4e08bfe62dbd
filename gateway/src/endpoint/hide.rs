//! What a caller may not use is not there for them: not in a list, and everywhere else as if nothing had that name.
//!
//! For a name that is kept from the caller a worker is asked for one that nothing can have. So the answer takes the same
//! way as that of a name that nobody has, and comes in the same cases; only the name in it is put back.

use std::borrow::Cow;

use bytes::Bytes;
use indexmap::IndexMap;
use ramen_group::Allowed;
use ramen_group::access::Item;
use ramen_mcp::names::method;
use ramen_mcp::{Era, McpError, Message, RequestId, envelope};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::names::MAX_MESSAGE;

/// No tool, prompt or URI is called so: names begin with a letter, and URIs with a scheme.
const NOBODY: &str = "-";
/// Pages of one list that are put together: more entries of ours do not fit into one answer.
pub(super) const MAX_PAGES: usize = 256;

/// What a request is about, as far as rules can be about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Tool(String),
    Resource(String),
    Prompt(String),
}

impl Target {
    fn item(&self) -> Item<'_> {
        match self {
            Self::Tool(name) => Item::Tool(name),
            Self::Resource(uri) => Item::Resource(uri),
            Self::Prompt(name) => Item::Prompt(name),
        }
    }

    /// Whether the caller may use it.
    pub(crate) fn is_in(&self, allowed: &Allowed) -> bool {
        allowed.allows(self.item())
    }

    /// The error of its kind for a name that nobody has.
    fn unknown(&self, name: &str, era: Era) -> McpError {
        match self {
            Self::Tool(_) => McpError::unknown_tool(name, era),
            Self::Resource(_) => McpError::unknown_resource(name, era),
            Self::Prompt(_) => McpError::unknown_prompt(name),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Resource(name) | Self::Prompt(name) => name,
        }
    }
}

#[derive(Deserialize)]
struct Reference<'r> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'r, str>,
    #[serde(borrow)]
    name: Option<&'r RawValue>,
    #[serde(borrow)]
    uri: Option<&'r RawValue>,
}

/// What a request is about, and the JSON text of its name.
pub(super) fn target<'r>(request: &envelope::Request<'r>) -> Option<(Target, &'r str)> {
    let params = &request.params;
    let (token, kind): (_, fn(String) -> Target) = match &*request.method {
        method::TOOLS_CALL => (params.name()?, Target::Tool),
        method::RESOURCES_READ => (params.uri()?, Target::Resource),
        method::PROMPTS_GET => (params.name()?, Target::Prompt),
        method::COMPLETE => {
            let reference: Reference<'r> = serde_json::from_str(params.reference()?).ok()?;
            match &*reference.kind {
                "ref/prompt" => (reference.name?.get(), Target::Prompt),
                "ref/resource" => (reference.uri?.get(), Target::Resource),
                _ => return None,
            }
        }
        _ => return None,
    };
    let name = envelope::text(token)?.into_owned();
    Some((kind(name), token))
}

/// The same request for a name that nobody has.
pub(super) fn for_nobody(body: &Bytes, token: &str) -> Bytes {
    let start = token.as_ptr() as usize - body.as_ptr() as usize;
    let mut other = Vec::with_capacity(body.len());
    other.extend_from_slice(&body[..start]);
    other.extend_from_slice(format!("\"{NOBODY}\"").as_bytes());
    other.extend_from_slice(&body[start + token.len()..]);
    other.into()
}

/// The error that answers that, with the name that was asked for. Whatever else is wrong with the request is told as it
/// is of a name that nobody has.
pub(super) fn put_back(target: &Target, era: Era, id: &RequestId, reply: Bytes) -> Bytes {
    let Ok(Message::Response(response)) = envelope::parse(&reply) else {
        return reply;
    };
    let error = response.outcome.err();
    let error = error.and_then(|error| serde_json::from_str::<McpError>(error).ok());
    if error == Some(target.unknown(NOBODY, era)) {
        target.unknown(target.name(), era).body(id)
    } else {
        reply
    }
}

/// A list that rules can shorten.
#[derive(Clone, Copy)]
pub(super) struct List {
    /// The member that holds the entries.
    member: &'static str,
    item: fn(&str) -> Item<'_>,
}

impl List {
    /// The list that this method answers.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (member, item): (_, fn(&str) -> Item<'_>) = match name {
            method::TOOLS_LIST => ("tools", |name| Item::Tool(name)),
            method::RESOURCES_LIST => ("resources", |uri| Item::Resource(uri)),
            method::TEMPLATES_LIST => ("resourceTemplates", |uri| Item::Resource(uri)),
            method::PROMPTS_LIST => ("prompts", |name| Item::Prompt(name)),
            _ => return None,
        };
        Some(Self { member, item })
    }
}

#[derive(Deserialize)]
struct Entry<'e> {
    #[serde(borrow)]
    name: Option<Cow<'e, str>>,
    #[serde(borrow)]
    uri: Option<Cow<'e, str>>,
    #[serde(rename = "uriTemplate", borrow)]
    template: Option<Cow<'e, str>>,
}

#[derive(Deserialize)]
struct Reply<'r> {
    #[serde(borrow)]
    result: IndexMap<Cow<'r, str>, &'r RawValue>,
}

/// Pages of a list, shortened to what the caller may use.
pub(super) struct Shortened {
    list: List,
    kept: Vec<Box<RawValue>>,
    /// Members of the first page besides the entries.
    rest: Vec<(String, Box<RawValue>)>,
    first: bool,
    bytes: usize,
}

/// What comes after a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The page that begins at this cursor (JSON text).
    Page(String),
    /// It was the last one.
    Nothing,
}

impl Shortened {
    pub(super) fn new(list: List) -> Self {
        Self {
            list,
            kept: Vec::new(),
            rest: Vec::new(),
            first: true,
            bytes: 0,
        }
    }

    /// Takes a page; what comes after it. `None`: it cannot be read, so nothing of it goes out.
    pub(super) fn take(&mut self, page: &[u8], allowed: &Allowed) -> Option<Next> {
        let reply: Reply<'_> = serde_json::from_slice(page).ok()?;
        let mut next = Next::Nothing;
        for (name, value) in reply.result {
            if name == self.list.member {
                let entries: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                for entry in entries {
                    let known: Entry<'_> = serde_json::from_str(entry.get()).ok()?;
                    let named = match self.list.member {
                        "resources" => known.uri,
                        "resourceTemplates" => known.template,
                        _ => known.name,
                    };
                    if allowed.allows((self.list.item)(&named?)) {
                        self.bytes += entry.get().len();
                        self.kept.push(entry.to_owned());
                    }
                }
            } else if name == "nextCursor" {
                let cursor = value.get();
                if cursor != "null" {
                    next = Next::Page(cursor.to_owned());
                }
            } else if self.first {
                self.rest.push((name.into_owned(), value.to_owned()));
            }
        }
        self.first = false;
        Some(next)
    }

    /// All of it as the answer to this request: one page, whose end names nothing that was left out.
    pub(super) fn finish(self, id: &RequestId) -> Option<Bytes> {
        if self.bytes > MAX_MESSAGE {
            return None;
        }
        let mut out = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"#, id.raw());
        out.extend(["\"", self.list.member, "\":"]);
        out.push_str(&serde_json::to_string(&self.kept).ok()?);
        for (name, value) in &self.rest {
            out.push(',');
            out.push_str(&serde_json::to_string(name).ok()?);
            out.push(':');
            out.push_str(value.get());
        }
        out.push_str("}}");
        Some(out.into())
    }
}

/// The request of a page, for the page that begins at this cursor (JSON text).
pub(super) fn at_cursor(request: &envelope::Request<'_>, cursor: &str) -> Option<Bytes> {
    let params = request.params.as_json().unwrap_or("{}");
    let mut params: IndexMap<String, Box<RawValue>> = serde_json::from_str(params).ok()?;
    params.insert(
        "cursor".to_owned(),
        RawValue::from_string(cursor.to_owned()).ok()?,
    );
    let params = serde_json::to_string(&params).ok()?;
    let method = serde_json::to_string(&request.method).ok()?;
    let id = request.id.raw();
    Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#).into())
}

#[cfg(test)]
mod tests;
