//! Exponential pauses per object, with jitter.

use std::time::Duration;

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
    fn jitter_stays_within_a_tenth_and_is_never_late() {
        let pause = Duration::from_secs(100);
        for _ in 0..1000 {
            let jittered = jitter(pause, "ns/g").as_secs_f64();
            assert!((90.0..=100.0).contains(&jittered), "{jittered}");
        }
    }
}
