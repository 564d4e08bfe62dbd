//! The deploy step with a real `uv` and real hosts. Packages come from wheels that the tests write
//! themselves, from a folder or from an index on the loopback address, so that nothing depends on
//! the outside and an outage is a real one.
//!
//! Runs with Python 3.11; with `RAMEN_TEST_PYTHONS=all` some central tests run with each for which there is a host.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod backtracking;
mod contract;
mod fixtures;
mod group;
#[expect(
    dead_code,
    reason = "shared with the tests that serve, which use the rest"
)]
#[path = "../support/harness.rs"]
mod harness;
mod index;
mod kit;
mod packages;
#[path = "../support/pythons.rs"]
mod pythons;
mod requirements;
mod store;
mod wheel;
