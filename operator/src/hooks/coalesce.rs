//! How many hooks count: a bucket of tokens per receiver, deliveries that came before, and one hint per
//! group and window. Time is given from outside. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
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

/// The state of it all.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    buckets: HashMap<String, Bucket>,
    seen: HashSet<(String, String)>,
    order: VecDeque<(Instant, (String, String))>,
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

    /// Receivers that are gone.
    pub(super) fn retain(&mut self, known: impl Fn(&str) -> bool) {
        self.buckets.retain(|receiver, _| known(receiver));
    }
}

/// Groups that are to look, each once.
pub(super) fn once(groups: impl IntoIterator<Item = GroupKey>) -> Vec<GroupKey> {
    let mut groups: Vec<GroupKey> = groups.into_iter().collect();
    groups.sort();
    groups.dedup();
    groups
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
}
