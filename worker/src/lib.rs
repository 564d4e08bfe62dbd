//! The worker as a library: the front process (`serve`) that owns keys, addresses, limits and the
//! protocol, and the deploy step (`deploy`). No Python is linked here; user code runs in
//! `ramen-host` child processes, reached through [`hosts`].

pub mod deploy;
pub mod hosts;
