//! The operator: keeps every `McpGroup` of a cluster alive.
//!
//! [`group`] is the reconcile pipeline, five phases as files. Around it: [`lease`] (one writer),
//! [`watches`] (what wakes a group), [`http`] (health and metrics), `artifacts`, `deploy` and `reload`
//! (what goes between the operator and the pods).

pub mod args;
mod artifacts;
mod backoff;
mod deploy;
mod error;
mod gateways;
pub mod group;
mod hooks;
pub mod http;
mod inbound;
pub mod lease;
mod metrics;
pub mod names;
mod pods;
mod ports;
mod reasons;
mod reload;
mod run;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod watches;

pub use args::Args;
pub use run::run;
