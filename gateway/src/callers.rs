//! Who calls, and how much: rate, requests at once and streams at once of each caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::answer::Refusal;

/// Callers that are remembered; beyond it those who do nothing now are forgotten.
const MAX_REMEMBERED: usize = 10_000;

/// What one caller may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests per second, as many at once after a pause; 0: no limit.
    pub rate: u32,
    /// Requests at once.
    pub in_flight: usize,
    /// Listen streams at once.
    pub streams: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: 0,
            in_flight: 512,
            streams: 1024,
        }
    }
}

/// All callers of late.
#[derive(Debug)]
pub struct Callers {
    limits: Limits,
    known: Mutex<HashMap<Arc<str>, Arc<Usage>>>,
}

#[derive(Debug)]
struct Usage {
    bucket: Mutex<Bucket>,
    in_flight: AtomicUsize,
    streams: AtomicUsize,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

/// A place among a caller's requests or streams; free again when dropped.
#[derive(Debug)]
pub struct Place {
    usage: Arc<Usage>,
    stream: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.usage
            .counter(self.stream)
            .fetch_sub(1, Ordering::Relaxed);
    }
}

impl Usage {
    fn counter(&self, stream: bool) -> &AtomicUsize {
        if stream {
            &self.streams
        } else {
            &self.in_flight
        }
    }

    fn place(self: &Arc<Self>, stream: bool, limit: usize) -> Result<Place, Refusal> {
        let taken = self.counter(stream).fetch_add(1, Ordering::Relaxed);
        let place = Place {
            usage: Arc::clone(self),
            stream,
        };
        if taken < limit {
            Ok(place)
        } else {
            Err(Refusal::InFlight)
        }
    }

    fn idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0 && self.streams.load(Ordering::Relaxed) == 0
    }
}

impl Bucket {
    fn take(&mut self, rate: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate.max(1.0));
        self.filled = now;
        let some = self.tokens >= 1.0;
        if some {
            self.tokens -= 1.0;
        }
        some
    }
}

impl Callers {
    /// With these limits for each caller.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            known: Mutex::default(),
        }
    }

    fn usage(&self, caller: &Arc<str>) -> Arc<Usage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = known.get(caller) {
            return Arc::clone(usage);
        }
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, usage| !usage.idle());
        }
        let usage = Arc::new(Usage {
            bucket: Mutex::new(Bucket {
                tokens: f64::from(self.limits.rate.max(1)),
                filled: Instant::now(),
            }),
            in_flight: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        });
        known.insert(Arc::clone(caller), Arc::clone(&usage));
        usage
    }

    /// One more request of this caller: first the rate, then a place.
    pub fn enter(&self, caller: &Arc<str>) -> Result<Place, Refusal> {
        let usage = self.usage(caller);
        if self.limits.rate > 0 {
            let mut bucket = usage.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            if !bucket.take(f64::from(self.limits.rate), Instant::now()) {
                return Err(Refusal::Rate);
            }
        }
        usage.place(false, self.limits.in_flight)
    }

    /// One more stream of this caller, which outlives its request.
    pub fn stream(&self, caller: &Arc<str>) -> Result<Place, Refusal> {
        self.usage(caller).place(true, self.limits.streams)
    }
}

/// How long a body may take to arrive.
pub const BODY_TIME: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(rate: u32, in_flight: usize) -> Callers {
        Callers::new(Limits {
            rate,
            in_flight,
            streams: 1,
        })
    }

    #[test]
    fn one_caller_at_its_cap_holds_up_no_other() {
        let callers = callers(0, 2);
        let (greedy, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let first = callers.enter(&greedy).unwrap();
        let _second = callers.enter(&greedy).unwrap();
        assert_eq!(callers.enter(&greedy).unwrap_err(), Refusal::InFlight);
        assert!(callers.enter(&other).is_ok());
        drop(first);
        assert!(callers.enter(&greedy).is_ok());
    }

    #[test]
    fn streams_have_places_of_their_own() {
        let callers = callers(0, 1);
        let caller: Arc<str> = "a".into();
        let _stream = callers.stream(&caller).unwrap();
        assert_eq!(callers.stream(&caller).unwrap_err(), Refusal::InFlight);
        assert!(callers.enter(&caller).is_ok());
    }

    #[test]
    fn a_bucket_gives_its_rate_and_fills_again_with_time() {
        let begin = Instant::now();
        let mut bucket = Bucket {
            tokens: 2.0,
            filled: begin,
        };
        assert!(bucket.take(2.0, begin) && bucket.take(2.0, begin));
        assert!(!bucket.take(2.0, begin));
        assert!(bucket.take(2.0, begin + Duration::from_millis(500)));
        assert!(!bucket.take(2.0, begin + Duration::from_millis(600)));
        // A long pause saves up no more than one second's worth.
        let later = begin + Duration::from_hours(1);
        assert!(bucket.take(2.0, later) && bucket.take(2.0, later));
        assert!(!bucket.take(2.0, later));
    }
}
