//! The `ramen` command as a library: its arguments, its subcommands, and `ramen up`, the embedded default.
//!
//! It starts `ramen-worker` as a process and never links a Python.

pub mod app;
pub mod bridge;
mod call;
mod connect;
pub mod exit;
mod inspect;
mod keys;
mod ls;
pub mod names;
mod new;
mod output;
mod peer;
mod poke;
mod prompt;
mod read;
mod reference;
mod revision;
mod run;
mod servers;
mod signals;
mod state;
#[cfg(feature = "cluster")]
mod status;
mod up;
pub mod upstream;
mod validate;
mod worker_bin;

pub use connect::ConnectArgs;
pub use reference::render as reference;
pub use run::main;

use run::runtime;
