//! `RAMEN_MAX_INFLIGHT`: places in the whole process, given at once or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts calls in flight.
#[derive(Clone)]
pub struct InFlight {
    shared: Arc<Shared>,
    limit: usize,
}

struct Shared {
    taken: AtomicUsize,
    emptied: Notify,
}

/// A place. It is free again when this is dropped.
pub struct Permit(Arc<Shared>);

impl InFlight {
    /// At most `limit` at once.
    pub fn new(limit: usize) -> Self {
        let shared = Shared {
            taken: AtomicUsize::new(0),
            emptied: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            limit,
        }
    }

    /// A place, unless all are taken. Never waits.
    pub fn try_take(&self) -> Option<Permit> {
        let taken = self.shared.taken.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(&self.shared));
        (taken < self.limit).then_some(permit)
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Waits until none is taken.
    pub async fn empty(&self) {
        loop {
            let emptied = self.shared.emptied.notified();
            if self.taken() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.0.taken.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_too_many_is_refused_and_a_freed_one_given_again() {
        let places = InFlight::new(2);
        let first = places.try_take().unwrap();
        let _second = places.try_take().unwrap();
        assert!(places.try_take().is_none());
        assert_eq!(places.taken(), 2);
        drop(first);
        assert!(places.try_take().is_some());
    }

    #[tokio::test]
    async fn empty_waits_for_the_last_permit() {
        let places = InFlight::new(2);
        let permit = places.try_take().unwrap();
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.empty().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(permit);
        waiting.await.unwrap();
    }
}
