//! The hosts of one generation: who gets a call, what waits, and what is replaced.
//!
//! A call goes to the ready host with the fewest calls in flight, never more than `threads` to one;
//! a slow call counts as several, so that quick ones stay out of its way.
//! While all are full it waits here, in order, and is sent by the task that reads the answer which
//! makes room: no hand-over in between. How many may wait is bounded by `RAMEN_MAX_INFLIGHT`.

mod breaker;
mod pace;
mod seat;
mod state;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ramen_frame::{Load, Loaded};
use tokio::sync::{Notify, watch};

use super::channel::{Answer, CallOptions, Channel, Ended, Observer, Pending, Reply, lock};
use super::fate::{CallError, Death, EndCause, HostError};
use super::process::{HostProcess, HostSpec, LoadLimits};
use breaker::Breaker;
use pace::{Kind, Pace};
use state::{Seat, State};

/// What is told of hosts that ended, for the metrics.
pub type OnRestart = Arc<dyn Fn(&Death) + Send + Sync>;

/// How a pool is made.
#[derive(Clone)]
pub struct PoolSpec {
    /// How to start a host.
    pub host: HostSpec,
    /// What each loads.
    pub load: Load,
    /// How long a load may take.
    pub limits: LoadLimits,
    /// Number of hosts.
    pub hosts: usize,
    /// Calls at once in each.
    pub threads: usize,
    /// Resident bytes at which a host is replaced; 0: never.
    pub max_rss: u64,
    /// Calls after which a host is replaced; 0: never.
    pub max_calls: u64,
    /// Told of each host that ended by itself or was ended for a fault.
    pub on_restart: OnRestart,
}

/// Why a pool could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No host came up.
    #[error("no host process came up")]
    Host(#[source] HostError),
    /// These packages did not load.
    #[error("{} of the packages did not load", .0.packages.iter().filter(|one| !one.ok).count())]
    Packages(Loaded),
}

/// Why a call was not run, or has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolCallError {
    /// The host was lost.
    #[error(transparent)]
    Host(#[from] CallError),
    /// The package ended its hosts too often.
    #[error("it ended its host process too often; it is not called for another {0:?}")]
    Paused(Duration),
    /// No host is up, and none is likely to come up soon.
    #[error("no host process is up")]
    NoHost,
}

impl PoolCallError {
    /// Whether it is sure that no host was given the call.
    pub(crate) fn was_before_the_call(&self) -> bool {
        matches!(
            self,
            Self::Paused(_)
                | Self::NoHost
                | Self::Host(CallError::Gone(_) | CallError::Busy | CallError::NoHost)
        )
    }
}

/// What can be said of a host from outside.
#[derive(Debug, Clone)]
pub struct SeatStatus {
    /// Process id, 0 while there is none.
    pub pid: u32,
    /// Calls in it.
    pub in_flight: usize,
    /// How often this place got a new process.
    pub restarts: u64,
    /// Resident bytes.
    pub rss: u64,
    /// `starting`, `ready`, `draining` or `dead`.
    pub state: &'static str,
}

/// The hosts of one generation.
pub struct Pool {
    spec: Arc<PoolSpec>,
    state: Mutex<State>,
    pace: Pace,
    /// Wakes each seat when its host is to be replaced.
    replace: Vec<Arc<Notify>>,
    draining: AtomicBool,
    ready: watch::Sender<usize>,
    retired: watch::Sender<bool>,
    idle: Notify,
}

/// A call in flight or waiting. Dropping it cancels the call.
pub struct PoolCall {
    answer: Answer,
    pool: Arc<Pool>,
    done: bool,
}

impl PoolCall {
    /// The reply.
    pub async fn reply(mut self) -> Result<Reply, PoolCallError> {
        let answer = (&mut self.answer).await;
        self.done = true;
        Ok(answer.unwrap_or(Err(CallError::Lost))?)
    }
}

impl Drop for PoolCall {
    fn drop(&mut self) {
        if !self.done {
            self.answer.close();
            self.pool.caller_left();
        }
    }
}

impl Pool {
    /// Starts all hosts and loads the packages in each. Every package must load.
    pub async fn start(spec: PoolSpec) -> Result<Arc<Self>, PoolError> {
        let count = if spec.load.packages.is_empty() {
            0
        } else {
            spec.hosts.max(1)
        };
        let first = futures::future::join_all((0..count).map(|_| seat::bring_up(&spec))).await;
        let mut hosts = Vec::new();
        let mut failed = None;
        for outcome in first {
            match outcome {
                Ok(host) => hosts.push(Some(host)),
                Err(error @ PoolError::Packages(_)) => return Err(error),
                Err(error) => {
                    failed = Some(error);
                    hosts.push(None);
                }
            }
        }
        if let Some(error) = failed
            && hosts.iter().all(Option::is_none)
        {
            return Err(error);
        }
        let seats = (0..count).map(|_| Seat::default()).collect();
        let ids = spec.load.packages.iter().map(|package| package.id);
        let pace = Pace::new(ids.max().map_or(0, |last| last as usize + 1));
        let pool = Arc::new(Self {
            spec: Arc::new(spec),
            pace,
            state: Mutex::new(State {
                seats,
                queue: VecDeque::new(),
                breaker: Breaker::default(),
            }),
            replace: (0..count).map(|_| Arc::default()).collect(),
            draining: AtomicBool::new(false),
            ready: watch::Sender::new(0),
            retired: watch::Sender::new(false),
            idle: Notify::new(),
        });
        for (index, host) in hosts.into_iter().enumerate() {
            if let Some(host) = host {
                pool.seat_host(index, Arc::new(host));
            }
            tokio::spawn(seat::keep(
                Arc::downgrade(&pool),
                index,
                pool.retired.subscribe(),
            ));
        }
        Ok(pool)
    }

