//! How many hooks count: a bucket of tokens per receiver, deliveries that came before, and one hint per
//! group and window. A hint that comes too early is kept for the end of the window, so that the last push
//! of many is never lost. Time is given from outside. Pure.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::group::GroupKey;

/// Hooks that a receiver may get at once.
const BURST: f64 = 10.0;
/// Hooks per second after that.
const RATE: f64 = 1.0;
/// How long a delivery is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Deliveries that are remembered.
const MAX_DELIVERIES: usize = 4096;

/// Between two hints for one group.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// The state of it all.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    buckets: HashMap<String, Bucket>,
    seen: HashSet<(String, String)>,
    order: VecDeque<(Instant, (String, String))>,
    /// When each group was last hinted at; no older than the window.
    hinted: HashMap<GroupKey, Instant>,
    /// Groups whose hint waits for the end of the window, and the receiver that it came from.
    late: BTreeMap<GroupKey, String>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Traffic {
    /// Whether a receiver may have one more hook now. Only hooks with the right signature count, so that a
    /// stranger cannot use them up.
    pub(super) fn admits(&mut self, receiver: &str, now: Instant) -> bool {
        let bucket = self.buckets.entry(receiver.to_owned()).or_insert(Bucket {
            tokens: BURST,
            at: now,
        });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * RATE).min(BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// Whether a delivery is new to its receiver.
    pub(super) fn is_new(&mut self, receiver: &str, delivery: &str, now: Instant) -> bool {
        while let Some((at, _)) = self.order.front()
            && (now.saturating_duration_since(*at) > REMEMBERED
                || self.order.len() >= MAX_DELIVERIES)
        {
            if let Some((_, old)) = self.order.pop_front() {
                self.seen.remove(&old);
            }
        }
        let id = (receiver.to_owned(), delivery.to_owned());
        let new = self.seen.insert(id.clone());
        if new {
            self.order.push_back((now, id));
        }
        new
    }

    /// Forgets receivers that are gone.
    pub(super) fn retain(&mut self, known: impl Fn(&str) -> bool) {
        self.buckets.retain(|receiver, _| known(receiver));
    }

    /// A hook is about this group. True: hint now. Else the hint is kept; see [`Self::take_late`]. A hook
    /// that was not admitted never hints at once.
    pub(super) fn hint(
        &mut self,
        group: &GroupKey,
        receiver: &str,
        admitted: bool,
        now: Instant,
    ) -> bool {
        self.forget(now);
        if admitted && !self.hinted.contains_key(group) {
            self.late.remove(group);
            self.hinted.insert(group.clone(), now);
            return true;
        }
        self.late.insert(group.clone(), receiver.to_owned());
        false
    }

    /// Whether hints wait.
    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The groups whose hint waited long enough, with the receiver.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<(GroupKey, String)> {
        self.forget(now);
        let hinted = &mut self.hinted;
        let due: Vec<(GroupKey, String)> = self
            .late
            .extract_if(.., |group, _| !hinted.contains_key(group))
            .collect();
        hinted.extend(due.iter().map(|(group, _)| (group.clone(), now)));
        due
    }

    fn forget(&mut self, now: Instant) {
        self.hinted
            .retain(|_, at| now.saturating_duration_since(*at) < WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_hooks_a_second_are_ten_and_one_more_each_second() {
        let mut traffic = Traffic::default();
        let start = Instant::now();
        let mut through = 0;
        for n in 0..5000_u32 {
            let now = start + Duration::from_millis(u64::from(n));
            through += u32::from(traffic.admits("r", now));
        }
        assert!((14..=15).contains(&through), "{through}");
        assert!(traffic.admits("other", start));
        traffic.retain(|name| name == "r");
        assert_eq!(traffic.buckets.len(), 1);
    }

    #[test]
    fn a_delivery_counts_once_for_ten_minutes() {
        let mut traffic = Traffic::default();
        let start = Instant::now();
        assert!(traffic.is_new("r", "1", start));
        assert!(!traffic.is_new("r", "1", start + Duration::from_secs(599)));
        assert!(traffic.is_new("s", "1", start));
        assert!(traffic.is_new("r", "1", start + Duration::from_secs(601)));
        for n in 0..10_000 {
            traffic.is_new("r", &n.to_string(), start + Duration::from_secs(602));
        }
        assert!(traffic.seen.len() <= MAX_DELIVERIES && traffic.order.len() <= MAX_DELIVERIES);
    }

    #[test]
    fn a_group_is_hinted_at_once_and_then_at_the_end_of_each_window() {
        let (calc, other) = (GroupKey::new("ns", "calc"), GroupKey::new("ns", "other"));
        let mut traffic = Traffic::default();
        let start = Instant::now();
        let mut hints = 0;
        for n in 0..5000_u32 {
            let now = start + Duration::from_millis(u64::from(n));
            hints += u32::from(traffic.hint(&calc, "r", true, now));
            hints += u32::try_from(traffic.take_late(now).len()).unwrap();
        }
        assert_eq!(hints, 5);
        assert!(traffic.has_late(), "the last push is not lost");
        let end = start + Duration::from_secs(5);
        assert!(
            traffic.hint(&other, "r", true, end),
            "groups do not share a window"
        );
        assert_eq!(traffic.take_late(end + WINDOW), [(calc, "r".to_owned())]);
        assert!(!traffic.has_late());
        assert!(traffic.hinted.len() <= 2);
    }

    #[test]
    fn a_hook_over_the_limit_is_kept_as_a_hint_for_later() {
        let calc = GroupKey::new("ns", "calc");
        let mut traffic = Traffic::default();
        let start = Instant::now();
        assert!(!traffic.hint(&calc, "r", false, start));
        assert!(!traffic.hint(&calc, "r", false, start));
        assert_eq!(traffic.take_late(start), [(calc.clone(), "r".to_owned())]);
        assert!(traffic.take_late(start + WINDOW).is_empty());
        // A hint that goes out now takes the waiting one with it.
        assert!(!traffic.hint(&calc, "r", false, start + WINDOW * 2));
        assert!(traffic.hint(&calc, "r", true, start + WINDOW * 2));
        assert!(!traffic.has_late());
    }
}
