//! What a status is made of: the memory of the revision machine, and the Deployments.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use ramen_crds::{ErrorEntry, LastDeploy, McpGroupStatus, RevisionStatus, ZoneStatus};
use ramen_group::{Finding, Outcome as DeployOutcome};
use ramen_rollout::{Failure, Memory, Served, Stage};

use super::conditions::{self, Told};
use super::zones::ZoneView;
use crate::group::rollout::{MAX_ERRORS, MAX_TEXT, Rollout, cut, entry};
use crate::group::validate::Invalid;
use crate::group::{Outcome, State};
use crate::reasons;

/// What is known of a group in this process.
pub(crate) struct View<'a> {
    rollout: &'a Rollout,
    memory: &'a Memory,
    zones: &'a [ZoneView],
    faults: &'a [Finding],
    /// What holds up the pod of the deploy that is under way.
    hurdle: Option<&'a str>,
}

impl<'a> View<'a> {
    /// `None` before the memory was read.
    pub(super) fn of(state: &'a State) -> Option<Self> {
        let rollout = state.rollout.as_ref()?;
        Some(Self {
            memory: rollout.memory(),
            rollout,
            zones: &state.zones,
            faults: &state.faults,
            hurdle: state.hurdle.as_deref(),
        })
    }

    /// A revision serves in all wanted pods.
    pub(super) fn serves(&self) -> bool {
        let fine = |zone: &ZoneView| zone.ready >= zone.wanted;
        self.memory.serving.is_some() && !self.zones.is_empty() && self.zones.iter().all(fine)
    }

    /// How many pods are of the newest template, while some are not: ranges, image, resources and secrets come with it.
    fn rolling(&self) -> Option<u32> {
        let settled = |zone: &ZoneView| zone.known && zone.rolled >= zone.wanted;
        let rolled = |zone: &ZoneView| {
            if zone.known {
                zone.rolled.min(zone.wanted)
            } else {
                0
            }
        };
        (!self.zones.iter().all(settled)).then(|| self.zones.iter().map(rolled).sum())
    }

    /// How many pods are known to serve the wanted revision, while that is not known of all that can be asked, and what one
    /// does instead.
    fn catching_up(&self) -> Option<(u32, Option<&str>)> {
        let mut zones = self.zones.iter();
        if zones.all(|zone| zone.updated.saturating_add(zone.unknown) >= zone.wanted) {
            return None;
        }
        let zones = self.zones.iter();
        let updated = zones.map(|zone| zone.updated.min(zone.wanted)).sum();
        let mut zones = self.zones.iter();
        Some((updated, zones.find_map(|zone| zone.behind.as_deref())))
    }

    /// What is to be added of pods that cannot be asked what they serve.
    fn unknown(&self) -> String {
        match self.zones.iter().map(|zone| zone.unknown).sum::<u32>() {
            0 => String::new(),
            unknown => format!(
                "; of {unknown} pods it is not known what they serve: they do not answer the operator"
            ),
        }
    }

    /// Why the last attempt broke off, while it is to be made again.
    fn setback(&self) -> Option<&Failure> {
        let waits = self.memory.retry.is_some() || self.memory.restoring.is_some();
        self.rollout.setback().filter(|_| waits)
    }

    /// What holds the deploy up that is under way.
    fn hurdle(&self) -> Option<&str> {
        let attempt = self.memory.attempting.as_ref()?;
        self.hurdle
            .filter(|_| matches!(attempt.stage, Stage::Deploying(_)))
    }

    fn problem(&self) -> Option<(&str, &str)> {
        let zone = self
            .zones
            .iter()
            .find(|zone| zone.problem.is_some() && zone.ready < zone.wanted)?;
        zone.problem
            .as_ref()
            .map(|(reason, message)| (reason.as_str(), message.as_str()))
    }

    fn pods(&self) -> (u32, u32) {
        let ready = self
            .zones
            .iter()
            .map(|zone| zone.ready.min(zone.wanted))
            .sum();
        let wanted = self.zones.iter().map(|zone| zone.wanted).sum();
        (ready, wanted)
    }

