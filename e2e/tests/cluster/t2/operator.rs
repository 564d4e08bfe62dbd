//! The operator against the real API: what must hold whatever fails. It runs as a process that a test ends at will,
//! behind a proxy that a test scripts; pods are played (`ramen_e2e::player`).

mod admission;
mod api;
mod crash;
mod edits;
mod git;
mod hands;
mod leader;
mod load;
mod machine;
mod operations;
mod pods;
pub(crate) mod rig;
mod rights;
mod secrets;
pub(crate) mod snapshot;
mod time;
