//! Exponential pauses per object, with jitter.

use std::time::Duration;

use tokio::time::Instant;

/// First pause after an error.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_mins(5);

/// How often something failed in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    times: u32,
}

impl Backoff {
    /// The next pause: doubled each time, at most five minutes.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.times.min(9)).min(LONGEST);
        self.times = self.times.saturating_add(1);
        pause
    }
}

/// The pauses of an object that something else may wake before its pause is over.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    backoff: Backoff,
    until: Option<Instant>,
}

impl Pauses {
    /// From a failure at this time to the next try. A failure before the last pause is over leaves the end of that pause: what
    /// ten events in a second run into is one fault of the API server, and must not cost minutes when it is over.
    pub(crate) fn failed(&mut self, now: Instant, seed: &str) -> Duration {
        if let Some(until) = self.until.filter(|until| now < *until) {
            return until - now;
        }
        let pause = jitter(self.backoff.next(), seed);
        self.until = Some(now + pause);
        pause
    }
}

/// A number from 0 to 1 that differs from call to call, without a generator.
fn unit(seed: &str) -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    let hash = RandomState::new().hash_one(seed);
    // 53 bits are what a double holds.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = (hash >> 11) as f64 / (1_u64 << 53) as f64;
    unit
}

/// Up to a tenth earlier: many objects must not come at once, and an interval is a promise.
pub(crate) fn jitter(pause: Duration, seed: &str) -> Duration {
    pause.mul_f64(0.9 + 0.1 * unit(seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..12).map(|_| backoff.next().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn failures_within_a_pause_do_not_make_it_longer() {
        let (mut pauses, begin) = (Pauses::default(), Instant::now());
        let at = |secs: f64| begin + Duration::from_secs_f64(secs);
        let first = pauses.failed(at(0.0), "ns/g").as_secs_f64();
        assert!((0.9..=1.0).contains(&first), "{first}");
        for burst in 1..=8 {
            let passed = f64::from(burst) / 10.0;
            let rest = pauses.failed(at(passed), "ns/g").as_secs_f64();
            assert!((rest - (first - passed)).abs() < 1e-6, "{rest}");
        }
        let second = pauses.failed(at(first), "ns/g").as_secs_f64();
        assert!((1.8..=2.0).contains(&second), "{second}");
    }

    #[test]
    fn jitter_stays_within_a_tenth_and_is_never_late() {
        let pause = Duration::from_secs(100);
        for _ in 0..1000 {
            let jittered = jitter(pause, "ns/g").as_secs_f64();
            assert!((90.0..=100.0).contains(&jittered), "{jittered}");
        }
    }
}
