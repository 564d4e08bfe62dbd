//! Whether what serves lives: from what becomes of its pods, and from what workers tell of themselves.
//! Decides when a revision that had been deployed well is to be taken back.

mod ends;

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_group::Reason;
use ramen_rollout::{Failure, Inputs};
use tokio::time::Instant;

pub(crate) use self::ends::Ends;

use crate::pods::PodView;
use crate::reload::Ailment;

/// A pod that runs and does not answer calls is asked why after this time, later each time.
const FIRST_QUESTION: Duration = Duration::from_secs(20);
const LAST_QUESTION: Duration = Duration::from_mins(5);

/// What is known of the pods that serve a revision.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The revision that all below is about, and since when it serves, as far as this process knows.
    of: Option<(Inputs, Instant)>,
    ends: Ends,
    /// By name: what pods said that run and do not answer.
    ailing: BTreeMap<String, Ailment>,
    /// Pods run that do not answer.
    silent: bool,
    asked: u32,
    asking: bool,
    ask_at: Option<Instant>,
}

impl Health {
    /// Goes on with what was remembered of the pods that serve a revision.
    pub(super) fn resume(ends: Ends, serving: Option<&Inputs>, now: Instant) -> Self {
        Self {
            of: serving.map(|inputs| (inputs.clone(), now)),
            ends,
            ..Self::default()
        }
    }

    /// What is to be remembered.
    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// What a pod said of itself.
    pub(crate) fn ailing(&self, pod: &str) -> Option<&Ailment> {
        self.ailing.get(pod)
    }

    /// Notes how the pods of what serves are; `clock` is the time of now in seconds since 1970.
    pub(super) fn note(
        &mut self,
        serving: Option<&Inputs>,
        pods: &[PodView],
        now: Instant,
        clock: i64,
    ) {
        if self.of.as_ref().map(|(inputs, _)| inputs) != serving {
            *self = Self {
                of: serving.map(|inputs| (inputs.clone(), now)),
                ends: Ends::from_now_on(pods),
                asking: self.asking,
                ..Self::default()
            };
        }
        self.ends.note(pods, clock);
        let silent = |pod: &&PodView| pod.address.is_some() && !pod.ready && pod.trouble.is_none();
        // Before anything serves, nobody is asked.
        self.silent = serving.is_some() && pods.iter().any(|pod| silent(&pod));
        self.ailing
            .retain(|name, _| pods.iter().filter(silent).any(|pod| pod.name == *name));
        if !self.silent {
            (self.asked, self.ask_at) = (0, None);
        } else if self.ask_at.is_none() && !self.asking {
            let pause = FIRST_QUESTION.saturating_mul(1 << self.asked.min(4));
            self.ask_at = Some(now + pause.min(LAST_QUESTION));
        }
    }

    /// Whether the pods that do not answer are to be asked why, now.
    pub(super) fn asks(&mut self, now: Instant) -> bool {
        let due = self.silent && !self.asking && self.ask_at.is_some_and(|at| at <= now);
        if due {
            (self.asking, self.ask_at) = (true, None);
            self.asked = self.asked.saturating_add(1);
        }
        due
    }

    /// What they said.
    pub(super) fn said(&mut self, of: &Inputs, ailments: Vec<Ailment>) {
        self.asking = false;
        if self.of.as_ref().is_some_and(|(inputs, _)| inputs == of) {
            let named = ailments.into_iter();
            self.ailing = named.map(|one| (one.pod.clone(), one)).collect();
        }
    }

    /// When something is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.asking)
    }

    /// How long the revision has served, as far as this process knows.
    pub(super) fn serves_for(&self, now: Instant) -> Duration {
        self.of
            .as_ref()
            .map_or(Duration::ZERO, |(_, since)| now - *since)
    }

    /// Why the revision is not fit to serve, when most of the pods that run it say so. Pods of another
    /// image run something else.
    pub(super) fn verdict(&self, pods: &[PodView], image: Option<&str>) -> Option<Failure> {
        let runs = |pod: &&PodView| {
            !pod.leaving
                && image.is_none_or(|image| pod.image == image)
                && (pod.address.is_some() || pod.died())
        };
        let all = pods.iter().filter(runs).count();
        let mut sick = pods
            .iter()
            .filter(runs)
            .filter_map(|pod| self.sickness(pod));
        let first = sick.next()?;
        (2 * (1 + sick.count()) > all).then_some(Failure {
            reason: Reason::HostCrashed,
            message: first,
            transient: false,
        })
    }

    fn sickness(&self, pod: &PodView) -> Option<String> {
        if let Some(ailment) = self.ailing.get(&pod.name).filter(|ailment| ailment.blames) {
            return Some(format!("pod {}: {}", pod.name, ailment.message));
        }
        let why = pod.trouble.as_ref().filter(|_| pod.died());
        self.ends.are_too_many(pod).then(|| match why {
            Some(trouble) => format!("pod {}: {}", pod.name, trouble.message),
            None => format!("pod {} ends again and again; look at its log", pod.name),
        })
    }
}

#[cfg(test)]
mod tests;
