//! The host from outside: a group is written to a folder, a real `ramen-host` is started for every
//! Python that hosts were built for, and spoken to in frames.
//!
//! The hosts are those of `cargo xtask hosts`: `RAMEN_HOST_DIR`, or `target/debug`.
#![expect(
    unsafe_code,
    reason = "starts the host with its socket on file descriptor 3"
)]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test and its helpers, spread over files"
)]

mod behaviour;
mod coroutines;
mod driver;
mod imports;
mod libraries;
mod results;
mod runtime;
mod signatures;
