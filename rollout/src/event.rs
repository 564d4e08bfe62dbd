//! What a caller tells, and what it is told to do.

use std::time::Duration;

use ramen_group::{DesiredState, LayerRef, Outcome, Reason};

use crate::memory::{Failed, Fetched, Inputs, Revision, Served, Settings};

/// Why something did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub reason: Reason,
    /// In words, redacted.
    pub message: String,
    /// Whether the surroundings are to blame (network, index, disk, a killed process): it is tried
    /// again after a pause. Otherwise the same inputs are not tried again.
    pub transient: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The program (re)started: what was under way is lost.
    Restarted,
    /// The McpGroup says this. Send it first, and on every change.
    Configured(Settings),
    /// The source's ref points here (a poll, a hook, a saved file).
    Observed(Revision),
    /// [`Action::Fetch`] is done.
    Fetched(Fetched),
    /// [`Action::Fetch`] failed.
    FetchFailed(Revision, Failure),
    /// [`Action::Deploy`] came to an end with a report.
    Deployed {
        /// What was deployed.
        inputs: Inputs,
        /// How it ended.
        outcome: Outcome,
        /// `Report::desired_state`; must be there unless the outcome is `Failed`.
        desired: Option<DesiredState>,
        /// The report's first error, for the memory of a failure.
        failure: Option<Failure>,
    },
    /// [`Action::Deploy`] broke off without a report.
    DeployFailed(Inputs, Failure),
    /// [`Action::Reload`] is done: these inputs serve.
    Reloaded(Inputs),
    /// [`Action::Reload`] failed: the workers still serve what they served before. With the reason
    /// `LayerMissing` or `LayerCorrupt` the layers are made again.
    ReloadFailed(Inputs, Failure),
    /// What serves does not live: its processes end again and again.
    Unhealthy(Inputs, Failure),
    /// A layer of what serves is gone or damaged.
    LayerLost,
    /// What the source is reached with (credentials, authorities, host keys) is another: what could not
    /// be fetched before may be now.
    Access,
    /// Somebody asks to try again; a token that was seen before asks for nothing.
    Requested(String),
    /// The pause of [`Action::RetryAfter`] is over.
    RetryDue,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Look now where the source's ref points; answer [`Event::Observed`].
    Resolve,
    /// Fetch this revision, read its tree, store its code layer; answer [`Event::Fetched`] or
    /// [`Event::FetchFailed`].
    Fetch(Revision),
    /// Run the deploy step; answer [`Event::Deployed`] or [`Event::DeployFailed`].
    Deploy {
        /// Which revision, for people.
        revision: Revision,
        /// From what.
        inputs: Inputs,
        /// Its code layer, if the fetch stored one.
        code: Option<LayerRef>,
    },
    /// Make the workers serve this; answer [`Event::Reloaded`] or [`Event::ReloadFailed`].
    Reload(Box<Served>),
    /// Nothing to do, and why; for status and logs.
    Keep(Kept),
    /// Send [`Event::RetryDue`] after this time.
    RetryAfter(Duration),
    /// Remove all layers but these.
    Prune(Vec<LayerRef>),
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Nothing was observed yet.
    NothingObserved,
    /// What is observed serves.
    UpToDate,
    /// The commit is new, the tree is not: only the revision was recorded.
    SameTree,
    /// The inputs failed (just now or before); the last good revision serves.
    Failed(Box<Failed>),
    /// The serving revision was bad; the one before serves again.
    RolledBack(Box<Failed>),
    /// The group is suspended.
    Suspended,
    /// A pause after something broke off is not over.
    Waiting,
    /// An attempt is under way; what is new is looked at when it ends.
    Busy,
}
