//! Leader and followers: the thread that reads a frame runs it.
//!
//! One thread at a time, the leader, reads the socket. It runs a call itself while it keeps the
//! lead when the package is known to be quick; it gives the lead to a follower first when the
//! package is known to be slow, or not known yet. A watchdog takes the lead from a thread that is
//! stuck in a call for over a millisecond. So a quick call costs no change of threads, and a slow
//! one holds nobody up.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use ramen_frame::{Decoder, FromHost, Load, Status, ToHost};

use crate::{
    channel::{Channel, KEEP, Sent},
    slots::Slots,
};

/// Mean time of a package's calls up to which the leader keeps the lead.
const QUICK: u64 = 200_000;
/// Mean time up to which replies may wait for the next call's.
const INSTANT: u64 = 30_000;
/// Pace of the watchdog, and after how many quiet rounds it sleeps until it is needed.
const TICK: Duration = Duration::from_millis(1);
const QUIET_TICKS: u32 = 100;
const READ: usize = 64 * 1024;

/// Something for a thread to do while attached.
pub(crate) enum Job {
    /// Run a callable; the arguments are in [`Local::arguments`].
    Call { call: u64, package: u32 },
    /// Raise an exception in the thread of a call.
    Interrupt(u64),
    /// Cancel the task of a call.
    CancelTask(u64),
    /// Import packages.
    Load(Box<Load>),
    /// The front wants the process to end.
    Exit,
    /// The front is gone, or talks nonsense.
    Closed,
}

/// What a thread keeps for itself.
pub(crate) struct Local {
    /// Its place in the pool.
    pub(crate) index: usize,
    /// JSON arguments of the call that it runs.
    pub(crate) arguments: Vec<u8>,
    /// The reply under construction.
    pub(crate) reply: Vec<u8>,
    leading: bool,
    /// Word that the watchdog looks at during a call with the lead kept; 0 = not so.
    turn: u64,
    buffer: Box<[u8]>,
}

impl Local {
    /// For the thread with this index.
    pub(crate) fn new(index: usize, leading: bool) -> Self {
        Self {
            index,
            arguments: Vec::new(),
            reply: Vec::new(),
            leading,
            turn: 0,
            buffer: Box::default(),
        }
    }
}

struct Waiting {
    call: u64,
    package: u32,
    arguments: Vec<u8>,
}

#[derive(Default)]
struct Followers {
    idle: Vec<usize>,
    queue: VecDeque<Waiting>,
    /// Nobody leads: whoever is next without a call does.
    vacant: bool,
}

#[derive(Default)]
struct Seat {
    thread: OnceLock<Thread>,
    promoted: AtomicBool,
}

/// The threads of the host and what they share.
pub(crate) struct Pool {
    pub(crate) channel: Channel,
    pub(crate) slots: Slots,
    decoder: Mutex<Decoder>,
    followers: Mutex<Followers>,
    idle: AtomicUsize,
    seats: Vec<Seat>,
    turns: AtomicU64,
    turn: AtomicU64,
    watchdog: OnceLock<Thread>,
    watchdog_sleeps: AtomicBool,
    /// Mean nanoseconds per package, by place; `u64::MAX` = not known.
    means: OnceLock<Vec<AtomicU64>>,
    places: OnceLock<Box<dyn Fn(u32) -> Option<usize> + Send + Sync>>,
}

impl Pool {
    /// `threads` is one more than the calls that may run at once: somebody must be free to read.
    pub(crate) fn new(channel: Channel, threads: usize) -> Self {
        Self {
            channel,
            slots: Slots::new(threads),
            decoder: Mutex::default(),
            followers: Mutex::default(),
            idle: AtomicUsize::new(0),
            seats: (0..threads).map(|_| Seat::default()).collect(),
            turns: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            watchdog: OnceLock::new(),
            watchdog_sleeps: AtomicBool::new(false),
            means: OnceLock::new(),
            places: OnceLock::new(),
        }
    }

    /// After the load: how many packages there are, and the place of an id among them.
    pub(crate) fn set_packages(
        &self,
        count: usize,
        place: impl Fn(u32) -> Option<usize> + Send + Sync + 'static,
    ) {
        let _ = self
            .means
            .set((0..count).map(|_| AtomicU64::new(u64::MAX)).collect());
        let _ = self.places.set(Box::new(place));
    }

    /// Place of a package among the loaded ones.
    pub(crate) fn place(&self, package: u32) -> Option<usize> {
        self.places.get()?(package)
    }