    /// Runs a call, or lets it wait for a host. `arguments` is a JSON object.
    pub fn call(
        self: &Arc<Self>,
        package: u32,
        arguments: Bytes,
        options: CallOptions,
    ) -> Result<PoolCall, PoolCallError> {
        let (mut pending, answer) = Pending::new(package, options);
        let kind = self.pace.kind(package);
        pending.slow = kind == Kind::Slow;
        {
            let mut state = lock(&self.state);
            if !state.breaker.is_empty()
                && let Some(pause) = state.breaker.pause(package, Instant::now())
            {
                return Err(PoolCallError::Paused(pause));
            }
            match state.pick(self.spec.threads, kind) {
                Some((host, alone)) => {
                    drop(state);
                    self.send(&host, pending, arguments);
                    if let Some(time) = self.pace.linger(package, alone) {
                        let found = host.channel().linger(Instant::now() + time);
                        self.pace.lingered(found);
                    }
                }
                None if state.hopeless() => return Err(PoolCallError::NoHost),
                None => state.queue.push_back((pending, arguments)),
            }
        }
        Ok(PoolCall {
            answer,
            pool: Arc::clone(self),
            done: false,
        })
    }

    fn send(&self, host: &HostProcess, pending: Pending, arguments: Bytes) {
        let one = Ended::one(pending.slow);
        match host.channel().submit(pending, &arguments) {
            Ok(()) => {}
            // It died a moment ago and its seat is about to be emptied: another one takes the call.
            Err((Some(pending), _)) => {
                lock(&self.state).queue.push_front((pending, arguments));
                self.fill();
            }
            Err((None, _)) => self.freed(host.channel(), one),
        }
    }

    /// Sends what waits to hosts with room.
    fn fill(&self) {
        loop {
            let (host, calls) = {
                let mut state = lock(&self.state);
                state.queue.retain(|(pending, _)| !pending.is_abandoned());
                let Some((index, room)) = state.roomiest(self.spec.threads, 1) else {
                    return;
                };
                let count = room.min(state.queue.len());
                if count == 0 {
                    return;
                }
                let calls: Vec<_> = state.queue.drain(..count).collect();
                let Some(seat) = state.seats.get_mut(index) else {
                    return;
                };
                seat.running += count;
                seat.slow += calls.iter().filter(|(pending, _)| pending.slow).count();
                (seat.host.clone(), calls)
            };
            let Some(host) = host else { return };
            let back = host.channel().submit_all(calls);
            if !back.is_empty() {
                let mut state = lock(&self.state);
                state.unseat(host.channel());
                for call in back.into_iter().rev() {
                    state.queue.push_front(call);
                }
            }
        }
    }

    fn caller_left(&self) {
        let hosts: Vec<_> = {
            let mut state = lock(&self.state);
            state.queue.retain(|(pending, _)| !pending.is_abandoned());
            state
                .seats
                .iter()
                .filter_map(|seat| seat.host.clone())
                .collect()
        };
        for host in hosts {
            host.channel().caller_left();
        }
        if self.draining.load(Ordering::Acquire) {
            self.wake_if_idle();
        }
    }

    fn served(&self, index: usize) -> u64 {
        lock(&self.state)
            .seats
            .get(index)
            .map_or(0, |seat| seat.served)
    }

    fn host(&self, index: usize) -> Option<Arc<HostProcess>> {
        lock(&self.state).seats.get(index)?.host.clone()
    }

    fn seat_host(self: &Arc<Self>, index: usize, host: Arc<HostProcess>) {
        let weak: Weak<Self> = Arc::downgrade(self);
        host.channel().observe(weak);
        let ready = {
            let mut state = lock(&self.state);
            if let Some(seat) = state.seats.get_mut(index) {
                seat.host = Some(host);
                seat.running = 0;
                seat.slow = 0;
                seat.served = 0;
                seat.failures = 0;
            }
            state.ready()
        };
        self.ready.send_replace(ready);
        self.fill();
    }

    /// Takes the host out of its place; it gets no further calls.
    fn unseat(&self, index: usize) -> Option<Arc<HostProcess>> {
        let (host, ready) = {
            let mut state = lock(&self.state);
            let host = state.seats.get_mut(index).and_then(|seat| {
                seat.running = 0;
                seat.slow = 0;
                seat.restarts += 1;
                seat.host.take()
            });
            (host, state.ready())
        };
        self.ready.send_replace(ready);
        host
    }

