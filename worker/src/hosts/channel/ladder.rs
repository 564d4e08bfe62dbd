//! What happens to a call whose caller left: cancel, interrupt, end of the host.

use std::time::{Duration, Instant};

use ramen_frame::ToHost;

use super::table::Left;
use super::{Channel, lock};
use crate::hosts::fate::EndCause;

/// From a caller's leaving to the interrupt, when the deadline has not passed yet.
const INTERRUPT_AFTER: Duration = Duration::from_millis(50);
/// From a caller's leaving to the end of the host, when the deadline has not passed yet.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// From the deadline to the end of the host.
const DEADLINE_GRACE: Duration = Duration::from_millis(250);
/// What the other calls of a host that must end get on top.
const BYSTANDER_GRACE: Duration = Duration::from_secs(1);
/// How often a host that must end is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What the watcher of callers that left must do now.
#[derive(Default)]
pub(in crate::hosts) struct Ladder {
    pub(in crate::hosts) condemn: bool,
    pub(in crate::hosts) kill: bool,
    pub(in crate::hosts) next: Option<Instant>,
}

impl Channel {
    /// Looks for callers that left, sends `CANCEL` and `INTERRUPT` as they fall due, and says what
    /// must happen to the host.
    pub(in crate::hosts) fn climb(&self, now: Instant) -> Ladder {
        let mut cancels = Vec::new();
        let mut interrupts = Vec::new();
        let mut ladder = Ladder::default();
        {
            let mut table = lock(&self.table);
            let running = table.running;
            let mut gone = 0;
            let mut first_end: Option<Instant> = None;
            let mut due = |at: Instant| {
                ladder.next = Some(ladder.next.map_or(at, |next| next.min(at)));
            };
            for pending in table.entries.iter_mut().flatten() {
                if !pending.reply.is_closed() {
                    continue;
                }
                gone += 1;
                let call = pending.call;
                let deadline = pending.options.deadline;
                let late = deadline.is_some_and(|deadline| deadline <= now);
                let left = pending.left.get_or_insert_with(|| {
                    cancels.push(call);
                    Left {
                        at: now,
                        interrupted: false,
                    }
                });
                if !left.interrupted {
                    let at = if late { now } else { left.at + INTERRUPT_AFTER };
                    if at <= now {
                        left.interrupted = true;
                        interrupts.push(call);
                    } else {
                        due(at);
                    }
                }
                let mut end = left.at + CANCEL_GRACE;
                if let Some(deadline) = deadline {
                    end = end.min(deadline.max(left.at) + DEADLINE_GRACE);
                }
                first_end = Some(first_end.map_or(end, |first| first.min(end)));
            }
            if first_end.is_none() && table.condemned.is_some() {
                // The call came back after all, but its place was given away.
                ladder.kill = running == 0;
                due(now + LOOK_AGAIN);
            }
            if let Some(end) = first_end {
                if end > now {
                    due(end);
                } else {
                    ladder.condemn = true;
                    let last = end + BYSTANDER_GRACE;
                    if gone == running || last <= now {
                        ladder.kill = true;
                    } else {
                        // Also looks again when the bystanders are done.
                        due(last.min(now + LOOK_AGAIN));
                    }
                }
            }
        }
        for call in cancels {
            // A frame of fixed size always fits; a dead host is seen elsewhere.
            let _ = self.send(&ToHost::Cancel(call));
        }
        for call in interrupts {
            let _ = self.send(&ToHost::Interrupt(call));
        }
        if ladder.condemn {
            self.condemn(EndCause::Overdue);
        }
        ladder
    }
}
