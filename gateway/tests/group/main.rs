//! The group endpoint over real sockets, with workers of the test behind it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod bad_input;
mod browsers;
mod eras;
mod gate;
mod issuer;
mod listening;
mod logs;
mod oidc;
mod operators;
mod recent;
mod rows;
mod signer;
mod streams;
mod support;
mod tls;
mod upstreams;
mod withheld;
mod worker;
mod workers;
