//! Clients that do not read what they asked for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Answers from this size on are watched.
const LARGE: usize = 64 * 1024;
/// How long a client may take to read one.
const READ_TIME: Duration = Duration::from_mins(2);

/// Keeps something taken until a large answer was read, and ends the connection of a client that does
/// not read it: the stream alone cannot be ended while it waits for the client.
#[derive(Debug)]
pub struct SlowReader<P> {
    _permit: P,
    timer: AbortHandle,
}

impl<P> SlowReader<P> {
    /// For an answer of `size` bytes; `None` when it is small.
    pub fn watch(size: usize, permit: impl FnOnce() -> P, end: &Arc<Notify>) -> Option<Self> {
        if size < LARGE {
            return None;
        }
        let end = Arc::clone(end);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(READ_TIME).await;
            end.notify_one();
        });
        Some(Self {
            _permit: permit(),
            timer: timer.abort_handle(),
        })
    }
}

impl<P> Drop for SlowReader<P> {
    fn drop(&mut self) {
        self.timer.abort();
    }
}
