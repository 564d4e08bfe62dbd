//! The platform's operations, written once as descriptors: as MCP tools at `/api/v1/mcp` and as a JSON
//! API under `/api/v1/`, behind the same gate and the same checks.
//!
//! The MCP endpoint keeps every rule of seed 002; `tests/seed_002` has a test for each of its sentences.

mod api;
mod check;
#[cfg(feature = "discovery-kube")]
mod cluster;
mod config;
mod descriptor;
mod error;
mod fixed;
mod keyring;
mod mcp;
mod openapi;
mod operators;
mod page;
pub mod platform;
mod rules;
mod run;

pub use check::{Admit, Authorize, Context, DefaultPolicy, Disclosed, Gate, GateError, Guard};
#[cfg(feature = "discovery-kube")]
pub use cluster::Cluster;
pub use config::{
    Config, ConfigError, DEFAULT_MAX_RESULT, MakeContext, Operations, new, plain_context,
};
pub use descriptor::{Access, Descriptor, Flags, Invoke, invoke, tool_name};
pub use error::OpError;
pub use fixed::Fixed;
pub use keyring::{Grant, Keyring, Known};
pub use operators::{Operators, of_operators};
pub use page::reference_page;
pub use rules::{Level, Rule};

use crate::groups::GroupName;

/// Where the MCP endpoint is: what tokens are for, those that the JSON API is asked with too.
pub(crate) const MCP_PATH: &str = "/api/v1/mcp";

/// Where a group is called beside the operations; `None` for the one whose path they have, which only the header reaches.
pub fn path_beside(name: &GroupName) -> Option<String> {
    Some(name.path()).filter(|path| path != MCP_PATH)
}
