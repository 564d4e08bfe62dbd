//! A server's side of the protocol: what to answer, and what to hand to whoever runs the code.

use std::sync::Arc;

use bytes::Bytes;

use crate::catalog::{Catalog, ResourceTarget};
use crate::envelope::Message;
use crate::era::{Connection, Era};
use crate::error::McpError;
use crate::id::{IdKey, ProgressToken, RequestId};
use crate::meta::{LogLevel, TraceContext};
use crate::names::method;
use crate::outcome::Outcome;

/// How many entries a page of a list holds unless [`Options`] say otherwise.
pub const PAGE_SIZE: usize = 100;

/// What a server may decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// Entries per page of a list.
    pub page_size: usize,
    /// How long a modern client may keep a list, in milliseconds.
    pub list_ttl_ms: u64,
    /// Whether shared caches may keep a list (`public`), or only the caller (`private`).
    pub public_lists: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_size: PAGE_SIZE,
            list_ttl_ms: 5_000,
            public_lists: false,
        }
    }
}

/// Serves one [`Catalog`]. Immutable: a new revision of a group is a new `Server`.
pub struct Server {
    catalog: Arc<dyn Catalog>,
}

/// What a message asks of the transport.
#[derive(Debug)]
pub enum Step {
    /// Send these bytes back.
    Reply(Bytes),
    /// Nothing to send (a notification; over `Mcp/Call` an empty body).
    Silent,
    /// Run a tool, then [`Server::tool_reply`]. Its arguments are valid.
    CallTool(ToolCall),
    /// Read a resource, then [`Server::resource_reply`].
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
    /// Index into [`Catalog::tools`].
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

impl Server {
    /// A server of `catalog`; renders its lists once.
    pub fn new(catalog: Arc<dyn Catalog>, options: Options) -> Self {
        let _ = options;
        Self { catalog }
    }

    /// What it serves.
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// Answers a message, or says what has to be done for it. Never blocks, never panics.
    ///
    /// `connection` lives as long as the stream; for a unary call make a new one each time.
    pub fn step(&self, message: &Message<'_>, connection: &mut Connection) -> Step {
        let _ = (message, connection);
        todo!()
    }

    /// The response of a finished tool call.
    pub fn tool_reply(&self, call: &ToolCall, outcome: Outcome<'_>) -> Bytes {
        let _ = (call, outcome);
        todo!()
    }

    /// The response of a finished read.
    pub fn resource_reply(&self, read: &ResourceRead, outcome: Outcome<'_>) -> Bytes {
        let _ = (read, outcome);
        todo!()
    }
}

impl ToolCall {
    /// An error of the protocol for this call; failures of the tool are [`Outcome::Error`] instead.
    pub fn error(&self, error: &McpError) -> Bytes {
        error.body(&self.id)
    }
}

impl Listen {
    /// Whether the client asked for this kind.
    pub fn wants(&self, kind: ListKind) -> bool {
        match kind {
            ListKind::Tools => self.tools,
            ListKind::Prompts => self.prompts,
            ListKind::Resources => self.resources,
        }
    }

    /// The first message of the stream.
    pub fn acknowledged(&self) -> Bytes {
        todo!()
    }

    /// Tells of a change; `None` when the client did not ask for this kind.
    pub fn changed(&self, kind: ListKind) -> Option<Bytes> {
        let _ = kind;
        todo!()
    }

    /// The last message of the stream, when the server ends it.
    pub fn end(&self) -> Bytes {
        todo!()
    }
}
