//! How long to wait before the next attempt: doubling, capped, with jitter.

use std::time::Duration;

/// The bounds of the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub max: Duration,
    /// A connection that lived this long starts the doubling anew; one that dies sooner goes on with it.
    pub stable: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            max: Duration::from_mins(1),
            stable: Duration::from_secs(30),
        }
    }
}

/// The waits of one server. Each is between half of its step and the whole of it, so that servers that died together
/// do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
    noise: u64,
}

impl Backoff {
    pub(crate) fn new(policy: BackoffPolicy, seed: u64) -> Self {
        Self {
            policy,
            failures: 0,
            noise: seed | 1,
        }
    }

    /// The wait before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let step = self
            .policy
            .first
            .saturating_mul(1 << self.failures.min(20))
            .min(self.policy.max);
        self.failures = self.failures.saturating_add(1);
        // xorshift64: jitter needs no better randomness.
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let half = step / 2;
        let thousandths = u32::try_from(self.noise % 1001).unwrap_or(0);
        half + half * thousandths / 1000
    }

    /// Tells how long the last connection lived.
    pub(crate) fn lived(&mut self, time: Duration) {
        if time >= self.policy.stable {
            self.failures = 0;
        }
    }
}

/// A seed for [`Backoff::new`].
pub(crate) fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness there is only no jitter.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> BackoffPolicy {
        BackoffPolicy {
            first: Duration::from_millis(100),
            max: Duration::from_secs(2),
            stable: Duration::from_secs(10),
        }
    }

    #[test]
    fn waits_double_up_to_the_cap_and_each_has_jitter_below_it() {
        for seed in 0..200 {
            let mut backoff = Backoff::new(policy(), seed);
            for step in [100, 200, 400, 800, 1600, 2000, 2000, 2000] {
                let step = Duration::from_millis(step);
                let wait = backoff.next();
                assert!(wait >= step / 2 && wait <= step, "{wait:?} of {step:?}");
            }
        }
    }

    #[test]
    fn servers_that_died_together_do_not_come_back_together() {
        let waits: std::collections::HashSet<_> = (0..100)
            .map(|seed| Backoff::new(policy(), seed * 7919).next())
            .collect();
        assert!(waits.len() > 30, "{}", waits.len());
    }

    #[test]
    fn only_a_connection_that_lived_long_enough_starts_the_doubling_anew() {
        let mut backoff = Backoff::new(policy(), 3);
        for _ in 0..5 {
            backoff.next();
            backoff.lived(Duration::from_secs(1));
        }
        assert!(backoff.next() >= Duration::from_secs(1));
        backoff.lived(Duration::from_secs(10));
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
