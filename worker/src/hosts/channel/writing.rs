//! The writing half of a channel: by whoever calls, or by its own task when there is no room.

use std::sync::MutexGuard;

use bytes::Bytes;
use ramen_frame::{FrameError, Load, ToHost};

use super::{Channel, KEEP_BUFFER, Pending, lock};
use crate::hosts::fate::{CallError, Death};

/// Most bytes that wait for a host that does not read.
const MAX_BACKLOG: usize = 64 * 1024 * 1024;

/// What was not written yet.
#[derive(Default)]
pub(super) struct Out {
    buffer: Vec<u8>,
    sent: usize,
    /// The first call in the buffer.
    first: Option<u64>,
}

impl Out {
    /// The first of its calls, when the host can have seen none of them.
    pub(super) fn unwritten(&self) -> Option<u64> {
        self.first.filter(|_| self.sent == 0)
    }
}

impl Channel {
    /// Sends one call. A host that is gone gives the call back: it may go to another.
    #[expect(
        clippy::result_large_err,
        reason = "gives the call itself back; a box would have to be allocated for nothing"
    )]
    pub(in crate::hosts) fn submit(
        &self,
        pending: Pending,
        arguments: &[u8],
    ) -> Result<(), (Option<Pending>, CallError)> {
        let mut out = lock(&self.out);
        let was_empty = out.buffer.is_empty();
        let running = self.add(&mut out, pending, arguments)?;
        if running > 1 && was_empty {
            // One of many: those that come right behind it go out with the same write.
            self.unsent.notify_one();
        } else {
            self.flush(&mut out, was_empty);
        }
        Ok(())
    }

    /// Sends calls with one write; gives back those that another host may take.
    pub(in crate::hosts) fn submit_all(
        &self,
        calls: Vec<(Pending, Bytes)>,
    ) -> Vec<(Pending, Bytes)> {
        let mut back = Vec::new();
        let mut out = lock(&self.out);
        let was_empty = out.buffer.is_empty();
        for (pending, arguments) in calls {
            if let Err((Some(pending), _)) = self.add(&mut out, pending, &arguments) {
                back.push((pending, arguments));
            }
        }
        self.flush(&mut out, was_empty);
        back
    }

    /// Enters a call into the table and the buffer; how many calls there are now. `Err` without the call: it was answered.
    #[expect(
        clippy::result_large_err,
        reason = "gives the call itself back; a box would have to be allocated for nothing"
    )]
    fn add(
        &self,
        out: &mut Out,
        pending: Pending,
        arguments: &[u8],
    ) -> Result<usize, (Option<Pending>, CallError)> {
        let package = pending.package;
        let waiting = out.buffer.len() - out.sent;
        let (call, running) = {
            let mut table = lock(&self.table);
            if let Some(death) = &table.closed {
                return Err((Some(pending), CallError::Gone(death.clone())));
            }
            if let Some(cause) = table.condemned {
                let death = Death::Ended(cause);
                return Err((Some(pending), CallError::Gone(death)));
            }
            if waiting > 0 && waiting + arguments.len() > MAX_BACKLOG {
                drop(table);
                pending.fail(CallError::Busy);
                return Err((None, CallError::Busy));
            }
            (table.insert(pending), table.running)
        };
        if (ToHost::Call {
            call,
            package,
            arguments,
        })
        .encode(&mut out.buffer)
        .is_ok()
        {
            out.first.get_or_insert(call);
            if let Some(memory) = self.memory.get() {
                memory.begins();
            }
            return Ok(running);
        }
        let error = CallError::TooLarge(arguments.len());
        let pending = lock(&self.table).remove(call);
        if let Some(pending) = pending {
            pending.fail(error.clone());
        }
        Err((None, error))
    }

    pub(in crate::hosts) fn send(&self, frame: &ToHost<'_>) -> Result<(), FrameError> {
        let mut out = lock(&self.out);
        let was_empty = out.buffer.is_empty();
        frame.encode(&mut out.buffer)?;
        self.flush(&mut out, was_empty);
        Ok(())
    }

    pub(in crate::hosts) fn load(&self, load: &Load) -> Result<(), FrameError> {
        self.send(&ToHost::Load(load.clone()))
    }

    /// Writes what is there unless the writer task already waits for room.
    fn flush(&self, out: &mut MutexGuard<'_, Out>, was_empty: bool) {
        if was_empty && !out.buffer.is_empty() && !self.write_some(out) {
            self.unsent.notify_one();
        }
    }

    /// True when nothing is left to write.
    pub(super) fn write_some(&self, out: &mut Out) -> bool {
        while let Some(rest) = out.buffer.get(out.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.try_write(rest) {
                Ok(written) => out.sent += written,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // The host closed its end. The death watcher fails the calls; here the bytes go.
                Err(_) => {
                    if let Some(first) = out.unwritten() {
                        lock(&self.table).unsent.get_or_insert(first);
                    }
                    break;
                }
            }
        }
        out.buffer.clear();
        out.sent = 0;
        out.first = None;
        out.buffer.shrink_to(KEEP_BUFFER);
        true
    }

    /// Writes what was gathered, and what did not fit, when there is room again.
    pub(in crate::hosts) async fn write_unsent(&self) {
        loop {
            self.unsent.notified().await;
            ramen_listener::behind_the_others().await;
            if self.write_some(&mut lock(&self.out)) {
                continue;
            }
            let written = self
                .socket
                .when_writable(|| self.write_some(&mut lock(&self.out)))
                .await;
            if let Err(error) = written {
                tracing::error!(%error, "cannot wait for a host to read; its calls will not end");
                return;
            }
        }
    }
}
