//! `tools/call` and `resources/read`: on the way in, and on the way out.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use super::Server;
use super::answer::{Answer, put_json};
use super::prompts::bad_argument;
use super::step::{ResourceRead, Step, ToolCall};
use crate::envelope::{Request, text};
use crate::era::{Connection, Era};
use crate::error::{McpError, clip_uri};
use crate::id::{ProgressToken, RequestId};
use crate::meta::LogLevel;
use crate::model::{ContentBlock, Json, ResourceContents};
use crate::outcome::Outcome;

/// What a tool declares of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Nothing: results are text only.
    None,
    /// An object: structured in both eras.
    Object,
    /// Anything else: structured in the modern era, which allows any value.
    Value,
}

impl Output {
    pub(super) fn of(schema: Option<&Json>) -> Self {
        #[derive(serde::Deserialize)]
        struct Root {
            #[serde(rename = "type")]
            kind: Option<serde_json::Value>,
        }
        match schema.map(Json::to::<Root>) {
            None => Self::None,
            Some(Ok(Root { kind: Some(kind) })) if kind == "object" => Self::Object,
            Some(_) => Self::Value,
        }
    }

    /// Whether results of this era carry the value. They are held to it in both.
    fn structured(self, era: Era) -> bool {
        match self {
            Self::None => false,
            Self::Object => true,
            Self::Value => era.is_modern(),
        }
    }
}

impl Server {
    pub(super) fn call_tool(
        &self,
        request: &Request<'_>,
        era: Era,
        connection: &Connection,
    ) -> Result<Step, McpError> {
        let params = &request.params;
        let name = params
            .name()
            .and_then(text)
            .ok_or_else(|| McpError::invalid_params("`name` must be a string"))?;
        let Some(&tool) = self.tool_index.get(&*name) else {
            return Err(McpError::unknown_tool(&name, era));
        };
        let sent = match params.arguments().filter(|json| *json != "null") {
            None => "{}",
            Some(json) if json.starts_with('{') => json,
            Some(_) => return Err(McpError::invalid_params("`arguments` must be an object")),
        };
        if let (Era::Modern, Some(copies)) = (era, connection.params()) {
            copies.check(&self.params[tool], sent)?;
        }
        let arguments = match self.catalog.check_arguments(tool, sent) {
            Ok(Some(rewritten)) => rewritten,
            Ok(None) => match params.arguments() {
                Some(json) if json == sent => params.share(json),
                _ => Bytes::from_static(b"{}"),
            },
            Err(fault) if era.is_modern() => {
                let text = fault.to_string();
                return Ok(Step::Reply(self.tool_error(&request.id, era, &text)));
            }
            Err(fault) => return Err(bad_argument(&fault)),
        };
        let (progress, log_level) = streams(request, era, connection);
        Ok(Step::CallTool(ToolCall {
            id: request.id.clone(),
            era,
            tool,
            arguments,
            progress,
            log_level,
            trace: params.meta().trace.clone(),
        }))
    }

    pub(super) fn read_resource(
        &self,
        request: &Request<'_>,
        era: Era,
        connection: &Connection,
    ) -> Result<Step, McpError> {
        let params = &request.params;
        let uri = params
            .uri()
            .and_then(text)
            .ok_or_else(|| McpError::invalid_params("`uri` must be a string"))?;
        let Some(target) = self.catalog.resolve_resource(&uri) else {
            return Err(McpError::unknown_resource(&uri, era));
        };
        let (progress, log_level) = streams(request, era, connection);
        Ok(Step::ReadResource(ResourceRead {
            id: request.id.clone(),
            era,
            uri: uri.into_owned(),
            target,
            progress,
            log_level,
            trace: params.meta().trace.clone(),
        }))
    }

