//! The front's end of one host's socket: frames out by whoever calls, frames in by one task, and the
//! table of calls between them.
//!
//! A call costs one lock of the table, one lock of the write buffer and, when the buffer was empty,
//! one non-blocking write by the calling task itself: no hand-over to another task. An entry of the
//! table leaves it only when the host answered or died, so a caller that went away never frees a
//! slot that the host still uses.

mod ladder;
mod reading;
mod table;
mod writing;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ramen_frame::{Log, Progress, Stats, Status};
use tokio::sync::{Notify, mpsc};

use super::fate::{CallError, Death, EndCause};
use super::memory::Memory;
use super::socket::Socket;
use reading::Incoming;
use table::Table;
pub(super) use table::{Answer, Pending};
use writing::Out;

/// A buffer that grew over this is given back when it is empty.
const KEEP_BUFFER: usize = 256 * 1024;

/// The `RESULT` of one call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What the payload is.
    pub status: Status,
    /// The payload. Error text is not yet redacted.
    pub payload: Bytes,
}

/// What a call says before its result.
#[derive(Debug, Clone)]
pub enum HostEvent {
    /// How far it is.
    Progress(Progress),
    /// A log message, not yet redacted.
    Log(Log),
}

/// Options of one call.
#[derive(Default)]
pub struct CallOptions {
    /// Where progress and log lines go; without it, or while it is full, they are dropped.
    pub events: Option<mpsc::Sender<HostEvent>>,
    /// After this a caller that left is no longer waited for.
    pub deadline: Option<Instant>,
    /// Dropped when the host is really free of the call.
    pub hold: Option<Box<dyn Any + Send>>,
}

/// What is told of a host's calls.
pub(super) trait Observer: Send + Sync {
    /// These calls ended in `channel`'s host.
    fn freed(&self, channel: &Channel, calls: Ended);
    /// A call of this package was answered so long after it was sent.
    fn took(&self, package: u32, time: Duration);
    /// The host gets no new calls any more; it will be ended soon.
    fn condemned(&self, channel: &Channel);
    /// The host ended while these packages ran, each with whether its caller had left.
    fn ended(&self, channel: &Channel, death: &Death, running: &[(u32, bool)]);
}

/// Calls that ended.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Ended {
    pub(super) calls: usize,
    /// Those among them that counted as slow.
    pub(super) slow: usize,
}

impl Ended {
    pub(super) fn one(slow: bool) -> Self {
        Self {
            calls: 1,
            slow: usize::from(slow),
        }
    }
}

/// What only a load or a `STATS` waits for.
pub(super) enum Control {
    Importing(u32),
    Loaded(ramen_frame::Loaded),
    Stats(Stats),
}

pub(super) struct Channel {
    socket: Socket,
    incoming: Mutex<Incoming>,
    out: Mutex<Out>,
    table: Mutex<Table>,
    unsent: Notify,
    left: Notify,
    observer: OnceLock<Weak<dyn Observer>>,
    /// Whose watch may rest while no call runs.
    memory: OnceLock<Arc<Memory>>,
}

impl Channel {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            incoming: Mutex::default(),
            out: Mutex::default(),
            table: Mutex::default(),
            unsent: Notify::new(),
            left: Notify::new(),
            observer: OnceLock::new(),
            memory: OnceLock::new(),
        }
    }

    pub(super) fn observe(&self, observer: Weak<dyn Observer>) {
        // A host belongs to one pool for its whole life.
        let _ = self.observer.set(observer);
    }

    /// From now on each call is announced there.
    pub(super) fn announce(&self, memory: Arc<Memory>) {
        // A host has one memory for its whole life.
        let _ = self.memory.set(memory);
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.observer.get().and_then(Weak::upgrade)
    }

    pub(super) fn running(&self) -> usize {
        lock(&self.table).running
    }

    /// The package of the only call that runs. When none does, of the one that ended last: what a
    /// tool printed can arrive after its result.
    pub(super) fn likely_package(&self) -> Option<u32> {
        let table = lock(&self.table);
        let mut running = table.entries.iter().flatten();
        match (running.next(), running.next()) {
            (Some(one), None) => Some(one.package),
            (None, _) => table.last,
            _ => None,
        }
    }

    /// Counts the calls that were sent before `at` as slow; how many did not count so before.
    pub(super) fn mark_slow(&self, at: Instant) -> usize {
        let mut marked = 0;
        for pending in lock(&self.table).entries.iter_mut().flatten() {
            if !pending.slow && pending.sent.is_some_and(|sent| sent <= at) {
                pending.slow = true;
                marked += 1;
            }
        }
        marked
    }

    /// Why the host is about to be ended, when it is.
    pub(super) fn condemned(&self) -> Option<EndCause> {
        lock(&self.table).condemned
    }

    /// No more calls, for the host is about to be ended; those in it may still be answered.
    pub(super) fn condemn(&self, cause: EndCause) {
        let before = {
            let mut table = lock(&self.table);
            let before = table.condemned;
            table.condemned = before.or(Some(cause));
            before
        };
        if before.is_none()
            && let Some(observer) = self.observer()
        {
            observer.condemned(self);
        }
    }

    fn event(&self, call: u64, event: HostEvent) {
        let sender = lock(&self.table)
            .get(call)
            .and_then(|one| one.options.events.clone());
        if let Some(sender) = sender {
            // A full queue means a slow reader: progress is worth less than memory.
            let _ = sender.try_send(event);
        }
    }

    /// No more calls; those that ran get `error`.
    pub(super) fn close(&self, death: &Death, error: &CallError) {
        // The task that reads may have been ended before it could do this.
        lock(&self.incoming).control = None;
        let (calls, running) = {
            let out = lock(&self.out);
            let mut table = lock(&self.table);
            table.unsent = table.unsent.or(out.unwritten());
            table.close(death)
        };
        if let Some(observer) = self.observer() {
            observer.ended(self, death, &running);
        }
        for pending in calls {
            pending.fail(error.clone());
        }
    }

    /// A caller went away: its call is to be cancelled.
    pub(super) fn caller_left(&self) {
        self.left.notify_one();
    }

    pub(super) async fn somebody_left(&self) {
        self.left.notified().await;
    }
}

