//! A client for many MCP servers at once.
//!
//! It reaches any server of the Model Context Protocol, over stdio or Streamable HTTP, in both eras of the protocol;
//! keeps each one alive; and remembers what each advertised last, so that tools are known before a process is started.
//!
//! - [`config`] reads the `mcpServers` files that Claude, Cursor and VS Code use, global and per project.
//! - [`Client`] is one connected server.
//! - [`Manager`] owns all of them and connects again, with backoff, what went away.
//! - [`cache`] is the file with the last known lists.
//!
//! What a server sends is not trusted: sizes, counts and times are bounded by [`Limits`], and the secrets of a
//! configuration are in no error, log line or `Debug` text.
#![doc = include_str!("../../docs/client.md")]

// The tests of this crate share a scripted server, which names it from outside.
#[cfg(test)]
extern crate self as ramen_client;

mod ask;
mod backoff;
pub mod cache;
mod client;
pub mod config;
mod error;
mod flatten;
pub mod guard;
mod handshake;
pub mod hub;
mod limits;
mod list;
mod manager;
pub mod oauth;
mod peer;
mod refusal;
mod replace;
mod transport;

pub use backoff::BackoffPolicy;
pub use client::{Addresses, CallOptions, Client, Elicit, Options, Progress, Updates};
pub use config::ServerConfig;
pub use error::{BoxError, ClientError};
pub use handshake::EraChoice;
pub use limits::Limits;
pub use list::{Prompt, PromptArgument, Resource, Tool};
pub use manager::{Lists, Manager, ManagerOptions, State, Status};
pub use ramen_mcp::model::Json;