    /// The calling thread has this index from now on.
    pub(crate) fn take_seat(&self, index: usize) {
        if let Some(seat) = self.seats.get(index) {
            let _ = seat.thread.set(thread::current());
        }
    }

    /// A job that is here already, when the calling thread leads. For attached threads: waits for
    /// nothing.
    pub(crate) fn ready(&self, local: &mut Local) -> Option<Job> {
        if !local.leading {
            return None;
        }
        let mut decoder = self.decoder();
        self.decode(&mut decoder, local)
    }

    /// Waits for a job. Not for attached threads.
    pub(crate) fn next(&self, local: &mut Local) -> Job {
        loop {
            if !local.leading {
                if let Some(job) = self.follow(local) {
                    return job;
                }
                local.leading = true;
            }
            if local.buffer.is_empty() {
                local.buffer = vec![0; READ].into();
            }
            let mut decoder = self.decoder();
            while local.leading {
                if let Some(job) = self.decode(&mut decoder, local) {
                    return job;
                }
                if self.channel.flush() && !self.channel.wait() {
                    continue;
                }
                match self.channel.read(&mut local.buffer) {
                    Ok(read @ 1..) => {
                        decoder.push(local.buffer.get(..read).unwrap_or_default());
                    }
                    Ok(0) | Err(_) => return Job::Closed,
                }
            }
        }
    }

    /// The next job of what was read; `None` when more must be read (or the lead was given away).
    fn decode(&self, decoder: &mut Decoder, local: &mut Local) -> Option<Job> {
        loop {
            let frame = match decoder.next_frame() {
                Ok(frame) => frame?,
                Err(_) => return Some(Job::Closed),
            };
            let Ok(message) = ToHost::parse(frame) else {
                return Some(Job::Closed);
            };
            match message {
                ToHost::Call {
                    call,
                    package,
                    arguments,
                } => {
                    if self.put_in_queue(call, package, arguments) {
                        continue;
                    }
                    local.arguments.clear();
                    local.arguments.extend_from_slice(arguments);
                    self.slots.assign(local.index, call);
                    if self.mean(package) <= QUICK {
                        self.start_turn(local);
                    } else {
                        // Replies that wait for more must not wait for a slow call. What cannot go
                        // now is the next leader's to send.
                        self.channel.flush();
                        self.promote();
                        local.leading = false;
                    }
                    return Some(Job::Call { call, package });
                }
                ToHost::Cancel(call) => {
                    if self.slots.cancel(call) {
                        return Some(Job::CancelTask(call));
                    }
                    self.cancel_queued(call);
                }
                ToHost::Interrupt(call) => {
                    if !self.cancel_queued(call) {
                        return Some(Job::Interrupt(call));
                    }
                }
                ToHost::Stats => self.report(),
                ToHost::Load(load) => return Some(Job::Load(Box::new(load))),
                ToHost::Exit => return Some(Job::Exit),
            }
        }
    }

