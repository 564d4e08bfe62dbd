//! The host from outside: a group is written to a folder, a real `ramen-host` is started for every
//! Python that hosts were built for, and spoken to in frames.
//!
//! The hosts are those of `cargo xtask hosts`: `RAMEN_HOST_DIR`, or `target/debug`.
#![expect(
    unsafe_code,
    reason = "starts the host with its socket on file descriptor 3"
)]

mod behaviour;
mod coroutines;
mod driver;
mod imports;
mod libraries;
mod results;
mod runtime;
mod signatures;
