//! Which call runs where: one slot per thread for sync calls, a table for coroutines.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

thread_local! {
    /// Index of this thread's slot while it runs a call.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// State of one host thread.
#[derive(Default)]
struct Slot {
    active: AtomicBool,
    started: AtomicBool,
    call: AtomicU64,
    cancelled: AtomicBool,
    interrupted: AtomicBool,
    moved: AtomicBool,
    /// Python's ident of the thread.
    ident: AtomicU64,
}

struct Coroutine {
    package: usize,
    cancelled: bool,
}

/// All calls of the process.
pub(crate) struct Slots {
    threads: Vec<Slot>,
    coroutines: Mutex<HashMap<u64, Coroutine>>,
    running: AtomicUsize,
    ended: AtomicU64,
}

/// What a thread must see to when its call has ended.
pub(crate) struct Aftermath {
    /// An interrupt may be on its way and must be taken back.
    pub(crate) interrupted: bool,
    /// The call was cancelled (or interrupted) while it had a thread.
    pub(crate) cancelled: bool,
    /// The call changed the current folder.
    pub(crate) moved: bool,
}

/// Where an interrupt must go.
pub(crate) enum Target {
    /// To the thread with this ident.
    Thread(u64),
    /// Nowhere: the call sees it before it starts.
    NotStarted,
    /// No thread has the call.
    Unknown,
}

impl Slots {
    /// For so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Slot::default()).collect(),
            coroutines: Mutex::default(),
            running: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Notes Python's ident of the thread with this index.
    pub(crate) fn set_ident(&self, index: usize, ident: u64) {
        if let Some(slot) = self.threads.get(index) {
            slot.ident.store(ident, Ordering::Relaxed);
        }
    }

    /// Python's ident of the thread with this index, in the form that CPython takes it back.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "CPython declares the parameter as signed"
    )]
    pub(crate) fn ident(&self, index: usize) -> std::ffi::c_long {
        self.threads
            .get(index)
            .map_or(0, |slot| slot.ident.load(Ordering::Relaxed) as _)
    }

    /// The thread with this index is about to run a call: from here on it can be cancelled.
    pub(crate) fn assign(&self, index: usize, call: u64) {
        self.running.fetch_add(1, Ordering::Relaxed);
        if let Some(slot) = self.threads.get(index) {
            slot.cancelled.store(false, Ordering::Relaxed);
            slot.started.store(false, Ordering::Relaxed);
            slot.call.store(call, Ordering::Relaxed);
            slot.active.store(true, Ordering::Release);
        }
    }

    /// Its call starts; false when it was interrupted before. Attached.
    pub(crate) fn begin(&self, index: usize) -> bool {
        CURRENT.set(Some(index));
        let Some(slot) = self.threads.get(index) else {
            return true;
        };
        slot.started.store(true, Ordering::Relaxed);
        !slot.interrupted.load(Ordering::Relaxed)
    }

    /// It ended. Attached, so that no interrupt can be sent between the test and the end.
    pub(crate) fn end(&self, index: usize) -> Aftermath {
        CURRENT.set(None);
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.threads.get(index) else {
            return Aftermath {
                interrupted: false,
                cancelled: false,
                moved: false,
            };
        };
        slot.active.store(false, Ordering::Release);
        Aftermath {
            interrupted: slot.interrupted.load(Ordering::Relaxed)
                && slot.interrupted.swap(false, Ordering::Relaxed),
            cancelled: slot.cancelled.load(Ordering::Relaxed),
            moved: slot.moved.load(Ordering::Relaxed) && slot.moved.swap(false, Ordering::Relaxed),
        }
    }

    /// A call moves from its thread to the event loop.
    pub(crate) fn begin_coroutine(&self, call: u64, package: usize) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.table().insert(
            call,
            Coroutine {
                package,
                cancelled: false,
            },
        );
    }

    /// The coroutine ended: its package; `None` when that was told before.
    pub(crate) fn end_coroutine(&self, call: u64) -> Option<usize> {
        let ended = self.table().remove(&call)?;
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        Some(ended.package)
    }

    /// Marks a call as cancelled; true when it is a coroutine, whose task must be told too.
    pub(crate) fn cancel(&self, call: u64) -> bool {
        for slot in &self.threads {
            if slot.active.load(Ordering::Acquire) && slot.call.load(Ordering::Relaxed) == call {
                slot.cancelled.store(true, Ordering::Relaxed);
                return false;
            }
        }
        match self.table().get_mut(&call) {
            Some(coroutine) => {
                coroutine.cancelled = true;
                true
            }
            None => false,
        }
    }

    /// Marks a call as interrupted. Attached, so that it cannot start or end meanwhile.
    pub(crate) fn interrupt(&self, call: u64) -> Target {
        let found = self.threads.iter().find(|slot| {
            slot.active.load(Ordering::Acquire) && slot.call.load(Ordering::Relaxed) == call
        });
        let Some(slot) = found else {
            return Target::Unknown;
        };
        slot.cancelled.store(true, Ordering::Relaxed);
        slot.interrupted.store(true, Ordering::Relaxed);
        if slot.started.load(Ordering::Relaxed) {
            Target::Thread(slot.ident.load(Ordering::Relaxed))
        } else {
            Target::NotStarted
        }
    }

    /// The call of the current thread, unless it is a coroutine's.
    pub(crate) fn current(&self) -> Option<u64> {
        let slot = self.threads.get(CURRENT.get()?)?;
        Some(slot.call.load(Ordering::Relaxed))
    }

    /// Whether the call of the current thread is cancelled; `None` when it runs none.
    pub(crate) fn current_is_cancelled(&self) -> Option<bool> {
        let slot = self.threads.get(CURRENT.get()?)?;
        Some(slot.cancelled.load(Ordering::Relaxed))
    }

    /// The call of the current thread changes the current folder.
    pub(crate) fn set_moved(&self) {
        if let Some(slot) = CURRENT.get().and_then(|index| self.threads.get(index)) {
            slot.moved.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a coroutine runs, and is cancelled.
    pub(crate) fn coroutine(&self, call: u64) -> Option<bool> {
        self.table().get(&call).map(|coroutine| coroutine.cancelled)
    }

    /// Calls that run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Calls ended since the start.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Coroutine>> {
        self.coroutines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
