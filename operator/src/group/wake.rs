//! Wakes groups from outside the watches: a task ended, a hook came in.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;

use super::{GroupKey, Guarded};

/// A handle to the queue of runs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Wake {
    queue: mpsc::UnboundedSender<GroupKey>,
    /// In the queue: a group is in it once, however often it is woken, so that the queue of a replica
    /// that does not write stays as short as the list of groups.
    queued: Arc<Mutex<HashSet<GroupKey>>>,
    looks: Arc<Mutex<HashSet<GroupKey>>>,
}

/// The end of the queue that the controller reads.
#[derive(Debug)]
pub(crate) struct Runs {
    queue: mpsc::UnboundedReceiver<GroupKey>,
    queued: Arc<Mutex<HashSet<GroupKey>>>,
}

impl Runs {
    /// The next group that is to run.
    pub(crate) async fn next(&mut self) -> Option<ObjectRef<Guarded>> {
        let key = self.queue.recv().await?;
        // From here on it may be queued anew.
        locked(&self.queued).remove(&key);
        Some(ObjectRef::new(&key.name).within(&key.namespace))
    }
}

fn locked(set: &Mutex<HashSet<GroupKey>>) -> MutexGuard<'_, HashSet<GroupKey>> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake {
    /// The handle, and the end that the controller reads.
    pub(crate) fn new() -> (Self, Runs) {
        let (queue, runs) = mpsc::unbounded_channel();
        let queued = Arc::<Mutex<HashSet<GroupKey>>>::default();
        let runs = Runs {
            queue: runs,
            queued: Arc::clone(&queued),
        };
        let wake = Self {
            queue,
            queued,
            looks: Arc::default(),
        };
        (wake, runs)
    }

    /// Runs a group soon.
    pub(crate) fn wake(&self, key: &GroupKey) {
        if locked(&self.queued).insert(key.clone()) {
            // Nobody reads only while everything ends.
            let _ = self.queue.send(key.clone());
        }
    }

    /// Makes a group look at its source soon; many hints before the next run are one.
    pub(crate) fn look(&self, key: &GroupKey) {
        locked(&self.looks).insert(key.clone());
        self.wake(key);
    }

    /// Whether a look was asked for since the last time.
    pub(crate) fn take_look(&self, key: &GroupKey) -> bool {
        locked(&self.looks).remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thousand_hints_are_one_run() {
        let (wake, mut runs) = Wake::new();
        let key = GroupKey::new("ns", "g");
        for _ in 0..1000 {
            wake.look(&key);
        }
        assert!(wake.take_look(&key) && !wake.take_look(&key));
        assert_eq!(runs.next().await.unwrap().name, "g");
        assert!(runs.queue.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_group_woken_while_it_runs_runs_once_more() {
        let (wake, mut runs) = Wake::new();
        let (one, other) = (GroupKey::new("ns", "a"), GroupKey::new("ns", "b"));
        wake.wake(&one);
        wake.wake(&other);
        assert_eq!(runs.next().await.unwrap().name, "a");
        wake.wake(&one);
        assert_eq!(runs.next().await.unwrap().name, "b");
        assert_eq!(runs.next().await.unwrap().name, "a");
        assert!(runs.queue.try_recv().is_err());
    }
}
