//! The worker as it is run: the program `ramen-worker serve`, real hosts with real Python, a group
//! that the test wrote, and calls over gRPC. The rows of the fault catalogue that are to be seen at
//! the wire, by their ids.
//!
//! Runs with the oldest Python that a host was built for; `RAMEN_TEST_PYTHONS=all` runs every test
//! with each of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod arguments;
mod behaviour;
mod envelope;
#[path = "../support/harness.rs"]
#[expect(dead_code, reason = "made for the tests of the front too")]
mod harness;
mod hosts_lost;
mod memory;
mod packages;
mod parallel;
mod prompts;
#[path = "../support/pythons.rs"]
mod pythons;
mod resources;
mod results;
mod secrets;
mod served;
mod stop;