    /// The response of a finished tool call.
    pub fn tool_reply(&self, call: &ToolCall, outcome: Outcome<'_>) -> Bytes {
        let output = self.outputs.get(call.tool).copied().unwrap_or(Output::None);
        let declared = output != Output::None;
        let value = match outcome {
            Outcome::Error(message) => return self.tool_error(&call.id, call.era, message),
            Outcome::Text(_) | Outcome::Json(_) if !declared => None,
            Outcome::Text(text) => match as_value(output, text) {
                Ok(value) => Some(value),
                Err(message) => return self.mismatch(call, &message),
            },
            Outcome::Json(bytes) => match raw_json(bytes) {
                Some(value) => Some(value),
                None => return call.error(&unusable()),
            },
            Outcome::Content(_) | Outcome::Blob(_) if declared => {
                return self.mismatch(call, "the tool built content instead of a value");
            }
            Outcome::Content(_) | Outcome::Blob(_) => None,
        };
        if let Some(value) = &value {
            if output == Output::Object && !value.starts_with('{') {
                return self.mismatch(call, "it is not an object");
            }
            if let Err(message) = self.catalog.check_output(call.tool, value) {
                return self.mismatch(call, &message);
            }
        }
        let mut answer = self.answer(&call.id, room(outcome) + self.modern_tail.len());
        match outcome {
            Outcome::Text(text) | Outcome::Error(text) => text_content(&mut answer, text),
            Outcome::Json(bytes) => match raw_json(bytes) {
                Some(text) => text_content(&mut answer, &text),
                None => return call.error(&unusable()),
            },
            Outcome::Content(bytes) => match content_array(bytes) {
                Some(blocks) => {
                    answer.member("content", |out| out.extend_from_slice(blocks.as_bytes()));
                }
                None => return call.error(&unusable()),
            },
            Outcome::Blob(bytes) => {
                let name = &self.catalog.tools()[call.tool].name;
                let resource = ResourceContents {
                    uri: format!("ramen://tool/{name}/result"),
                    mime_type: Some("application/octet-stream".to_owned()),
                    blob: Some(STANDARD.encode(bytes)),
                    ..ResourceContents::default()
                };
                let block = ContentBlock::Resource {
                    resource,
                    annotations: None,
                    meta: None,
                };
                answer.json("content", &[block]);
            }
        }
        if let Some(value) = value.filter(|_| output.structured(call.era)) {
            answer.member("structuredContent", |out| {
                out.extend_from_slice(value.as_bytes());
            });
        }
        answer.raw_members(r#""isError":false"#);
        answer.finish(call.era)
    }

    fn mismatch(&self, call: &ToolCall, message: &str) -> Bytes {
        let text = format!("OutputMismatch: the result is not what `output` declares: {message}");
        self.tool_error(&call.id, call.era, &text)
    }

    fn tool_error(&self, id: &RequestId, era: Era, message: &str) -> Bytes {
        let mut answer = self.answer(id, message.len() + 64 + self.modern_tail.len());
        text_content(&mut answer, message);
        answer.raw_members(r#""isError":true"#);
        answer.finish(era)
    }

    /// The response of a finished read.
    pub fn resource_reply(&self, read: &ResourceRead, outcome: Outcome<'_>) -> Bytes {
        let base = |mime: Option<&str>| ResourceContents {
            uri: read.uri.clone(),
            mime_type: read
                .target
                .mime_type
                .clone()
                .or_else(|| mime.map(str::to_owned)),
            ..ResourceContents::default()
        };
        let contents = match outcome {
            Outcome::Text(text) => {
                vec![ResourceContents {
                    text: Some(text.to_owned()),
                    ..base(None)
                }]
            }
            Outcome::Blob(bytes) => {
                vec![ResourceContents {
                    blob: Some(STANDARD.encode(bytes)),
                    ..base(None)
                }]
            }
            Outcome::Json(bytes) => match raw_json(bytes) {
                Some(json) => {
                    let text = Some(json.into_owned());
                    vec![ResourceContents {
                        text,
                        ..base(Some("application/json"))
                    }]
                }
                None => return read.error(&unusable()),
            },
            Outcome::Content(bytes) => match serde_json::from_slice::<Vec<ContentBlock>>(bytes) {
                Ok(blocks) => blocks
                    .into_iter()
                    .map(|block| contents_of(block, &base(None)))
                    .collect(),
                Err(_) => return read.error(&unusable()),
            },
            Outcome::Error(message) => {
                let error = McpError::internal(message.to_owned());
                return read.error(&error.with_data(&json!({ "uri": clip_uri(&read.uri) })));
            }
        };
        let mut answer = self.answer(&read.id, room(outcome) + self.modern_tail.len());
        answer.json("contents", &contents);
        if read.era.is_modern() {
            // User code made it just now; nobody knows how long it holds.
            answer.raw_members(r#""ttlMs":0,"cacheScope":"private""#);
        }
        answer.finish(read.era)
    }
}

/// Progress token and log level that the transport can serve.
fn streams(
    request: &Request<'_>,
    era: Era,
    connection: &Connection,
) -> (Option<ProgressToken>, Option<LogLevel>) {
    if !connection.streams() {
        return (None, None);
    }
    let meta = request.params.meta();
    let level = if era.is_modern() {
        meta.log_level
    } else {
        Some(connection.log_level())
    };
    (meta.progress.clone(), level)
}

fn text_content(answer: &mut Answer<'_>, text: &str) {
    answer.member("content", |out| {
        out.extend_from_slice(br#"[{"type":"text","text":"#);
        put_json(out, text);
        out.extend_from_slice(b"}]");
    });
}

/// A returned string as a structured value: itself, or the object it spells when one is declared.
fn as_value(output: Output, text: &str) -> Result<Cow<'_, str>, String> {
    if output == Output::Object {
        return match raw_json(text.as_bytes()).filter(|json| json.starts_with('{')) {
            Some(json) => Ok(json),
            None => Err("a string is not an object".to_owned()),
        };
    }
    let mut json = Vec::with_capacity(text.len() + 2);
    put_json(&mut json, text);
    String::from_utf8(json)
        .map(Into::into)
        .map_err(|_| "the string is not UTF-8".to_owned())
}

/// The text of one JSON value, checked, on one line.
fn raw_json(bytes: &[u8]) -> Option<Cow<'_, str>> {
    serde_json::from_slice::<&RawValue>(bytes)
        .ok()
        .map(|raw| one_line(raw.get()))
}

/// The text of a JSON array of objects, checked, on one line.
fn content_array(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let blocks: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    blocks
        .iter()
        .all(|block| block.get().starts_with('{'))
        .then(|| one_line(text))
}

/// In JSON a line break is white space between tokens and nothing else, so it can go.
pub(crate) fn one_line(json: &str) -> Cow<'_, str> {
    if json.bytes().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Cow::Owned(json.replace(['\n', '\r'], ""));
    }
    Cow::Borrowed(json)
}