    fn failed(&self, index: usize) -> u32 {
        let mut state = lock(&self.state);
        let failures = state.seats.get_mut(index).map_or(1, |seat| {
            seat.failures += 1;
            seat.failures
        });
        if state.hopeless() {
            for (pending, _) in std::mem::take(&mut state.queue) {
                pending.fail(CallError::NoHost);
            }
        }
        failures
    }

    fn wake_if_idle(&self) {
        if self.in_flight() == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Calls in hosts and calls that wait.
    pub fn in_flight(&self) -> usize {
        let state = lock(&self.state);
        state.queue.len() + state.seats.iter().map(|seat| seat.running).sum::<usize>()
    }

    /// How many hosts are up. A pool that needs none has none.
    pub fn ready(&self) -> watch::Receiver<usize> {
        self.ready.subscribe()
    }

    /// Whether calls can be answered.
    pub fn serves(&self) -> bool {
        self.replace.is_empty() || *self.ready.borrow() > 0
    }

    /// What can be said of each host.
    pub fn status(&self) -> Vec<SeatStatus> {
        let state = lock(&self.state);
        let describe = |seat: &Seat| {
            let pid = seat.host.as_ref().map_or(0, |host| host.pid());
            let state = match (&seat.host, *self.retired.borrow()) {
                (Some(_), true) => "draining",
                (Some(_), false) => "ready",
                (None, true) => "dead",
                (None, false) if seat.failures > 0 => "dead",
                (None, false) => "starting",
            };
            let (in_flight, restarts) = (seat.running, seat.restarts);
            SeatStatus {
                pid,
                in_flight,
                restarts,
                rss: seat::resident(pid),
                state,
            }
        };
        state.seats.iter().map(describe).collect()
    }

    /// Lets the calls end, at most for `limit`, then ends the hosts. New ones are not started.
    pub async fn retire(&self, limit: Duration) {
        self.draining.store(true, Ordering::Release);
        let drained = async {
            loop {
                let idle = self.idle.notified();
                if self.in_flight() == 0 {
                    return;
                }
                idle.await;
            }
        };
        // Over the limit the calls are lost with their hosts: they are told so.
        let _ = tokio::time::timeout(limit, drained).await;
        self.retired.send_replace(true);
        let hosts: Vec<_> = {
            let mut state = lock(&self.state);
            for (pending, _) in std::mem::take(&mut state.queue) {
                // It waited: no host was given it.
                pending.fail(CallError::Gone(Death::Ended(EndCause::Retired)));
            }
            state
                .seats
                .iter_mut()
                .filter_map(|seat| seat.host.take())
                .collect()
        };
        futures::future::join_all(hosts.into_iter().map(|host| async move {
            host.ask_to_end();
            if tokio::time::timeout(Duration::from_millis(500), host.died())
                .await
                .is_err()
            {
                host.kill(EndCause::Retired);
                host.died().await;
            }
        }))
        .await;
    }
}

impl Observer for Pool {
    fn freed(&self, channel: &Channel, ended: Ended) {
        let max = self.spec.max_calls;
        let (more, recycle) = {
            let mut state = lock(&self.state);
            let recycle = state.seat_of(channel).and_then(|(index, seat)| {
                seat.running = seat.running.saturating_sub(ended.calls);
                seat.slow = seat.slow.saturating_sub(ended.slow);
                let before = seat.served;
                seat.served += ended.calls as u64;
                (max > 0 && before < max && seat.served >= max).then_some(index)
            });
            (!state.queue.is_empty(), recycle)
        };
        if let Some(notify) = recycle.and_then(|index| self.replace.get(index)) {
            notify.notify_one();
        }
        if more {
            self.fill();
        } else if self.draining.load(Ordering::Acquire) {
            self.wake_if_idle();
        }
    }

    fn took(&self, package: u32, time: Duration) {
        self.pace.took(package, time);
    }

    fn condemned(&self, channel: &Channel) {
        let index = lock(&self.state).seat_of(channel).map(|(index, _)| index);
        if let Some(notify) = index.and_then(|index| self.replace.get(index)) {
            notify.notify_one();
        }
    }

    fn ended(&self, channel: &Channel, death: &Death, running: &[(u32, bool)]) {
        // SIGKILL comes from outside, perhaps from the kernel for a call's memory, perhaps not.
        let killed = *death == Death::Signalled(rustix::process::Signal::KILL.as_raw());
        let weight = if killed { 0.25 } else { 1.0 };
        let by_calls = match death {
            Death::Ended(cause) => {
                matches!(cause, EndCause::Overdue | EndCause::Budget { .. })
            }
            _ => true,
        };
        let ready = {
            let mut state = lock(&self.state);
            if by_calls && !running.is_empty() {
                state.breaker.host_ended(running, weight, Instant::now());
            }
            state.unseat(channel);
            state.ready()
        };
        self.ready.send_replace(ready);
        if self.draining.load(Ordering::Acquire) {
            self.wake_if_idle();
        }
    }
}

#[cfg(test)]
mod tests;