/// A call in flight. Dropping it before the reply cancels the call: the callable sees
/// `cancelled()`, then an interrupt, and a host that does not get free of it is ended.
pub struct CallHandle {
    pub(super) answer: Answer,
    pub(super) channel: Arc<Channel>,
    pub(super) done: bool,
}

impl CallHandle {
    /// The reply, or how the host was lost.
    pub async fn reply(mut self) -> Result<Reply, CallError> {
        let answer = (&mut self.answer).await;
        self.done = true;
        answer.unwrap_or(Err(CallError::Lost))
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if !self.done {
            self.answer.close();
            self.channel.caller_left();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held would have ended the process or left plain data: both are usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Which packages ran when the host ended, and how often it was condemned before.
    #[derive(Default)]
    struct Seen(Mutex<Vec<u32>>, Mutex<usize>);

    impl Observer for Seen {
        fn freed(&self, _: &Channel, _: Ended) {}
        fn took(&self, _: u32, _: Duration) {}
        fn condemned(&self, _: &Channel) {
            *lock(&self.1) += 1;
        }
        fn ended(&self, _: &Channel, _: &Death, running: &[(u32, bool)]) {
            lock(&self.0).extend(running.iter().map(|(package, _)| package));
        }
    }

    /// The packages to blame for an end before which `before` had been sent, and after which `after` came.
    async fn blamed(before: &[u32], after: &[u32]) -> Vec<u32> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let channel = Channel::new(Socket::new(ours.into()).unwrap());
        let seen = Arc::<Seen>::default();
        let observer: Arc<dyn Observer> = Arc::clone(&seen) as _;
        channel.observe(Arc::downgrade(&observer));
        let call = |package: &u32| {
            let (pending, answer) = Pending::new(*package, CallOptions::default());
            assert!(channel.submit(pending, b"{}").is_ok());
            answer
        };
        let mut answers: Vec<_> = before.iter().map(call).collect();
        // As the channel's own task does with those that come while others run.
        assert!(channel.write_some(&mut lock(&channel.out)));
        drop(theirs);
        answers.extend(after.iter().map(call));
        let death = Death::Exited(3);
        channel.close(&death, &CallError::Crashed(death.clone()));
        for answer in answers {
            assert!(answer.await.unwrap().is_err(), "each is told of the end");
        }
        let seen = lock(&seen.0);
        seen.clone()
    }

    #[tokio::test]
    async fn a_host_that_is_about_to_be_ended_gives_calls_back_for_others_to_take() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let channel = Channel::new(Socket::new(ours.into()).unwrap());
        let seen = Arc::<Seen>::default();
        let observer: Arc<dyn Observer> = Arc::clone(&seen) as _;
        channel.observe(Arc::downgrade(&observer));
        let (pending, _answer) = Pending::new(1, CallOptions::default());
        assert!(channel.submit(pending, b"{}").is_ok());
        channel.condemn(EndCause::Retired);
        channel.condemn(EndCause::Overdue);
        assert_eq!(channel.condemned(), Some(EndCause::Retired));
        assert_eq!(*lock(&seen.1), 1, "told once");
        let (pending, _answer) = Pending::new(2, CallOptions::default());
        let Err((back, error)) = channel.submit(pending, b"{}") else {
            panic!("it took a call");
        };
        assert_eq!(error, CallError::Gone(Death::Ended(EndCause::Retired)));
        assert!(back.is_some(), "another host may take it");
        assert_eq!(channel.running(), 1);
    }

    #[tokio::test]
    async fn a_call_that_comes_after_the_hosts_end_is_not_what_ended_it() {
        assert_eq!(blamed(&[1, 2], &[]).await, [1, 2]);
        assert_eq!(blamed(&[1], &[2, 3]).await, [1], "gathered, never written");
        assert!(blamed(&[], &[2]).await.is_empty(), "written to nobody");
        assert!(blamed(&[], &[2, 3]).await.is_empty());
    }
}
