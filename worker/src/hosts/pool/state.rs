//! Who sits where and who waits: what the lock of a pool protects.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::breaker::Breaker;
use crate::hosts::channel::{Channel, Pending};
use crate::hosts::process::HostProcess;

#[derive(Default)]
pub(super) struct Seat {
    pub(super) host: Option<Arc<HostProcess>>,
    pub(super) running: usize,
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
    /// A host with room, the place in it taken.
    pub(super) fn pick(&mut self, threads: usize) -> Option<Arc<HostProcess>> {
        if !self.queue.is_empty() {
            return None;
        }
        let (index, _) = self.roomiest(threads)?;
        let seat = self.seats.get_mut(index)?;
        seat.running += 1;
        seat.host.clone()
    }

    pub(super) fn roomiest(&self, threads: usize) -> Option<(usize, usize)> {
        let (index, seat) = self
            .seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.host.is_some() && seat.running < threads)
            .min_by_key(|(_, seat)| seat.running)?;
        Some((index, threads - seat.running))
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
        }
    }
}
