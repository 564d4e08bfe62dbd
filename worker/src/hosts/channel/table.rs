//! The calls of one host: who waits for which answer.

use std::time::Instant;

use tokio::sync::oneshot;

use super::{CallOptions, Reply};
use crate::hosts::fate::{CallError, Death, EndCause};

/// A call, from when it is asked for until it is answered.
pub(in crate::hosts) struct Pending {
    pub(super) reply: oneshot::Sender<Result<Reply, CallError>>,
    pub(super) options: CallOptions,
    pub(super) package: u32,
    pub(super) call: u64,
    /// When it was sent to a host.
    pub(super) sent: Option<Instant>,
    /// Whether it counts as slow where hosts are chosen.
    pub(in crate::hosts) slow: bool,
    pub(super) left: Option<Left>,
}

/// A caller that went away.
pub(super) struct Left {
    pub(super) at: Instant,
    pub(super) interrupted: bool,
}

impl Pending {
    pub(in crate::hosts) fn new(package: u32, options: CallOptions) -> (Self, Answer) {
        let (reply, answer) = oneshot::channel();
        (
            Self {
                reply,
                options,
                package,
                call: 0,
                sent: None,
                slow: false,
                left: None,
            },
            answer,
        )
    }

    pub(in crate::hosts) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(in crate::hosts) fn fail(self, error: CallError) {
        // Nobody waits any more: nothing to tell.
        let _ = self.reply.send(Err(error));
    }
}

pub(in crate::hosts) type Answer = oneshot::Receiver<Result<Reply, CallError>>;

/// What the host was sent and has not answered.
#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Option<Pending>>,
    free: Vec<u32>,
    serial: u32,
    pub(super) running: usize,
    pub(super) closed: Option<Death>,
    /// Why the host is about to be ended: it gets no more calls.
    pub(super) condemned: Option<EndCause>,
    /// The package whose call ended last.
    pub(super) last: Option<u32>,
    /// The first call that the host closed its end before: that one and all later ones never reached it.
    pub(super) unsent: Option<u64>,
}

impl Table {
    pub(super) fn insert(&mut self, mut pending: Pending) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        self.serial = self.serial.wrapping_add(1);
        self.running += 1;
        let call = (u64::from(self.serial) << 32) | u64::from(index);
        pending.call = call;
        pending.sent = Some(Instant::now());
        if let Some(entry) = self.entries.get_mut(index as usize) {
            *entry = Some(pending);
        }
        call
    }

    /// The low half of an id is its place, the high half keeps a late answer from meeting the next
    /// call in that place.
    pub(super) fn remove(&mut self, call: u64) -> Option<Pending> {
        let index = u32::try_from(call & 0xffff_ffff).ok()?;
        let entry = self.entries.get_mut(index as usize)?;
        let pending = entry.take_if(|pending| pending.call == call)?;
        self.free.push(index);
        self.running -= 1;
        self.last = Some(pending.package);
        Some(pending)
    }

    /// Whether the host can have begun with this call. Ids are compared by their serial numbers, which may have come round.
    fn reached(&self, call: u64) -> bool {
        let serial = |call: u64| (call >> 32) as u32;
        self.unsent
            .is_none_or(|first| serial(call).wrapping_sub(serial(first)) > u32::MAX / 2)
    }

    pub(super) fn get(&self, call: u64) -> Option<&Pending> {
        let index = usize::try_from(call & 0xffff_ffff).ok()?;
        self.entries
            .get(index)?
            .as_ref()
            .filter(|pending| pending.call == call)
    }

    /// No more calls; those that were there, and those among them that the host can have begun with.
    pub(super) fn close(&mut self, death: &Death) -> (Vec<Pending>, Vec<(u32, bool)>) {
        self.closed = Some(death.clone());
        self.running = 0;
        self.free.clear();
        let entries: Vec<_> = self.entries.drain(..).flatten().collect();
        // A call that came when the host was dead already did not end it.
        let begun = entries.iter().filter(|one| self.reached(one.call));
        let running = begun.map(|one| (one.package, one.is_abandoned())).collect();
        (entries, running)
    }
}
