//! What is remembered between steps, and across restarts.

use std::time::Duration;

use ramen_group::{DesiredState, LayerRef, Reason};
use serde::{Deserialize, Serialize};

/// Failed inputs that are remembered.
const MAX_FAILED: usize = 32;

/// A revision as the source names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// The full commit id, or the hash of a plain folder.
    pub commit: String,
    /// For people: `main@sha1:…`.
    pub label: String,
}

/// All that a deploy depends on: the same inputs give the same result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// The git tree id of `mcp/`; it covers the requirements too.
    pub tree: String,
    /// Python version, platform and worker image.
    pub runtime: String,
    /// Hash of what else in the McpGroup changes a deploy.
    pub spec: String,
}

/// What the McpGroup says, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Hash of where the group comes from (address, ref, path): when it changes, what was observed
    /// and fetched before says nothing any more.
    pub source: String,
    /// Goes into [`Inputs::runtime`].
    pub runtime: String,
    /// Goes into [`Inputs::spec`].
    pub spec: String,
    /// Hash of the values that a deploy is given besides. No part of [`Inputs`]: with other values what serves goes
    /// on, but what failed may work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<String>,
    /// Nothing new starts; what serves goes on, and a deploy that runs is finished and served.
    pub suspended: bool,
    /// How many revisions behind the serving one are kept ready for a way back.
    pub history: usize,
    /// Deploys of one set of inputs that break off for reasons of the surroundings (index down, job
    /// killed) before it counts as failed.
    pub max_retries: u32,
    /// Go back to the revision before when the one that serves does not live.
    pub auto_rollback: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            source: String::new(),
            runtime: String::new(),
            spec: String::new(),
            secrets: None,
            suspended: false,
            history: 1,
            max_retries: 5,
            auto_rollback: true,
        }
    }
}

/// A revision that was fetched: its tree is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// Which.
    pub revision: Revision,
    /// The tree id of `mcp/`.
    pub tree: String,
    /// The code layer, when it is in the store.
    #[serde(default)]
    pub code: Option<LayerRef>,
}

/// A revision that was deployed: it serves, served or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Served {
    /// Which.
    pub revision: Revision,
    /// From what.
    pub inputs: Inputs,
    /// What the workers load.
    pub desired: DesiredState,
}

impl Served {
    fn layers(&self) -> impl Iterator<Item = &LayerRef> {
        std::iter::once(&self.desired.code).chain(&self.desired.deps)
    }
}

/// How far an attempt has come: which action's end is awaited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// [`crate::Action::Fetch`].
    Fetching,
    /// [`crate::Action::Deploy`] of these inputs.
    Deploying(Inputs),
    /// [`crate::Action::Reload`] of this candidate.
    Reloading(Box<Served>),
}

/// The one attempt under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Which revision.
    pub revision: Revision,
    /// How far.
    pub stage: Stage,
    /// It makes lost layers of a revision that already served.
    #[serde(default)]
    pub repair: bool,
}

/// Inputs that failed, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// What was tried. `tree` is `commit <id>` when not even the tree could be read.
    pub inputs: Inputs,
    /// The revision that brought them.
    pub revision: Revision,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// It served before it was found to be bad: what serves now was gone back to.
    #[serde(default)]
    pub served: bool,
}

/// An attempt that broke off and is made again after a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Which revision.
    pub commit: String,
    /// How often it broke off in a row.
    pub times: u32,
    /// The pause is not over.
    pub waiting: bool,
}

impl Retry {
    /// How long to wait: 5 s, doubled each time, at most 10 minutes. Add jitter where many wait.
    pub fn delay(&self) -> Duration {
        pause(self.times)
    }
}

fn pause(times: u32) -> Duration {
    let doublings = times.saturating_sub(1).min(7);
    Duration::from_secs((5 << doublings).min(600))
}

/// What serves has to be loaded again (after a restart, after a roll back) and is not yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// How often it broke off.
    pub times: u32,
    /// The pause is not over.
    pub waiting: bool,
}

impl Restore {
    /// Like [`Retry::delay`].
    pub fn delay(&self) -> Duration {
        pause(self.times)
    }
}

/// All that is remembered. Saved by the caller; starts empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// What the McpGroup says.
    pub settings: Settings,
    /// What serves.
    pub serving: Option<Served>,
    /// What served before, newest first.
    pub previous: Vec<Served>,
    /// Where the source's ref points.
    pub observed: Option<Revision>,
    /// The last revision that was fetched.
    pub newest: Option<Fetched>,
    /// The attempt under way.
    pub attempting: Option<Attempt>,
    /// Attempts that were given up in a row for something newer.
    #[serde(skip_serializing_if = "is_zero")]
    pub superseded: u32,
    /// What was deployed well and does not serve yet.
    pub candidate: Option<Served>,
    /// What failed, newest last.
    pub failed: Vec<Failed>,
    /// The last token of [`crate::Event::Requested`].
    pub requested: Option<String>,
    /// A pause after an attempt that broke off.
    pub retry: Option<Retry>,
    /// A layer of the serving revision is gone.
    pub lost: bool,
    /// What serves is being loaded again. Not saved: a restart loads it again anyway.
    #[serde(skip)]
    pub restoring: Option<Restore>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Memory {
    /// The inputs that a tree makes with the settings of now.
    pub fn inputs(&self, tree: &str) -> Inputs {
        Inputs {
            tree: tree.to_owned(),
            runtime: self.settings.runtime.clone(),
            spec: self.settings.spec.clone(),
        }
    }

    /// The inputs that stand for a commit of which not even the tree could be read.
    pub(crate) fn unread(&self, commit: &str) -> Inputs {
        self.inputs(&format!("commit {commit}"))
    }

    /// What is known against these inputs.
    pub fn failure(&self, inputs: &Inputs) -> Option<&Failed> {
        self.failed.iter().find(|failed| failed.inputs == *inputs)
    }

    pub(crate) fn remember_failure(&mut self, failed: Failed) {
        self.failed.retain(|known| known.inputs != failed.inputs);
        if self.failed.len() >= MAX_FAILED {
            self.failed.remove(0);
        }
        self.failed.push(failed);
    }

    /// The layers that must stay in the store: serving, previous, newest, and the candidate.
    pub fn keep(&self) -> Vec<LayerRef> {
        let mut layers: Vec<LayerRef> = Vec::new();
        let served = self
            .serving
            .iter()
            .chain(&self.previous)
            .chain(&self.candidate);
        let newest = self.newest.iter().filter_map(|newest| newest.code.as_ref());
        for layer in served.flat_map(Served::layers).chain(newest) {
            if !layers.contains(layer) {
                layers.push(layer.clone());
            }
        }
        layers
    }

    /// The newest failure of what is wanted now, for status lines: present when the observed
    /// revision is known not to work.
    pub fn observed_failure(&self) -> Option<&Failed> {
        let observed = self.observed.as_ref()?;
        let newest = self
            .newest
            .as_ref()
            .filter(|newest| newest.revision.commit == observed.commit);
        newest
            .and_then(|newest| self.failure(&self.inputs(&newest.tree)))
            .or_else(|| self.failure(&self.unread(&observed.commit)))
    }

    /// Whether what is observed serves.
    pub fn is_current(&self) -> bool {
        match (&self.observed, &self.serving) {
            (Some(observed), Some(serving)) => {
                observed.commit == serving.revision.commit
                    && serving.inputs == self.inputs(&serving.inputs.tree)
            }
            _ => false,
        }
    }
}
