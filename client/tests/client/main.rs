//! The client against servers that do what a test wants: in this process, in `sh`, behind a raw socket.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod cache;
mod calls;
mod config;
mod connect;
mod http;
mod hub;
mod lines;
mod lists;
mod oauth;
mod races;
mod stdio;
mod support;
