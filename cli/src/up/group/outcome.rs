//! What came out of a piece of work, or of the worker process: an event for the machine, and words for people.

use std::time::Duration;

use ramen_group::{Finding, Outcome, Reason, Report};
use ramen_rollout::{Event, Failure, Fetched, Inputs, Kept, Revision, Served};
use tokio::time::Instant;

use super::work::Done;
use super::{FIRST_PAUSE, Group};
use crate::revision::short;
use crate::up::source::{Found, Stored, Trouble};
use crate::up::worker::{Health, Refused, Worker};

const MAX_PAUSE: Duration = Duration::from_mins(5);
/// A revision whose worker ended this often within this time does not live.
const DEATHS: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_mins(1);

impl Group {
    pub(super) fn finished(&mut self, done: Done, worker: &Worker) {
        match done {
            Done::Resolved(source, found) if source == self.spec.source_fingerprint => {
                self.resolved(found, worker);
            }
            // The spec names another source by now.
            Done::Resolved(..) => {
                self.resolving = false;
                self.look_again = false;
                self.look();
            }
            Done::Fetched(revision, stored) => self.fetched(revision, stored, worker),
            Done::Deployed(revision, inputs, report) => {
                self.deployed(&revision, inputs, report, worker);
            }
            Done::Reloaded(served, loaded) => self.reloaded(&served, loaded, worker),
        }
        if self.memory.attempting.is_none() {
            self.progress(String::new());
        }
    }

    pub(super) fn resolved(&mut self, found: Result<Found, Trouble>, worker: &Worker) {
        self.resolving = false;
        if std::mem::take(&mut self.look_again) {
            self.look();
        }
        match found {
            Ok(found) => {
                self.troubles = 0;
                self.trouble = None;
                self.schedule(self.spec.interval);
                let revision = Revision {
                    commit: found.commit().to_owned(),
                    label: found.revision(),
                };
                let known = self.memory.observed.as_ref() == Some(&revision);
                self.status.observed = Some(revision.label.clone());
                self.found = Some((revision.commit.clone(), found));
                // The same again is no news, unless an earlier sight of it led nowhere.
                if !known || !self.memory.is_current() {
                    self.feed(Event::Observed(revision), worker);
                } else {
                    self.show();
                }
            }
            Err(trouble) => {
                let pause = FIRST_PAUSE * (1 << self.troubles.min(6));
                self.troubles += 1;
                let pause = if trouble.transient {
                    pause.min(MAX_PAUSE)
                } else {
                    self.spec.interval
                };
                self.schedule(pause.min(self.spec.interval));
                self.trouble = Some(trouble.finding);
                self.show();
            }
        }
    }

    pub(super) fn fetched(
        &mut self,
        revision: Revision,
        stored: Result<Stored, Trouble>,
        worker: &Worker,
    ) {
        match stored {
            Ok(stored) if stored.commit == revision.commit => {
                let (tree, code) = (stored.code.key.clone(), Some(stored.code));
                self.feed(
                    Event::Fetched(Fetched {
                        revision,
                        tree,
                        code,
                    }),
                    worker,
                );
            }
            // The branch moved while it was fetched: the newer commit is at hand already.
            Ok(stored) => {
                let newer = Revision {
                    commit: stored.commit.clone(),
                    label: stored.revision.clone(),
                };
                self.stored = Some(stored);
                self.feed(Event::Observed(newer), worker);
                let failure = Failure {
                    reason: Reason::RefNotFound,
                    message: "the ref moved while it was fetched".to_owned(),
                    transient: true,
                };
                self.feed(Event::FetchFailed(revision, failure), worker);
            }
            Err(trouble) => {
                self.status.attempted = Some(revision.label.clone());
                self.status.errors = vec![trouble.finding.clone()];
                self.status.warnings.clear();
                self.status.message =
                    format!("{}: {}", trouble.finding.reason, trouble.finding.message);
                let failure = Failure {
                    reason: trouble.finding.reason,
                    message: trouble.finding.message,
                    transient: trouble.transient,
                };
                self.feed(Event::FetchFailed(revision, failure), worker);
            }
        }
    }

    pub(super) fn deployed(
        &mut self,
        revision: &Revision,
        inputs: Inputs,
        report: Result<Box<Report>, String>,
        worker: &Worker,
    ) {
        self.status.attempted = Some(revision.label.clone());
        match report {
            Ok(report) => {
                let desired = report.desired_state();
                let failure = report.errors.first().map(|first| Failure {
                    reason: first.reason,
                    message: first.message.clone(),
                    transient: report.errors.iter().any(|error| passes(error.reason)),
                });
                self.status.errors = report.errors;
                self.status.warnings = report.warnings;
                if report.outcome == Outcome::Failed {
                    self.status.message = self.refused(&revision.label);
                }
                self.feed(
                    Event::Deployed {
                        inputs,
                        outcome: report.outcome,
                        desired,
                        failure,
                    },
                    worker,
                );
            }
            Err(message) => {
                self.status.errors = vec![Finding::group(Reason::Internal, message.clone())];
                self.status.warnings.clear();
                self.status.message = self.refused(&revision.label);
                let failure = Failure {
                    reason: Reason::Internal,
                    message,
                    transient: true,
                };
                self.feed(Event::DeployFailed(inputs, failure), worker);
            }
        }
    }

    pub(super) fn refused(&self, label: &str) -> String {
        let label = short(label);
        match &self.memory.serving {
            Some(serving) => {
                format!(
                    "{label} was refused, {} goes on serving",
                    short(&serving.revision.label)
                )
            }
            None => format!("{label} was refused"),
        }
    }