    /// Where the group stands.
    pub(super) fn outcome(&self) -> Outcome {
        if let Some(attempt) = &self.memory.attempting {
            let (reason, verb) = match &attempt.stage {
                Stage::Fetching => (reasons::FETCHING, "fetching"),
                Stage::Deploying(_) => (reasons::DEPLOYING, "deploying"),
                Stage::Reloading(_) => (reasons::RELOADING, "loading"),
            };
            let mut message = format!("{verb} {}", attempt.revision.label);
            if let Some(hurdle) = self.hurdle() {
                message = format!("{message}: {hurdle}");
            }
            return Outcome::Progressing { reason, message };
        }
        if let Some(setback) = self.setback() {
            return Outcome::Progressing {
                reason: reasons::RETRYING,
                message: format!("{}; it is tried again", setback.message),
            };
        }
        let Some(serving) = &self.memory.serving else {
            return self.nothing_serves();
        };
        let (ready, wanted) = self.pods();
        if !self.serves() {
            let (reason, message) = self.problem().map_or_else(
                || {
                    (
                        reasons::PODS_NOT_READY,
                        format!("{ready} of {wanted} pods answer"),
                    )
                },
                |(_, message)| {
                    (
                        reasons::PODS_NOT_READY,
                        format!("{ready} of {wanted} pods answer: {message}"),
                    )
                },
            );
            return Outcome::Progressing { reason, message };
        }
        if let Some(rolled) = self.rolling() {
            return Outcome::Progressing {
                reason: reasons::ROLLING_OUT,
                message: format!("{rolled} of {wanted} pods run with the newest settings"),
            };
        }
        let label = &serving.revision.label;
        if let Some((updated, behind)) = self.catching_up() {
            let mut message = format!("{updated} of {wanted} pods are known to serve {label}");
            if let Some(behind) = behind {
                message = format!("{message}; {behind}");
            }
            return Outcome::Progressing {
                reason: reasons::CATCHING_UP,
                message,
            };
        }
        let (reason, message) = match self.memory.observed_failure() {
            Some(failed) if failed.served => (
                reasons::ROLLED_BACK,
                format!(
                    "{label} serves again; {} served and was taken back: {}",
                    failed.revision.label, failed.message
                ),
            ),
            Some(failed) => (
                reasons::LAST_GOOD_SERVES,
                format!(
                    "{label} goes on serving; {} was refused: {}",
                    failed.revision.label, failed.message
                ),
            ),
            None => (reasons::SERVING, format!("{label} serves in {wanted} pods")),
        };
        let message = message + &self.unknown();
        Outcome::Ready { reason, message }
    }

    fn nothing_serves(&self) -> Outcome {
        if let Some(failed) = self.memory.observed_failure() {
            return Outcome::Stalled {
                reason: reasons::DEPLOY_FAILED,
                message: format!("{} was refused: {}", failed.revision.label, failed.message),
            };
        }
        if let Some(trouble) = self.rollout.trouble() {
            let (reason, message) = (reasons::SOURCE_FAILED, trouble.finding.message.clone());
            return if trouble.transient {
                Outcome::Progressing { reason, message }
            } else {
                Outcome::Stalled { reason, message }
            };
        }
        if self.memory.settings.suspended {
            return Outcome::Stalled {
                reason: reasons::SUSPENDED,
                message: "spec.source.suspend is set and nothing was deployed before".to_owned(),
            };
        }
        Outcome::Progressing {
            reason: reasons::RESOLVING,
            message: "looking where the source's ref points".to_owned(),
        }
    }

    pub(super) fn source(&self, before: &[Condition]) -> Told {
        let kind = conditions::SOURCE_FETCHED;
        let observed = self.memory.observed.as_ref();
        if self.memory.settings.suspended {
            let message = match observed {
                Some(observed) => format!(
                    "spec.source.suspend is set: nothing newer than {} is looked for",
                    observed.label
                ),
                None => "spec.source.suspend is set: the source is not asked".to_owned(),
            };
            return Told::new(kind, observed.map(|_| true), reasons::SUSPENDED, &message);
        }
        if let Some(trouble) = self.rollout.trouble() {
            let finding = &trouble.finding;
            return Told::new(kind, Some(false), finding.reason.as_str(), &finding.message);
        }
        // A process that has not asked yet knows no better than the one before it. What it told of a source that was
        // suspended, or is another by now, is over.
        if !self.rollout.has_looked()
            && let Some(told) = Told::before(before, kind)
            && told.reason != reasons::SUSPENDED
            && (observed.is_some() || told.status != "True")
        {
            return told;
        }
        match observed {
            Some(observed) => Told::new(kind, Some(true), reasons::FETCHED, &observed.label),
            None => Told::new(
                kind,
                None,
                reasons::RESOLVING,
                "the source was not asked yet",
            ),
        }
    }

    pub(super) fn deployed(&self) -> Told {
        let kind = conditions::DEPLOYED;
        if let Some(failed) = self.memory.observed_failure() {
            let what = if failed.served {
                "served and was taken back: "
            } else {
                ""
            };
            let message = format!("{}: {what}{}", failed.revision.label, failed.message);
            return Told::new(kind, Some(false), failed.reason.as_str(), &message);
        }
        if let Some(setback) = self.setback() {
            return Told::new(kind, None, setback.reason.as_str(), &setback.message);
        }
        match (&self.memory.attempting, &self.memory.serving) {
            (Some(attempt), _) => {
                let label = &attempt.revision.label;
                let message = self
                    .hurdle()
                    .map_or_else(|| label.clone(), |hurdle| format!("{label}: {hurdle}"));
                Told::new(kind, None, reasons::UNDER_WAY, &message)
            }
            (None, Some(serving)) => {
                Told::new(kind, Some(true), reasons::DEPLOYED, &serving.revision.label)
            }
            (None, None) => Told::new(kind, None, reasons::NOT_YET, "nothing was deployed yet"),
        }
    }