    /// After a call: takes its time into the mean, gives the lead back if it was kept.
    pub(crate) fn ended(&self, local: &mut Local, package: u32, took: Duration) {
        if let Some(mean) = self.mean_of(package) {
            let sample = u64::try_from(took.as_nanos())
                .unwrap_or(u64::MAX / 2)
                .min(u64::MAX / 2);
            let old = mean.load(Ordering::Relaxed);
            let new = if old == u64::MAX {
                sample
            } else {
                old - old / 8 + sample / 8
            };
            mean.store(new, Ordering::Relaxed);
        }
        if local.turn != 0 {
            let kept = self
                .turn
                .compare_exchange(local.turn, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
            local.leading = kept;
            local.turn = 0;
        }
        if local.arguments.capacity() > KEEP {
            local.arguments = Vec::new();
        }
    }

    /// Sends the frames in `reply`, at once or together with the next ones. False when the caller
    /// must detach and use [`Channel::send_waiting`] with what is left in `reply`.
    pub(crate) fn reply(&self, local: &mut Local, package: u32) -> bool {
        let gather = local.leading && self.mean(package) <= INSTANT;
        let done = match self.channel.reply(&local.reply, gather) {
            Sent::Done => true,
            // The leader never waits: it sends the rest before it reads again.
            Sent::Rest => local.leading,
            Sent::Busy if local.leading => {
                self.channel.put_aside(&local.reply);
                true
            }
            Sent::Busy => return false,
        };
        local.reply.clear();
        if local.reply.capacity() > KEEP {
            local.reply = Vec::new();
        }
        done
    }

    fn mean_of(&self, package: u32) -> Option<&AtomicU64> {
        self.means.get()?.get(self.place(package)?)
    }

    fn mean(&self, package: u32) -> u64 {
        self.mean_of(package)
            .map_or(0, |mean| mean.load(Ordering::Relaxed))
    }

    fn decoder(&self) -> MutexGuard<'_, Decoder> {
        self.decoder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.followers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// When all other threads have a call, the leader must go on reading: interrupts come that way.
    fn put_in_queue(&self, call: u64, package: u32, arguments: &[u8]) -> bool {
        if self.idle.load(Ordering::Relaxed) > 0 || self.seats.len() == 1 {
            return false;
        }
        let mut followers = self.followers();
        if !followers.idle.is_empty() {
            return false;
        }
        followers.queue.push_back(Waiting {
            call,
            package,
            arguments: arguments.to_vec(),
        });
        true
    }

    fn cancel_queued(&self, call: u64) -> bool {
        let removed = {
            let mut followers = self.followers();
            let place = followers
                .queue
                .iter()
                .position(|waiting| waiting.call == call);
            place.and_then(|place| followers.queue.remove(place))
        };
        let was_queued = removed.is_some();
        if was_queued {
            let payload = b"CancelledError: the call was cancelled before it ran";
            let mut frame = Vec::new();
            let result = FromHost::Result {
                call,
                status: Status::Error,
                payload,
            };
            if result.encode(&mut frame).is_ok() {
                self.channel.put_aside(&frame);
            }
        }
        was_queued
    }

    /// Waits without the lead: a call from the queue, or `None` for the lead.
    fn follow(&self, local: &mut Local) -> Option<Job> {
        let seat = self.seats.get(local.index)?;
        {
            let mut followers = self.followers();
            if let Some(waiting) = followers.queue.pop_front() {
                local.arguments = waiting.arguments;
                self.slots.assign(local.index, waiting.call);
                return Some(Job::Call {
                    call: waiting.call,
                    package: waiting.package,
                });
            }
            if followers.vacant {
                followers.vacant = false;
                return None;
            }
            followers.idle.push(local.index);
            self.idle.store(followers.idle.len(), Ordering::Relaxed);
        }
        while !seat.promoted.swap(false, Ordering::Acquire) {
            thread::park();
        }
        None
    }

    /// Makes a follower the leader.
    fn promote(&self) {
        let next = {
            let mut followers = self.followers();
            let next = followers.idle.pop();
            self.idle.store(followers.idle.len(), Ordering::Relaxed);
            followers.vacant = next.is_none();
            next
        };
        if let Some(seat) = next.and_then(|index| self.seats.get(index)) {
            seat.promoted.store(true, Ordering::Release);
            if let Some(thread) = seat.thread.get() {
                thread.unpark();
            }
        }
    }

    fn start_turn(&self, local: &mut Local) {
        local.turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        // SeqCst with the watchdog's own pair: one of the two sees the other.
        self.turn.store(local.turn, Ordering::SeqCst);
        if self.watchdog_sleeps.load(Ordering::SeqCst)
            && let Some(watchdog) = self.watchdog.get()
        {
            watchdog.unpark();
        }
    }

    /// Body of the watchdog's thread.
    pub(crate) fn watch(&self) {
        let _ = self.watchdog.set(thread::current());
        let (mut last, mut quiet) = (0, 0);
        loop {
            thread::sleep(TICK);
            let turn = self.turn.load(Ordering::SeqCst);
            if turn != 0 && turn == last {
                let stuck = self
                    .turn
                    .compare_exchange(turn, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
                if stuck {
                    self.channel.flush();
                    self.promote();
                }
            }
            let turns = self.turns.load(Ordering::Relaxed);
            quiet = if turn == 0 && turns == last {
                quiet + 1
            } else {
                0
            };
            last = turns;
            if quiet >= QUIET_TICKS {
                self.watchdog_sleeps.store(true, Ordering::SeqCst);
                while self.turn.load(Ordering::SeqCst) == 0 {
                    thread::park();
                }
                self.watchdog_sleeps.store(false, Ordering::SeqCst);
                quiet = 0;
            }
        }
    }

    fn report(&self) {
        let stats = ramen_frame::Stats {
            in_flight: self.slots.running() + self.followers().queue.len(),
            threads: os_threads(),
            calls: self.slots.ended(),
        };
        let mut frame = Vec::new();
        if FromHost::Stats(stats).encode(&mut frame).is_ok() {
            self.channel.put_aside(&frame);
        }
    }
}

/// OS threads of this process.
pub(crate) fn os_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}