    pub(super) fn reloaded(
        &mut self,
        served: &Served,
        loaded: Result<(u32, u32, u32), Refused>,
        worker: &Worker,
    ) {
        match loaded {
            Ok((tools, resources, prompts)) => {
                (
                    self.status.tools,
                    self.status.resources,
                    self.status.prompts,
                ) = (tools, resources, prompts);
                let fresh = self
                    .memory
                    .serving
                    .as_ref()
                    .is_none_or(|serving| serving.inputs != served.inputs);
                if fresh {
                    self.deaths.clear();
                    self.status.took_ms = u64::try_from(self.sighted.elapsed().as_millis()).ok();
                }
                if fresh || self.status.since.is_none() {
                    self.status.since = Some(Instant::now());
                }
                self.status.ready = true;
                self.status.attempted = Some(served.revision.label.clone());
                self.show_findings(&served.inputs.tree);
                self.status.message = match self.status.took_ms.filter(|_| fresh) {
                    Some(ms) => format!(
                        "serving, {}.{:02} s after the change was seen",
                        ms / 1000,
                        ms % 1000 / 10
                    ),
                    None => "serving".to_owned(),
                };
                self.feed(Event::Reloaded(served.inputs.clone()), worker);
                // After the swap: a start in between serves what served before, and tries again.
                if let Err(error) = self.write_desired() {
                    self.say(format!("the desired state cannot be saved: {error}"));
                }
            }
            Err(Refused {
                message,
                reason,
                unanswered,
            }) => {
                let reason = reason.unwrap_or(Reason::ReloadFailed);
                self.status
                    .errors
                    .push(Finding::group(reason, message.clone()));
                self.status.message = self.refused(&served.revision.label);
                let transient = unanswered || passes(reason);
                let failure = Failure {
                    reason,
                    message,
                    transient,
                };
                self.feed(Event::ReloadFailed(served.inputs.clone(), failure), worker);
            }
        }
    }

    fn now(&mut self, message: &str) {
        message.clone_into(&mut self.status.message);
    }

    /// Shows what the deploy of a tree found.
    fn show_findings(&mut self, tree: &str) {
        (self.status.errors, self.status.warnings) = self.findings_of(tree).unwrap_or_default();
    }

    /// What serves is what the source has: no failure of anything else is worth showing.
    fn show_served(&mut self) {
        let Some(serving) = self.memory.serving.clone() else {
            return;
        };
        self.show_findings(&serving.inputs.tree);
        self.status.attempted = Some(serving.revision.label);
    }

    pub(super) fn kept(&mut self, kept: Kept) {
        match kept {
            Kept::Suspended => self.now("suspended"),
            Kept::SameTree => {
                self.show_served();
                self.now("serving, the same code under a new revision");
            }
            Kept::UpToDate if self.status.ready => {
                self.show_served();
                if !self.status.message.starts_with("serving") {
                    self.now("serving");
                }
            }
            Kept::Failed(failed) => {
                self.status.attempted = Some(failed.revision.label.clone());
                self.status.message = self.refused(&failed.revision.label);
                self.show_findings(&failed.inputs.tree);
                if self.status.errors.is_empty() {
                    self.status.errors = vec![Finding::group(failed.reason, failed.message)];
                }
            }
            Kept::RolledBack(failed) => {
                self.status.attempted = Some(failed.revision.label.clone());
                self.status.message = format!(
                    "{} was rolled back: {}",
                    short(&failed.revision.label),
                    failed.message
                );
                self.status.errors = vec![Finding::group(failed.reason, failed.message)];
            }
            Kept::UpToDate | Kept::NothingObserved | Kept::Waiting | Kept::Busy => {}
        }
    }

    /// The process came up, went away, or has something to say.
    pub(super) fn worker_news(&mut self, health: &Health, worker: &Worker) {
        self.status.address.clone_from(&health.address);
        let deaths_told = std::mem::replace(&mut self.deaths_told, health.deaths);
        let was_ready = std::mem::replace(&mut self.status.ready, health.serving);
        if health.serving {
            self.status.since.get_or_insert_with(Instant::now);
            if !was_ready
                && !self.status.message.starts_with("serving")
                && self.memory.attempting.is_none()
            {
                self.now("serving");
            }
        } else if let Some(problem) = &health.problem {
            self.status.message.clone_from(problem);
            if health.deaths > deaths_told {
                self.deaths.push_back(Instant::now());
                self.deaths.retain(|at| at.elapsed() < DEATHS_WITHIN);
            }
            if let Some(serving) = self.memory.serving.clone() {
                if is_layer(problem) && !self.memory.lost {
                    self.feed(Event::LayerLost, worker);
                } else if self.deaths.len() >= DEATHS {
                    self.deaths.clear();
                    let failure = Failure {
                        reason: Reason::HostCrashed,
                        message: problem.clone(),
                        transient: false,
                    };
                    self.feed(Event::Unhealthy(serving.inputs, failure), worker);
                }
            }
        }
        self.show();
    }
}

/// Reasons that the surroundings may take back.
fn passes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::IndexUnreachable | Reason::InstallTimeout | Reason::DiskFull
    )
}

/// Whether the worker complains about a layer in the store. A full disk is no fault of the layer:
/// to make it again would not help.
fn is_layer(message: &str) -> bool {
    message.contains("cannot unpack the ") && !message.contains("no room left")
}
