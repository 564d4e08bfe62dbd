//! How long the calls of each package take, as the front sees it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Mean from which on a package's calls count as slow where hosts are chosen. Such a call may burn
/// CPU, and then every other call in its host waits for the interpreter.
pub(super) const SLOW: Duration = Duration::from_millis(5);
/// Mean up to which calls may share a host although another one is free.
const QUICK: Duration = Duration::from_micros(500);
/// Mean up to which an answer is looked for at once when nothing else runs.
const INSTANT: Duration = Duration::from_micros(80);
/// How long it is looked for.
const LINGER: Duration = Duration::from_micros(40);
/// Calls in a row that had the hosts for themselves before answers are looked for: among several
/// callers a thread that looks for one answer keeps the others waiting.
const SINGLE_FILE: u32 = 32;
/// Most calls that are left alone after looking was in vain.
const MAX_PAUSE: u32 = 32;

/// What is to be expected of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is over sooner than another host is awake.
    Quick,
    /// Neither.
    Plain,
    /// It may keep its host busy; also when nothing is known of it.
    Slow,
}

/// The means of a pool's packages, and whether looking for answers pays.
pub(super) struct Pace {
    /// Microseconds by package; 0: not known yet.
    means: Vec<AtomicU32>,
    /// A machine of one processor gains nothing by looking: the host cannot run meanwhile.
    several: bool,
    /// Calls in a row with nothing else running, up to [`SINGLE_FILE`].
    single: AtomicU32,
    /// Calls to leave alone before the next look, and how many it will be after a vain one.
    pause: AtomicU32,
    step: AtomicU32,
}

impl Pace {
    pub(super) fn new(packages: usize) -> Self {
        Self {
            means: (0..packages).map(|_| AtomicU32::new(0)).collect(),
            several: std::thread::available_parallelism().is_ok_and(|count| count.get() > 1),
            single: AtomicU32::new(0),
            pause: AtomicU32::new(0),
            step: AtomicU32::new(0),
        }
    }

    fn mean(&self, package: u32) -> Option<&AtomicU32> {
        self.means.get(usize::try_from(package).ok()?)
    }

    /// A call took so long. A quick call that was held up by others must not make its package a slow
    /// one: the mean falls faster than it rises.
    pub(super) fn took(&self, package: u32, time: Duration) {
        let Some(mean) = self.mean(package) else {
            return;
        };
        let sample = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let old = mean.load(Ordering::Relaxed);
        let new = if old == 0 {
            sample
        } else if sample < old {
            old - (old - sample).div_ceil(4)
        } else {
            old + (sample - old) / 16
        };
        mean.store(new, Ordering::Relaxed);
    }

    /// What a call of this package is likely to be. One that never answered, because it ended its
    /// host or was never called, may be anything.
    pub(super) fn kind(&self, package: u32) -> Kind {
        let mean = self
            .mean(package)
            .map_or(0, |mean| mean.load(Ordering::Relaxed));
        match Duration::from_micros(mean.into()) {
            Duration::ZERO => Kind::Slow,
            mean if mean <= QUICK => Kind::Quick,
            mean if mean < SLOW => Kind::Plain,
            _ => Kind::Slow,
        }
    }

    /// How long to look for the answer of a call, which runs alone or does not; `None`: not at all.
    pub(super) fn linger(&self, package: u32, alone: bool) -> Option<Duration> {
        let single = self.single.load(Ordering::Relaxed);
        if !alone {
            if single > 0 {
                self.single.store(0, Ordering::Relaxed);
            }
            return None;
        }
        if single < SINGLE_FILE {
            self.single.store(single + 1, Ordering::Relaxed);
            return None;
        }
        let mean = self.mean(package)?.load(Ordering::Relaxed);
        if !self.several || mean == 0 || u128::from(mean) > INSTANT.as_micros() {
            return None;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
            return None;
        }
        Some(LINGER)
    }

    /// Whether the answer came while it was looked for. On a machine that is busy with other things
    /// it does not, and looking would only take the processor from the host.
    pub(super) fn lingered(&self, found: bool) {
        let step = if found {
            0
        } else {
            (self.step.load(Ordering::Relaxed) * 2 + 1).min(MAX_PAUSE)
        };
        self.step.store(step, Ordering::Relaxed);
        self.pause.store(step, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_slow_by_its_mean_not_by_one_late_answer() {
        let pace = Pace::new(2);
        assert_eq!(pace.kind(0), Kind::Slow, "nothing is known of it");
        pace.took(0, Duration::from_micros(40));
        assert_eq!(pace.kind(0), Kind::Quick);
        pace.took(0, Duration::from_millis(50));
        assert_eq!(pace.kind(0), Kind::Plain);
        pace.took(1, Duration::from_millis(50));
        assert_eq!(pace.kind(1), Kind::Slow);
        for _ in 0..20 {
            pace.took(1, Duration::from_micros(40));
        }
        assert_eq!(pace.kind(1), Kind::Quick, "it was slow while it warmed up");
        pace.took(7, Duration::from_secs(1));
        assert_eq!(pace.kind(7), Kind::Slow, "no package of this pool");
    }

    #[test]
    fn looking_in_vain_is_given_up_for_longer_each_time() {
        let mut pace = Pace::new(1);
        pace.several = true;
        let settle = |pace: &Pace| {
            for _ in 0..SINGLE_FILE {
                let _ = pace.linger(0, true);
            }
        };
        settle(&pace);
        assert_eq!(pace.linger(0, true), None, "nothing is known of it");
        pace.took(0, Duration::from_micros(40));
        let mut left_alone = Vec::new();
        for _ in 0..4 {
            pace.lingered(false);
            left_alone.push(
                (0..100)
                    .take_while(|_| pace.linger(0, true).is_none())
                    .count(),
            );
        }
        assert_eq!(left_alone, [1, 3, 7, 15]);
        pace.lingered(true);
        assert_eq!(pace.linger(0, true), Some(LINGER));
        assert_eq!(pace.linger(0, false), None, "there are others");
        assert_eq!(pace.linger(0, true), None, "there were others a moment ago");
        settle(&pace);
        assert_eq!(pace.linger(0, true), Some(LINGER));
        pace.several = false;
        assert_eq!(pace.linger(0, true), None, "one processor");
    }
}
