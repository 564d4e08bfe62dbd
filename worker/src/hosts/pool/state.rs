//! Who sits where and who waits: what the lock of a pool protects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::breaker::Breaker;
use super::pace::{Kind, SLOW};
use crate::hosts::channel::{Channel, Pending};
use crate::hosts::process::HostProcess;

/// What a slow call weighs against others where hosts are chosen.
const WEIGHT: usize = 8;
/// So many quick calls share a host before they wake the next one: to wake it takes longer than to
/// wait for theirs.
const SHARE: usize = 4;

#[derive(Default)]
pub(super) struct Seat {
    pub(super) host: Option<Arc<HostProcess>>,
    pub(super) running: usize,
    /// Those of the running calls that count as slow.
    pub(super) slow: usize,
    /// When the running calls were last looked at for their age.
    looked: Option<Instant>,
    pub(super) served: u64,
    pub(super) restarts: u64,
    pub(super) failures: u32,
}

pub(super) struct State {
    pub(super) seats: Vec<Seat>,
    pub(super) queue: VecDeque<(Pending, Bytes)>,
    pub(super) breaker: Breaker,
}

impl State {
    /// A host with room, the place in it taken, and whether nothing else runs in any.
    pub(super) fn pick(&mut self, threads: usize, kind: Kind) -> Option<(Arc<HostProcess>, bool)> {
        if !self.queue.is_empty() {
            return None;
        }
        let alone = self.seats.iter().all(|seat| seat.running == 0);
        if !alone {
            self.look();
        }
        let share = if kind == Kind::Quick { SHARE } else { 1 };
        let (index, _) = self.roomiest(threads, share)?;
        let seat = self.seats.get_mut(index)?;
        let host = seat.host.clone()?;
        seat.running += 1;
        seat.slow += usize::from(kind == Kind::Slow);
        Some((host, alone))
    }

    /// The host with the least to do, and its room. One that is busy with a slow call comes after
    /// the others: if that call burns CPU, a quick one waits a switch of the interpreter there.
    pub(super) fn roomiest(&self, threads: usize, share: usize) -> Option<(usize, usize)> {
        let (index, seat) = self
            .seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.host.is_some() && seat.running < threads)
            .min_by_key(|(_, seat)| seat.running / share + WEIGHT * seat.slow)?;
        Some((index, threads - seat.running))
    }

    /// Calls that run for long already count as slow, whatever their package did before.
    fn look(&mut self) {
        let now = Instant::now();
        let Some(before) = now.checked_sub(SLOW) else {
            return;
        };
        for seat in &mut self.seats {
            if let Some(host) = &seat.host
                && seat.running > seat.slow
                && seat.looked.is_none_or(|looked| looked <= before)
            {
                seat.looked = Some(now);
                seat.slow += host.channel().mark_slow(before);
            }
        }
    }

    pub(super) fn ready(&self) -> usize {
        self.seats.iter().filter(|seat| seat.host.is_some()).count()
    }

    /// Every place is empty and failed more than once: waiting makes no sense.
    pub(super) fn hopeless(&self) -> bool {
        self.seats
            .iter()
            .all(|seat| seat.host.is_none() && seat.failures >= 2)
    }

    pub(super) fn seat_of(&mut self, channel: &Channel) -> Option<(usize, &mut Seat)> {
        self.seats.iter_mut().enumerate().find(|(_, seat)| {
            seat.host
                .as_ref()
                .is_some_and(|host| std::ptr::eq(&raw const **host.channel(), channel))
        })
    }

    /// Empties the place of a host that takes no calls; its keeper sees to the rest.
    pub(super) fn unseat(&mut self, channel: &Channel) {
        if let Some((_, seat)) = self.seat_of(channel) {
            seat.host = None;
            seat.running = 0;
            seat.slow = 0;
        }
    }
}