    pub(super) fn workers(&self) -> Told {
        let kind = conditions::WORKERS_AVAILABLE;
        let (ready, wanted) = self.pods();
        let message = format!("{ready} of {wanted} pods answer");
        if self.serves() {
            return Told::new(kind, Some(true), reasons::PODS_READY, &message);
        }
        if self.memory.serving.is_none() {
            return Told::new(
                kind,
                Some(false),
                reasons::NOTHING_TO_SERVE,
                "pods start with the first revision that deploys",
            );
        }
        match self.problem() {
            Some((reason, text)) => {
                Told::new(kind, Some(false), reason, &format!("{message}: {text}"))
            }
            None => Told::new(kind, Some(false), reasons::PODS_NOT_READY, &message),
        }
    }

    /// Everything but conditions and generation.
    pub(super) fn status(&self) -> McpGroupStatus {
        let memory = self.memory;
        let serving = memory.serving.as_ref();
        let known = serving.and_then(|serving| self.rollout.known(&serving.inputs));
        let (errors, total) = self.errors();
        let attempted = memory
            .attempting
            .as_ref()
            .map(|attempt| &attempt.revision)
            .or_else(|| memory.observed_failure().map(|failed| &failed.revision))
            .or_else(|| serving.map(|serving| &serving.revision));
        let label = |text: &str| cut(text, MAX_TEXT);
        let (ready, wanted) = self.pods();
        McpGroupStatus {
            observed_generation: None,
            conditions: Vec::new(),
            revision: Some(RevisionStatus {
                serving: serving.map(|serving| label(&serving.revision.label)),
                attempted: attempted.map(|revision| label(&revision.label)),
                previous: previous(memory).map(|served| label(&served.revision.label)),
                observed: memory
                    .observed
                    .as_ref()
                    .map(|revision| label(&revision.label)),
            }),
            tools: Some(known.map_or(0, |known| known.tools)),
            replicas: Some(format!("{ready}/{wanted}")),
            errors,
            errors_total: Some(total),
            packages: known
                .map(|known| known.packages.clone())
                .unwrap_or_default(),
            zones: self
                .zones
                .iter()
                .map(|zone| ZoneStatus {
                    name: zone.name.clone(),
                    replicas: zone.wanted,
                    ready: zone.ready,
                    updated: zone.updated,
                })
                .collect(),
            last_deploy: self.rollout.last().map(|known| LastDeploy {
                revision: label(&known.revision.label),
                outcome: match known.outcome {
                    DeployOutcome::Ok => "ok",
                    DeployOutcome::Partial => "partial",
                    DeployOutcome::Failed => "failed",
                }
                .to_owned(),
                timings: known.timings,
            }),
            last_requested_at: memory.requested.clone(),
        }
    }

    /// The errors list, and how long it is in all.
    fn errors(&self) -> (Vec<ErrorEntry>, u32) {
        let mut first: Vec<ErrorEntry> = Vec::new();
        if let Some(trouble) = self.rollout.trouble() {
            first.push(entry(&trouble.finding));
        }
        if let Some(setback) = self.setback() {
            first.push(entry(&Finding::group(
                setback.reason,
                setback.message.clone(),
            )));
        }
        first.extend(self.faults.iter().map(entry));
        let subject = if let Some(failed) = self.memory.observed_failure() {
            let known = self.rollout.known(&failed.inputs);
            let known = known.filter(|known| !known.errors.is_empty());
            if known.is_none() {
                // It deployed well and failed later, or no report came.
                let finding = Finding::group(failed.reason, failed.message.clone());
                first.push(entry(&finding));
            }
            known
        } else {
            let serving = self.memory.serving.as_ref();
            serving.and_then(|serving| self.rollout.known(&serving.inputs))
        };
        let before = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let total = subject.map_or(0, |known| known.errors_total);
        first.extend(
            subject
                .into_iter()
                .flat_map(|known| known.errors.iter().cloned()),
        );
        first.truncate(MAX_ERRORS);
        (first, total.saturating_add(before))
    }
}

/// What a roll back goes to: the newest that served before and is other code.
fn previous(memory: &Memory) -> Option<&Served> {
    let serving = &memory.serving.as_ref()?.revision.commit;
    let mut before = memory.previous.iter();
    before.find(|served| served.revision.commit != *serving)
}

/// Whether what was told of pods is about the revision that serves now.
pub(super) fn is_about(told: &McpGroupStatus, memory: &Memory) -> bool {
    let told = told.revision.as_ref();
    let told = told.and_then(|revision| revision.serving.as_ref());
    let serving = memory.serving.as_ref();
    let label = serving.map(|serving| cut(&serving.revision.label, MAX_TEXT));
    told.is_some() && told == label.as_ref()
}

/// Puts what stops the group before everything else; once, however often it is told.
pub(super) fn tell_first(status: &mut McpGroupStatus, invalid: &Invalid) {
    let before = status.errors.len();
    status.errors.retain(|entry| !Invalid::is_told_by(entry));
    let removed = u32::try_from(before - status.errors.len()).unwrap_or_default();
    let total = status.errors_total.unwrap_or_default();
    status.errors.insert(0, entry(&invalid.finding()));
    status.errors.truncate(MAX_ERRORS);
    status.errors_total = Some(total.saturating_sub(removed).saturating_add(1));
}
