//! The Model Context Protocol as Ramen speaks it: JSON-RPC envelope, both eras of MCP, error codes,
//! the validation ladder and the answers a server gives. Pure: no I/O, no clock, no async.
//!
//! A transport does three things with it:
//!
//! 1. [`envelope::parse`] turns the bytes of one message into a [`Message`], or into a [`Reject`]
//!    that knows its own answer.
//! 2. [`Server::step`] answers what it can and hands the rest back as a [`Step`].
//! 3. [`Server::tool_reply`] and [`Server::resource_reply`] turn the outcome of a call into bytes.

pub mod catalog;
pub mod code;
pub mod cursor;
pub mod envelope;
pub mod era;
pub mod error;
pub mod headers;
pub mod id;
pub mod meta;
pub mod model;
pub mod names;
pub mod notify;
pub mod outcome;
pub mod server;
pub mod version;

pub use catalog::{ArgumentFault, Catalog, PromptText, Reference, ResourceTarget};
pub use envelope::{Message, Notification, Reject, Request, Response};
pub use era::{Connection, Era};
pub use error::McpError;
pub use headers::{HeaderCopies, ParamCopies};
pub use id::{IdKey, ProgressToken, RequestId};
pub use meta::{LogLevel, RequestMeta};
pub use outcome::Outcome;
pub use server::{ListKind, Listen, Options, ResourceRead, Server, Step, ToolCall};
pub use version::Version;
