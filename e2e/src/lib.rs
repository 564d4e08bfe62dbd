//! What the cluster tests have in common: reaching a cluster, a namespace per test, waiting on conditions, telling what
//! was there when a test failed; and what a person does with Ramen: installs the charts, applies a group, pushes, calls.

mod agent;
mod audit;
mod caller;
mod drill;
mod gateway;
mod git_host;
mod group;
mod http;
mod http_caller;
mod images;
mod load;
mod namespace;
mod operator;
pub mod player;
mod probe;
mod prometheus;
mod proxy;
mod reach;
mod release;
mod services;
mod story;
mod tools;
mod wait;

pub use agent::Agent;
pub use audit::{Audit, Call};
pub use caller::{Caller, GRPC, Refusal};
pub use drill::drill;
pub use gateway::Gateway;
pub use git_host::GitHost;
pub use group::{Group, everywhere, serving, tool};
pub use http::{Answer, request};
pub use http_caller::{HttpCaller, HttpRefusal};
pub use images::name_image;
pub use load::{Load, Outcome};
pub use namespace::{Namespace, with_temp_ns};
pub use operator::{Account, Operator, crd, port};
pub use probe::Probe;
pub use prometheus::rules_hold;
pub use proxy::{Fault, Proxy, Request};
pub use reach::{Cluster, Tier};
pub use release::{Release, chart, crds, install_crds};
pub use services::{PackageIndex, git_server, s3};
pub use tools::{Said, helm, kubectl, kubectl_with};
pub use wait::{available, comes_true, condition, finished, gone};
