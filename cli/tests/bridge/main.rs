//! `ramen bridge` against a scripted worker: the rows of the case list that are marked B, and its own rules.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod process;
mod rows;
mod rules;
mod server;
mod usage;

pub(crate) fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

pub(crate) fn call(id: &str, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
    )
}
