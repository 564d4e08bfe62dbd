//! Where a group's code comes from, and how it is handed over.
//!
//! * feature `store`: deterministic [`layer`]s, the artifact [`store`] they are kept in, the
//!   [`cache`] of unpacked ones, and the [`tree`] rules that say which files of `mcp/` may load.
//! * feature `git`: [`git`] resolves a ref, fetches a commit and walks `mcp/` without a checkout.
//! * feature `testing`: git servers for tests and demos.
//!
//! This crate knows neither Kubernetes nor Python.

#[cfg(feature = "store")]
pub mod cache;
#[cfg(feature = "store")]
pub mod digest;
#[cfg(feature = "git")]
pub mod git;
#[cfg(feature = "store")]
pub mod layer;
#[cfg(feature = "store")]
mod lock;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "store")]
pub mod tree;

#[cfg(feature = "store")]
pub use cache::Cache;
#[cfg(feature = "store")]
pub use digest::Digest;
#[cfg(feature = "store")]
pub use layer::Layer;
#[cfg(feature = "store")]
pub use store::{Kind, Store};
#[cfg(feature = "store")]
pub use tree::Tree;
