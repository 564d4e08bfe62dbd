//! The memory that all processes of one group share, and what happens when it gets scarce.
//!
//! A tool that allocates without end must cost its own host and nothing else. Left to the kernel it
//! would cost more: in a container it ends all processes at once, the front among them. So the hosts
//! are looked at before it comes to that, with all that they started, and the one that holds the
//! most is ended. How soon they are looked at again follows from how fast what is left can be
//! filled. That is done by a thread of its own, which nothing that the front does can hold up.

mod bound;
mod family;

use std::cmp::Reverse;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, prlimit,
};

use super::channel::lock;
use super::fate::EndCause;
use family::{Process, Processes};

/// The shortest pause between two looks, and the longest while something runs.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);
/// The longest pause while nothing runs.
const REST: Duration = Duration::from_secs(1);
/// Bytes in a millisecond. One core fills memory no faster, for the kernel clears each page first.
const FILLED: u64 = 4 << 20;
/// A pause is so many times as long as the look before it took, at least.
const LOOKS: u32 = 4;
/// Growth that is none.
const NOISE: u64 = 1 << 20;
/// Beside twice the bound: what one process may ask for, whether it uses it or not. Libraries ask
/// for more than they use: stacks of threads, heaps in stock, large files mapped to be changed in
/// memory only.
const ASKED: u64 = 16 << 30;
/// How much sooner than the front the kernel ends a host, in thousandths of the memory. Not all the
/// way to the front of the queue: other programs of the machine may be more to blame.
const SOONER: i32 = 300;

/// A process in whose memory code of the group runs, with those that it starts.
pub(crate) trait Tenant: Send + Sync {
    /// False once it is gone: its id may be somebody else's then.
    fn lives(&self) -> bool;
    /// Whether somebody waits for what it does.
    fn is_busy(&self) -> bool;
    /// Ends its process group.
    fn end(&self, cause: EndCause);
}

/// The memory that all processes of one group share.
pub struct Memory {
    /// Bytes that they may hold together; 0: there is no bound.
    budget: u64,
    tenants: Mutex<Vec<(u32, Weak<dyn Tenant>)>>,
    /// Whether the thread waits for something to run.
    rests: AtomicBool,
    thread: OnceLock<Option<Thread>>,
}

/// What one look found of a tenant.
struct Found {
    pid: u32,
    tenant: Arc<dyn Tenant>,
    family: Vec<Process>,
    held: u64,
}

impl Memory {
    /// So many MiB for all together, 0 for no bound; `None`: what the container or the machine has,
    /// less a reserve.
    pub fn new(mib: Option<u64>) -> Arc<Self> {
        let budget = match mib {
            Some(mib) => mib.saturating_mul(1 << 20),
            None => bound::found(Path::new("/")),
        };
        if budget == 0 && mib.is_none() {
            tracing::warn!("how much memory there is cannot be found out; hosts have no bound");
        }
        Self::with_budget(budget)
    }

    fn with_budget(budget: u64) -> Arc<Self> {
        Arc::new(Self {
            budget,
            tenants: Mutex::default(),
            rests: AtomicBool::new(false),
            thread: OnceLock::new(),
        })
    }

    /// The bound in MiB; 0: there is none.
    pub fn budget_mib(&self) -> u64 {
        self.budget >> 20
    }

    /// From now on this process counts, with all that it starts.
    pub(crate) fn adopt(self: &Arc<Self>, pid: Pid, tenant: Weak<dyn Tenant>) {
        end_sooner(pid);
        if self.budget == 0 {
            return;
        }
        refuse_beyond(pid, self.budget.saturating_mul(2).saturating_add(ASKED));
        lock(&self.tenants).push((pid.as_raw_nonzero().get().unsigned_abs(), tenant));
        self.thread.get_or_init(|| {
            let memory = Arc::downgrade(self);
            let thread = thread::Builder::new()
                .name("memory".into())
                .stack_size(256 * 1024)
                .spawn(move || watch(&memory));
            match thread {
                Ok(handle) => Some(handle.thread().clone()),
                Err(error) => {
                    tracing::error!(%error, "the memory of hosts cannot be watched");
                    None
                }
            }
        });
        self.begins();
    }

