//! What the cluster tests have in common: reaching a cluster, a namespace per test, waiting on conditions, and telling
//! what was there when a test failed.
//!
//! It must not know anything of Ramen's own objects; those belong to the tests.

mod audit;
mod drill;
mod namespace;
mod probe;
mod reach;
mod services;
mod story;
mod wait;

pub use audit::{Audit, Call};
pub use drill::drill;
pub use namespace::{Namespace, with_temp_ns};
pub use probe::Probe;
pub use reach::{Cluster, Tier};
pub use services::{PackageIndex, git_server};
pub use wait::{available, condition, finished, gone};
