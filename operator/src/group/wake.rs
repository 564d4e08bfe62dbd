//! Wakes groups from outside the watches: a task ended, a hook came in.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc;

use super::{GroupKey, Guarded};

/// A handle to the queue of runs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Wake {
    queue: mpsc::UnboundedSender<ObjectRef<Guarded>>,
    looks: Arc<Mutex<HashSet<GroupKey>>>,
}

impl Wake {
    /// The handle, and the end that the controller reads.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<ObjectRef<Guarded>>) {
        let (queue, runs) = mpsc::unbounded_channel();
        (
            Self {
                queue,
                looks: Arc::default(),
            },
            runs,
        )
    }

    /// Runs a group soon.
    pub(crate) fn wake(&self, key: &GroupKey) {
        // Nobody reads only while everything ends.
        let _ = self
            .queue
            .send(ObjectRef::new(&key.name).within(&key.namespace));
    }

    /// Makes a group look at its source soon; many hints before the next run are one.
    pub(crate) fn look(&self, key: &GroupKey) {
        let new = self
            .looks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone());
        if new {
            self.wake(key);
        }
    }

    /// Whether a look was asked for since the last time.
    pub(crate) fn take_look(&self, key: &GroupKey) -> bool {
        self.looks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key)
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
        assert_eq!(runs.recv().await.unwrap().name, "g");
        assert!(runs.try_recv().is_err());
    }
}
