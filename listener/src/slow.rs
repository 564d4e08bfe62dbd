//! Clients that do not read what they asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
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

/// Bytes of an answer with what is kept until the last of them went out. That a body was taken says nothing of it: hyper takes
/// all that there is, and has it wait for the client.
pub fn until_written<K: Send + 'static>(bytes: Bytes, kept: K) -> Bytes {
    Bytes::from_owner(Unwritten { bytes, _kept: kept })
}

struct Unwritten<K> {
    bytes: Bytes,
    _kept: K,
}

impl<K> AsRef<[u8]> for Unwritten<K> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<P> Drop for SlowReader<P> {
    fn drop(&mut self) {
        self.timer.abort();
    }
}
