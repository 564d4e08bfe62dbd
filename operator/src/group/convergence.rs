//! Which pods serve what is wanted: those that a push has loaded it into, and those that say so. A pod that answers calls is
//! asked once, and again, later each time, while it serves something else. When all serve it, nobody is asked. A pod that
//! answers calls and never the operator (a mesh that lets nobody else in, an operator outside of the cluster) is not known
//! to serve it, and does not hold the group up for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use ramen_rollout::Inputs;
use tokio::time::Instant;

use crate::pods::PodView;
use crate::reload::{Answer, Said};

/// A pod that serves something else is asked again after this time, later each time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LAST_PAUSE: Duration = Duration::from_mins(5);
/// After as many questions that it did not answer, nothing is expected of a pod.
const MAX_UNANSWERED: u32 = 3;

/// What is known of the pods that answer calls.
#[derive(Debug, Default)]
pub(crate) struct Convergence {
    /// What is wanted, which all below is about.
    of: Option<Inputs>,
    /// By name; a pod that was not asked yet is not in it.
    heard: BTreeMap<String, Heard>,
    /// What was heard holds no more: what was told before does not stand in for it.
    doubted: bool,
    asked: u32,
    asking: bool,
    ask_at: Option<Instant>,
}

#[derive(Debug)]
struct Heard {
    /// How often its container had ended by then, once that was counted: another one loads anew.
    restarts: Option<u32>,
    answer: Answer,
    /// How many questions in a row it did not answer.
    unanswered: u32,
}

impl Convergence {
    fn turn_to(&mut self, wanted: Option<&Inputs>) {
        if self.of.as_ref() != wanted {
            *self = Self {
                of: wanted.cloned(),
                asking: self.asking,
                ..Self::default()
            };
        }
    }

    /// Notes which pods there are.
    pub(super) fn note(&mut self, wanted: Option<&Inputs>, pods: &[PodView], now: Instant) {
        self.turn_to(wanted);
        self.heard.retain(|name, heard| {
            let mut pods = pods.iter();
            pods.find(|pod| pod.name == *name)
                .is_some_and(|pod| *heard.restarts.get_or_insert(pod.restarts) == pod.restarts)
        });
        if self.asking {
            return;
        }
        if self.behind(pods.iter()).is_none() {
            (self.asked, self.ask_at) = (0, None);
        } else if self.ask_at.is_none() {
            let pause = FIRST_PAUSE.saturating_mul(1 << self.asked.min(4));
            self.ask_at = Some(now + pause.min(LAST_PAUSE));
        }
    }

    /// The pods that are to be asked now.
    pub(super) fn asks(&mut self, pods: &[PodView], now: Instant) -> Vec<PodView> {
        if self.asking || self.of.is_none() {
            return Vec::new();
        }
        let again = self.ask_at.take_if(|at| *at <= now).is_some();
        let due = pods.iter().filter(|pod| {
            let heard = self.heard.get(&pod.name);
            answers(pod) && heard.is_none_or(|heard| again && heard.answer != Answer::Serves)
        });
        let due: Vec<PodView> = due.cloned().collect();
        self.asked = self.asked.saturating_add(u32::from(again));
        self.asking = !due.is_empty();
        due
    }

    /// What they said.
    pub(super) fn said(&mut self, of: &Inputs, said: Vec<Said>) {
        self.asking = false;
        if self.of.as_ref() == Some(of) {
            for Said { pod, answer } in said {
                let before = self.heard.get(&pod).map_or(0, |heard| heard.unanswered);
                let silent = answer == Answer::Silent;
                let heard = Heard {
                    restarts: None,
                    answer,
                    unanswered: if silent { before.saturating_add(1) } else { 0 },
                };
                self.heard.insert(pod, heard);
            }
        } else {
            // A pod that was asked then may have gone back to it after it was told what is wanted now.
            self.heard.clear();
        }
    }

    /// Pods may serve something else by now: all are asked again.
    pub(super) fn doubt(&mut self) {
        self.heard.clear();
        self.doubted = true;
        self.ask_at = None;
    }

    /// A push has loaded it into these pods.
    pub(super) fn loaded(&mut self, wanted: &Inputs, pods: Vec<String>) {
        self.turn_to(Some(wanted));
        let serves = || Heard {
            restarts: None,
            answer: Answer::Serves,
            unanswered: 0,
        };
        self.heard
            .extend(pods.into_iter().map(|pod| (pod, serves())));
    }

    /// When somebody is to be asked again.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ask_at.filter(|_| !self.asking)
    }

    /// No pod was heard of yet: this process knows nothing.
    pub(crate) fn is_blank(&self) -> bool {
        self.heard.is_empty() && !self.doubted
    }

    /// How many of these pods serve what is wanted, and how many of them were not asked yet.
    pub(crate) fn count<'p>(&self, pods: impl Iterator<Item = &'p PodView>) -> (u32, u32) {
        let (mut serve, mut unasked) = (0, 0);
        for pod in pods.filter(|pod| answers(pod)) {
            match self.heard.get(&pod.name) {
                None => unasked += 1,
                Some(heard) => serve += u32::from(heard.answer == Answer::Serves),
            }
        }
        (serve, unasked)
    }

    /// How many of these pods were asked often enough in vain: what they serve is not known.
    pub(crate) fn unknown<'p>(&self, pods: impl Iterator<Item = &'p PodView>) -> u32 {
        let mut unknown = 0;
        for pod in pods.filter(|pod| answers(pod)) {
            let heard = self.heard.get(&pod.name);
            unknown += u32::from(heard.is_some_and(|heard| heard.unanswered >= MAX_UNANSWERED));
        }
        unknown
    }

    /// The first of these pods that is not known to serve it, and why.
    pub(crate) fn behind<'p>(&self, pods: impl Iterator<Item = &'p PodView>) -> Option<String> {
        let pods = pods.filter(|pod| answers(pod));
        let behind = pods.filter_map(|pod| {
            let why = match &self.heard.get(&pod.name)?.answer {
                Answer::Serves => return None,
                Answer::Behind(why) => why.as_str(),
                // The same words each time, however it is not reached.
                Answer::Silent => "it does not answer the operator",
            };
            Some((&pod.name, why))
        });
        let (name, why) = behind.min()?;
        Some(format!("pod {name}: {why}"))
    }
}

/// Whether a pod answers calls.
fn answers(pod: &PodView) -> bool {
    pod.ready && pod.address.is_some() && !pod.leaving
}

#[cfg(test)]
mod tests;
