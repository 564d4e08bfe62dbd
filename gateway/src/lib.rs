//! The gateway: every group and the platform's own operations over HTTP, for every MCP client.
//!
//! Owns Streamable HTTP of both eras, the gate, the choice of a worker, and the operations with their
//! JSON API. It holds no session: any replica answers any request. It must not know Python, and
//! nothing here but a discovery knows where groups come from.

pub mod access;
pub mod answer;
pub mod callers;
pub mod config;
mod copies;
mod cors;
#[cfg(feature = "discovery-kube")]
pub mod discovery;
pub mod door;
mod endpoint;
pub mod gateway;
pub mod groups;
pub mod listed;
mod listen;
pub mod listener;
#[cfg(test)]
#[path = "../tests/group/logs.rs"]
mod logs;
mod media;
pub mod metrics;
pub mod names;
pub mod oidc;
pub mod operations;
pub mod origin;
pub mod pool;
pub mod recent;
mod reference;
pub mod serve;
pub mod upstreams;

pub use gateway::Gateway;
pub use groups::{GroupName, GroupSpec, Groups, WorkerAt};
pub use oidc::Oidc;
