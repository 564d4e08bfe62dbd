//! How often the containers of pods ended while a revision served: from what the cluster tells of each pod, and from what was counted
//! before. It is remembered, so that another process goes on counting where this one stopped.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::pods::PodView;

/// So many ends of a pod's container within [`WINDOW`] are no accident.
const ENDS: usize = 3;
/// Seconds. The pauses of a container that ends at once grow to five minutes.
const WINDOW: i64 = 20 * 60;

/// The ends of pods. Empty while no container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ends {
    /// By uid.
    pods: BTreeMap<String, OfPod>,
    /// When the pods were looked at last, by this process.
    #[serde(skip)]
    noted: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OfPod {
    /// The ends that were counted, those of before the revision among them.
    counted: u32,
    /// When the last of the revision's were, in seconds since 1970.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    at: VecDeque<i64>,
}

impl Ends {
    /// Counts from how the pods are: what ended before is not the revision's.
    pub(super) fn from_now_on(pods: &[PodView]) -> Self {
        let ended = pods.iter().filter(|pod| pod.restarts > 0);
        let counted = ended.map(|pod| {
            let of = OfPod {
                counted: pod.restarts,
                at: VecDeque::new(),
            };
            (pod.uid.clone(), of)
        });
        Self {
            pods: counted.collect(),
            noted: None,
        }
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Counts what ended since the last time.
    pub(super) fn note(&mut self, pods: &[PodView], clock: i64) {
        self.pods
            .retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        for pod in pods.iter().filter(|pod| pod.restarts > 0) {
            let since = self.noted.unwrap_or(pod.created).max(pod.created);
            let of = self.pods.entry(pod.uid.clone()).or_default();
            of.count(pod, since, clock);
        }
        self.noted = Some(clock);
    }

    /// Whether a pod ended too often of late.
    pub(super) fn are_too_many(&self, pod: &PodView) -> bool {
        let (Some(of), Some(now)) = (self.pods.get(&pod.uid), self.noted) else {
            return false;
        };
        let late = of.at.iter().filter(|end| now - **end <= WINDOW);
        late.count() >= ENDS
    }
}

impl OfPod {
    fn count(&mut self, pod: &PodView, since: i64, clock: i64) {
        let missed = pod.restarts.saturating_sub(self.counted) as usize;
        if missed == 0 {
            return;
        }
        self.counted = pod.restarts;
        // The cluster tells when the last one was. Those before it count as early as they can have been: a revision is not blamed
        // for what happened in hours without an operator.
        let last = pod.ended.unwrap_or(clock);
        let early = self.at.back().map_or(since, |end| since.max(*end));
        let before = std::iter::repeat_n(early.min(last), (missed - 1).min(ENDS));
        self.at.extend(before.chain([last]));
        while self.at.len() > ENDS {
            self.at.pop_front();
        }
    }
}
