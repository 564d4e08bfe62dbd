//! Seed 002, sentence by sentence: each test has the name of what the seed says.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod call;
mod configuration;
mod going_out;
mod list;
mod support;
mod transport;