    /// Something begins to run in one of them.
    pub(super) fn begins(&self) {
        // Usually nobody rests, and then this is all.
        if self.rests.load(Ordering::Relaxed)
            && self.rests.swap(false, Ordering::Relaxed)
            && let Some(Some(thread)) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Waits for something to run, for a while.
    fn rest(&self) {
        if self.may_rest() {
            thread::park_timeout(REST);
        }
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Says that somebody rests, and whether nothing runs.
    fn may_rest(&self) -> bool {
        self.rests.store(true, Ordering::Relaxed);
        // Asked only now, and under the locks of those who begin: either their work is seen here, or
        // they see that somebody rests.
        !self.living().iter().any(|(_, tenant)| tenant.is_busy())
    }

    fn living(&self) -> Vec<(u32, Arc<dyn Tenant>)> {
        let mut tenants = lock(&self.tenants);
        tenants.retain(|(_, tenant)| tenant.strong_count() > 0);
        tenants
            .iter()
            .filter_map(|(pid, tenant)| Some((*pid, tenant.upgrade()?)))
            .filter(|(_, tenant)| tenant.lives())
            .collect()
    }

    /// Looks once, and ends what is too much. Bytes that the rest holds.
    fn look(&self, processes: &mut Processes) -> u64 {
        let living = self.living();
        let pids: Vec<u32> = living.iter().map(|(pid, _)| *pid).collect();
        let families = processes.families(&pids);
        let mut all: Vec<Found> = living
            .into_iter()
            .zip(families)
            .map(|((pid, tenant), family)| Found {
                pid,
                tenant,
                held: processes.held(&family),
                family,
            })
            .collect();
        let sum = |all: &[Found]| all.iter().map(|one| one.held).sum::<u64>();
        if sum(&all) > self.budget {
            for one in all.iter_mut().filter(|one| one.family.len() > 1) {
                one.held = processes.held_exactly(&one.family);
            }
        }
        let mut together = sum(&all);
        all.sort_by_key(|one| Reverse(one.held));
        for one in &all {
            if together <= self.budget {
                break;
            }
            self.end(one, together, processes);
            together -= one.held;
        }
        together
    }

    fn end(&self, one: &Found, together: u64, processes: &Processes) {
        tracing::warn!(
            pid = one.pid,
            processes = one.family.len(),
            held_mib = one.held >> 20,
            together_mib = together >> 20,
            budget_mib = self.budget_mib(),
            "the group's processes hold too much memory; the one that holds the most is ended"
        );
        one.tenant.end(EndCause::Budget {
            held: one.held,
            budget: self.budget,
        });
        // Those that left its group go with it all the same.
        let strays = one.family.iter().filter(|process| process.group != one.pid);
        for stray in strays {
            kill_stray(stray, processes);
        }
        // Until it is gone its memory is on its way back: nobody else is to pay for it.
        lock(&self.tenants).retain(|(pid, _)| *pid != one.pid);
    }
}

/// Ends this process and none that got its id since it was looked at: the handle is of whoever has
/// the id now, and only then it is asked who that is.
fn kill_stray(stray: &Process, processes: &Processes) {
    let Some(pid) = Pid::from_raw(stray.pid.cast_signed()) else {
        return;
    };
    // An error: it ended by itself.
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
        && processes.is_still(stray)
    {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

/// Looks again and again, as long as anybody needs it.
fn watch(memory: &Weak<Memory>) {
    let mut processes = Processes::new(Path::new("/"));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut before = 0;
    while let Some(memory) = memory.upgrade() {
        let begin = Instant::now();
        let held = memory.look(&mut processes);
        let at_once = memory.living().len().min(cores);
        let left = memory.budget.saturating_sub(held);
        let pause = pause(left, at_once, begin.elapsed());
        // What grows is watched, also when nobody waits for it.
        if held <= before + NOISE {
            memory.rest();
        }
        before = held;
        thread::sleep(pause);
    }
}

/// The time in which so many at once can fill `left` bytes, within bounds.
fn pause(left: u64, at_once: usize, look: Duration) -> Duration {
    Duration::from_millis(left / FILLED / at_once.max(1) as u64)
        .clamp(SHORTEST, LONGEST)
        .max(look.saturating_mul(LOOKS))
}

/// What a process asks for beyond this is refused by the kernel, in Python a `MemoryError`: one call
/// that asks for far too much at once does not even cost its host. Address space that nobody may
/// access yet (`PROT_NONE`) does not count, as it would for a limit of all of it. What may be written
/// counts, also when it is only set aside (`MAP_NORESERVE`) or a private map of a file. Only the soft
/// limit is set: a program that needs more may raise it.
fn refuse_beyond(pid: Pid, bytes: u64) {
    let highest = getrlimit(Resource::Data).maximum;
    let limits = Rlimit {
        current: Some(highest.map_or(bytes, |highest| bytes.min(highest))),
        maximum: highest,
    };
    if let Err(error) = prlimit(Some(pid), Resource::Data, limits) {
        tracing::debug!(%error, "a process is not limited in what it asks for");
    }
}

/// Where the kernel has to choose all the same it ends a host before the front.
fn end_sooner(pid: Pid) {
    let file = |of: &str| format!("/proc/{of}/oom_score_adj");
    let own = fs::read_to_string(file("self"));
    let own: i32 = own.map_or(0, |text| text.trim().parse().unwrap_or(0));
    let score = (own + SOONER).min(1000);
    let pid = pid.as_raw_nonzero().to_string();
    if let Err(error) = fs::write(file(&pid), score.to_string()) {
        tracing::debug!(%error, "the kernel was not told whom to end first");
    }
}

/// The value of a line `name:  1234 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(text.lines().find_map(value)? << 10)
}

#[cfg(test)]
mod tests;