fn unusable() -> McpError {
    McpError::internal("the code returned something that cannot be sent")
}

/// About how long the result gets.
fn room(outcome: Outcome<'_>) -> usize {
    match outcome {
        Outcome::Text(text) | Outcome::Error(text) => text.len() + text.len() / 8 + 96,
        Outcome::Json(bytes) => 2 * bytes.len() + bytes.len() / 8 + 128,
        Outcome::Content(bytes) => bytes.len() + 64,
        Outcome::Blob(bytes) => bytes.len() / 3 * 4 + 192,
    }
}

/// A content block as contents of a resource.
fn contents_of(block: ContentBlock, base: &ResourceContents) -> ResourceContents {
    match block {
        ContentBlock::Text { text, .. } => ResourceContents {
            text: Some(text),
            ..base.clone()
        },
        ContentBlock::Image {
            data, mime_type, ..
        }
        | ContentBlock::Audio {
            data, mime_type, ..
        } => ResourceContents {
            blob: Some(data),
            mime_type: Some(mime_type),
            ..base.clone()
        },
        ContentBlock::Resource { resource, .. } => resource,
        ContentBlock::ResourceLink(link) => ResourceContents {
            uri: base.uri.clone(),
            mime_type: Some("text/uri-list".to_owned()),
            text: Some(link.uri),
            ..ResourceContents::default()
        },
    }
}
