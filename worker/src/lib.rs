//! The worker as a library: the front process (`serve`) that owns keys, addresses, limits and the
//! protocol, and the deploy step (`deploy`). No Python is linked here; user code runs in
//! `ramen-host` child processes, reached through [`hosts`].

mod answer;
pub mod config;
pub mod deploy;
pub mod desired;
pub mod gate;
pub mod generation;
mod health;
pub mod hosts;
mod listener;
pub mod metrics;
pub mod names;
mod packages;
pub mod parent;
mod remote;
pub mod serve;
mod service;
pub mod telemetry;
mod wire;
