//! Clients that do not read what they asked for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Answers from this size on are watched.
const LARGE: usize = 64 * 1024;
/// How long a client may take to read one, at least.
const READ_TIME: Duration = Duration::from_mins(2);
/// Bytes in a second that a client may always take its time for: the time runs until the last byte was written, and one that
/// reads steadily over a slow line is no one that does not read.
const SLOWEST: usize = 16 * 1024;

/// How long a client may take to read so many bytes.
fn read_time(size: usize) -> Duration {
    let seconds = u64::try_from(size / SLOWEST).unwrap_or(u64::MAX);
    READ_TIME.max(Duration::from_secs(seconds))
}

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
        let (end, time) = (Arc::clone(end), read_time(size));
        let timer = tokio::spawn(async move {
            tokio::time::sleep(time).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_answer_has_more_time() {
        for (size, seconds) in [
            (LARGE, 120),
            (120 * SLOWEST, 120),
            (4 * 1024 * 1024, 256),
            (64 * 1024 * 1024, 4096),
        ] {
            assert_eq!(read_time(size), Duration::from_secs(seconds), "{size}");
        }
    }
}
