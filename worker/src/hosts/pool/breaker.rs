//! Which package keeps ending its hosts, and is therefore not called for a while.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// So much blame within [`WINDOW`] opens the breaker. A host that ended with one call in it puts a
/// blame of 1 on that package; with `n` calls, `1/n` on each.
const LIMIT: f64 = 3.0;
/// Blame older than this is forgotten.
const WINDOW: Duration = Duration::from_mins(1);
/// The first pause; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_mins(10);

#[derive(Default)]
struct Record {
    blame: f64,
    since: Option<Instant>,
    pauses: u32,
    closed_until: Option<Instant>,
}

/// Blame per package.
#[derive(Default)]
pub(super) struct Breaker {
    records: HashMap<u32, Record>,
}

impl Breaker {
    /// A host ended while these packages ran, each with whether its caller had left. If some had,
    /// they are to blame; else all are.
    /// `weight` is how sure it is that a call ended the host.
    pub(super) fn host_ended(&mut self, running: &[(u32, bool)], weight: f64, now: Instant) {
        let left: Vec<u32> = running
            .iter()
            .filter(|(_, left)| *left)
            .map(|(id, _)| *id)
            .collect();
        let blamed = if left.is_empty() {
            running.iter().map(|(id, _)| *id).collect()
        } else {
            left
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful of calls")]
        let share = weight / blamed.len().max(1) as f64;
        for package in blamed {
            let record = self.records.entry(package).or_default();
            if record
                .since
                .is_none_or(|since| now.duration_since(since) > WINDOW)
            {
                record.blame = 0.0;
                record.since = Some(now);
            }
            record.blame += share;
            if record.blame + f64::EPSILON >= LIMIT {
                let pause = PAUSE
                    .saturating_mul(1 << record.pauses.min(10))
                    .min(MAX_PAUSE);
                record.closed_until = Some(now + pause);
                record.pauses += 1;
                // One more after the pause closes it again.
                record.blame = LIMIT - 1.0;
                record.since = Some(now + pause);
            }
        }
    }

    /// How long the package is not to be called.
    pub(super) fn pause(&self, package: u32, now: Instant) -> Option<Duration> {
        let until = self.records.get(&package)?.closed_until?;
        until
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// Nothing was ever blamed: the usual case, asked on every call.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ends_close_it_for_a_while_and_one_more_for_twice_as_long() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..2 {
            breaker.host_ended(&[(7, false)], 1.0, start);
        }
        assert_eq!(breaker.pause(7, start), None);
        breaker.host_ended(&[(7, false)], 1.0, start);
        assert_eq!(breaker.pause(7, start), Some(PAUSE));
        let later = start + PAUSE;
        assert_eq!(breaker.pause(7, later), None);
        breaker.host_ended(&[(7, false)], 1.0, later);
        assert_eq!(breaker.pause(7, later), Some(PAUSE * 2));
        assert_eq!(breaker.pause(8, later), None);
    }

    #[test]
    fn bystanders_of_an_overdue_call_are_not_blamed() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        for _ in 0..3 {
            breaker.host_ended(&[(1, false), (2, true)], 1.0, now);
        }
        assert_eq!(breaker.pause(1, now), None);
        assert!(breaker.pause(2, now).is_some());
    }

    #[test]
    fn blame_is_shared_and_forgotten() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        for _ in 0..5 {
            breaker.host_ended(&[(1, false), (2, false)], 1.0, now);
        }
        assert_eq!(breaker.pause(1, now), None);
        let later = now + WINDOW + Duration::from_secs(1);
        breaker.host_ended(&[(1, false)], 1.0, later);
        assert_eq!(breaker.pause(1, later), None);
    }
}
