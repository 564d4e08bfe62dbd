//! What a message asks of the transport.

use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::ResourceTarget;
use crate::era::Era;
use crate::error::McpError;
use crate::id::{IdKey, ProgressToken, RequestId};
use crate::meta::{LogLevel, TraceContext};
use crate::names::method;

/// What a message asks of the transport.
#[derive(Debug)]
pub enum Step {
    /// Send these bytes back.
    Reply(Bytes),
    /// Nothing to send (a notification; over `Mcp/Call` an empty body).
    Silent,
    /// Run a tool, then [`Server::tool_reply`](crate::Server::tool_reply). Its arguments are valid.
    CallTool(ToolCall),
    /// Read a resource, then [`Server::resource_reply`](crate::Server::resource_reply).
    ReadResource(ResourceRead),
    /// Give up on the request with this id, if it is in flight; it gets no response.
    Cancel(IdKey),
    /// Keep a subscription. Send [`Listen::acknowledged`] first.
    Listen(Listen),
}

/// A tool to run.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Whose answer it is.
    pub id: RequestId,
    /// How to write the answer.
    pub era: Era,
    /// Index into [`Catalog::tools`](crate::Catalog::tools).
    pub tool: usize,
    /// JSON object, checked, defaults filled in.
    pub arguments: Bytes,
    /// Where progress goes, when the client wants it and the transport streams.
    pub progress: Option<ProgressToken>,
    /// From which level on log messages go to the client; `None`: send none.
    pub log_level: Option<LogLevel>,
    /// W3C trace context of the caller, when it sent one.
    pub trace: Option<Box<TraceContext>>,
}

/// A resource to read.
#[derive(Clone, Debug)]
pub struct ResourceRead {
    /// Whose answer it is.
    pub id: RequestId,
    /// How to write the answer.
    pub era: Era,
    /// The URI as asked for.
    pub uri: String,
    /// Who reads it.
    pub target: ResourceTarget,
    /// Where progress goes.
    pub progress: Option<ProgressToken>,
    /// From which level on log messages go to the client; `None`: send none.
    pub log_level: Option<LogLevel>,
    /// W3C trace context of the caller, when it sent one.
    pub trace: Option<Box<TraceContext>>,
}

/// A subscription of a modern client.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The id of the listen request; every message on the stream names it.
    pub id: RequestId,
    /// Wants to hear of tools.
    pub tools: bool,
    /// Wants to hear of prompts.
    pub prompts: bool,
    /// Wants to hear of resources.
    pub resources: bool,
    /// JSON of who the server is, for the final result.
    pub(super) server_info: Arc<str>,
}

/// A list that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list` and `resources/templates/list`.
    Resources,
}

impl ListKind {
    /// The notification that tells of a change.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => method::TOOLS_CHANGED,
            Self::Prompts => method::PROMPTS_CHANGED,
            Self::Resources => method::RESOURCES_CHANGED,
        }
    }
}

impl ToolCall {
    /// An error of the protocol for this call. A failure of the tool itself is
    /// [`crate::Outcome::Error`] instead.
    pub fn error(&self, error: &McpError) -> Bytes {
        error.body(&self.id)
    }
}

impl ResourceRead {
    /// An error of the protocol for this read.
    pub fn error(&self, error: &McpError) -> Bytes {
        error.body(&self.id)
    }
}
