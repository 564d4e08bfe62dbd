//! What came out of a task: an event for the machine.

use std::time::Duration;

use ramen_group::{Outcome, Reason, Report};
use ramen_rollout::{Event, Failure, Fetched, Inputs, Revision};
use ramen_source::git::Resolved;
use tokio::time::Instant;

use super::{Known, MAX_KNOWN, MAX_KNOWN_BYTES, Rollout, Trouble};
use crate::group::tasks::{Done, Stored};
use crate::group::validate::Validated;

/// Pause after the source could not be asked, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_mins(10);

impl Rollout {
    pub(super) fn finished(&mut self, done: Done, group: &Validated, now: Instant) {
        match done {
            Done::GivenUp => {}
            Done::Inspected(inputs, ailments) => self.health.said(&inputs, ailments),
            Done::Surveyed(inputs, said) => self.convergence.said(&inputs, said),
            Done::Resolved(found) => self.resolved(found, group, now),
            Done::Fetched(revision, stored) => self.fetched(revision, stored, now),
            Done::Deployed(revision, inputs, report) => {
                self.deployed(revision, inputs, report, now);
            }
            Done::Reloaded(inputs, Ok(reloaded)) => {
                self.setback = None;
                self.feed(Event::Reloaded(inputs.clone()), now);
                let serving = self.saved.memory.serving.as_ref();
                if serving.is_some_and(|serving| serving.inputs == inputs) {
                    self.convergence.loaded(&inputs, reloaded.pods);
                }
            }
            Done::Reloaded(inputs, Err(failure)) => {
                self.setback = Some(failure.clone());
                self.feed(Event::ReloadFailed(inputs, failure), now);
                // Some pods may have loaded it: they are asked, and told what serves.
                self.convergence.doubt();
            }
        }
    }

    fn resolved(&mut self, found: Result<Resolved, Trouble>, group: &Validated, now: Instant) {
        self.resolving = false;
        self.looked = true;
        let interval = group.spec.source.interval;
        match found {
            Ok(found) => {
                self.troubles = 0;
                self.trouble = None;
                self.schedule(interval, now);
                let revision = Revision {
                    commit: found.commit.clone(),
                    label: found.revision(),
                };
                let memory = &self.saved.memory;
                // The same again is no news, unless an earlier sight of it led nowhere.
                let known = memory.observed.as_ref() == Some(&revision);
                self.found = Some(found);
                if !known
                    || (!self.saved.memory.is_current() && self.saved.memory.attempting.is_none())
                {
                    self.feed(Event::Observed(revision), now);
                }
            }
            Err(trouble) => {
                let pause = if trouble.transient {
                    FIRST_PAUSE
                        .saturating_mul(1 << self.troubles.min(6))
                        .min(MAX_PAUSE)
                } else {
                    interval
                };
                self.troubles = self.troubles.saturating_add(1);
                self.schedule(pause, now);
                self.trouble = Some(trouble);
            }
        }
    }

    fn fetched(&mut self, revision: Revision, stored: Result<Stored, Trouble>, now: Instant) {
        match stored {
            Ok(stored) if stored.commit == revision.commit => {
                let fetched = Fetched {
                    revision,
                    tree: stored.code.key.clone(),
                    code: Some(stored.code),
                };
                self.setback = None;
                self.feed(Event::Fetched(fetched), now);
            }
            // The branch moved while it was fetched: that is what is observed now.
            Ok(stored) => {
                let newer = Revision {
                    commit: stored.commit,
                    label: stored.label,
                };
                self.found = None;
                self.feed(Event::Observed(newer), now);
                let failure = Failure {
                    reason: Reason::RefNotFound,
                    message: "the ref moved while it was fetched".to_owned(),
                    transient: true,
                };
                self.feed(Event::FetchFailed(revision, failure), now);
            }
            Err(trouble) => {
                let failure = Failure {
                    reason: trouble.finding.reason,
                    message: trouble.finding.message,
                    transient: trouble.transient,
                };
                self.setback = Some(failure.clone());
                self.feed(Event::FetchFailed(revision, failure), now);
            }
        }
    }

    fn deployed(
        &mut self,
        revision: Revision,
        inputs: Inputs,
        report: Result<Box<Report>, Failure>,
        now: Instant,
    ) {
        match report {
            Ok(report) => {
                self.learn(Known::new(inputs.clone(), revision, &report));
                let failure = report.errors.first().map(|first| Failure {
                    reason: first.reason,
                    message: super::known::cut(&first.message, super::known::MAX_TEXT),
                    transient: report.errors.iter().any(|error| passes(error.reason)),
                });
                let failed = report.outcome == Outcome::Failed;
                self.setback = failure
                    .clone()
                    .filter(|failure| failed && failure.transient);
                let event = Event::Deployed {
                    inputs,
                    outcome: report.outcome,
                    desired: report.desired_state(),
                    failure,
                };
                self.feed(event, now);
            }
            Err(failure) => {
                self.setback = Some(failure.clone());
                self.feed(Event::DeployFailed(inputs, failure), now);
            }
        }
    }

    /// Remembers what a deploy found; what is oldest and serves nowhere is forgotten first.
    pub(super) fn learn(&mut self, known: Known) {
        let all = &mut self.saved.known;
        all.retain(|old| old.inputs != known.inputs);
        all.push(known);
        let memory = &self.saved.memory;
        let served = |known: &Known| {
            let mut served = memory.serving.iter().chain(&memory.previous);
            served.any(|served| served.inputs == known.inputs)
        };
        // The last one stays: it is what people look for.
        while all.len() > 1 && (all.len() > MAX_KNOWN || bytes(all) > MAX_KNOWN_BYTES) {
            let old = &all[..all.len() - 1];
            let oldest = old.iter().position(|known| !served(known)).unwrap_or(0);
            all.remove(oldest);
        }
    }
}

/// How long it is as it is saved.
fn bytes(known: &[Known]) -> usize {
    serde_json::to_string(known).map_or(0, |text| text.len())
}

/// Reasons that the surroundings may take back.
fn passes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::IndexUnreachable | Reason::InstallTimeout | Reason::DiskFull
    )
}
