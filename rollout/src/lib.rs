//! Which revision to attempt, skip, keep serving, roll back to or prune: one pure state machine.
//!
//! The caller (`ramen up`, later the operator) keeps a [`Memory`], tells it what happened
//! ([`Event`]) and does what it answers ([`Action`]). Every action that takes time ends in an event.
//! The memory is saved after each step; an action that was lost (a crash) is asked for again after
//! [`Event::Restarted`]. Owns no clock, no I/O, no async; must not know Kubernetes or git.
//!
//! What holds, whatever happens (a test walks at random against a model):
//! - the last good revision serves until a better one has been loaded;
//! - inputs that failed are not tried again until they change or somebody asks ([`Event::Requested`]);
//! - nothing newer is lost: what was observed while an attempt ran is looked at when it ends.
//!
//! The walk of one revision: `Observed` → [`Action::Fetch`] → `Fetched` → [`Action::Deploy`] →
//! `Deployed` → [`Action::Reload`] → `Reloaded`.

mod event;
mod machine;
mod memory;
#[cfg(test)]
mod tests;

pub use event::{Action, Event, Failure, Kept};
pub use machine::step;
pub use memory::{
    Attempt, Failed, Fetched, Inputs, Memory, Retry, Revision, Served, Settings, Stage,
};
