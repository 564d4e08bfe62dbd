//! The reading half of a channel: by its own task, or by a caller that expects its answer at once.

use std::hint;
use std::sync::TryLockError;
use std::time::Instant;

use bytes::Bytes;
use ramen_frame::{Decoder, FrameError, FromHost};
use tokio::sync::mpsc;

use super::{Channel, Control, Ended, HostEvent, KEEP_BUFFER, Reply, lock};

/// Room for one read.
const READ: usize = 16 * 1024;
/// Turns of the processor between two looks at the socket.
const TURNS: u32 = 32;

/// What was read and not yet understood, and who gets the frames that are no answers. Whoever has
/// the lock reads.
#[derive(Default)]
pub(super) struct Incoming {
    decoder: Decoder,
    pub(super) control: Option<mpsc::UnboundedSender<Control>>,
    /// Why frames that a caller read cannot be understood; for the task to tell.
    broken: Option<FrameError>,
}

impl Incoming {
    fn room(&mut self) -> &mut Vec<u8> {
        let buffer = self.decoder.buffer_mut();
        if buffer.is_empty() {
            buffer.shrink_to(KEEP_BUFFER);
        }
        buffer.reserve(READ);
        buffer
    }
}

impl Channel {
    /// Reads frames until the channel ends; says why it ended.
    pub(in crate::hosts) async fn read(&self, control: mpsc::UnboundedSender<Control>) -> String {
        lock(&self.incoming).control = Some(control);
        let why = loop {
            let mut ready = match self.socket.readable().await {
                Ok(ready) => ready,
                Err(error) => break format!("cannot be read: {error}"),
            };
            let mut incoming = lock(&self.incoming);
            if let Some(error) = incoming.broken.take() {
                break error.to_string();
            }
            match self.socket.read(&mut ready, incoming.room()) {
                Ok(None) => continue,
                Ok(Some(0)) => break "closed by the host".into(),
                Ok(Some(_)) => {}
                Err(error) => break format!("cannot be read: {error}"),
            }
            if let Err(error) = self.take_frames(&mut incoming) {
                break error.to_string();
            }
        };
        // Who waits for control frames learns that none will come.
        lock(&self.incoming).control = None;
        why
    }

    /// Looks for answers until `until`, without giving the thread away; true when one came. What a
    /// change of threads costs is more than a quick call takes. Ends and faults are left to the
    /// task, which sees them too.
    pub(in crate::hosts) fn linger(&self, until: Instant) -> bool {
        let mut incoming = match self.incoming.try_lock() {
            Ok(incoming) => incoming,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if incoming.broken.is_some() {
            return false;
        }
        loop {
            for _ in 0..TURNS {
                hint::spin_loop();
            }
            match self.socket.try_read(incoming.room()) {
                Ok(Some(1..)) => {
                    if let Err(error) = self.take_frames(&mut incoming) {
                        incoming.broken = Some(error);
                        // The task may see no further event: the host has its end of it.
                        self.socket.shut_down();
                        return false;
                    }
                    return true;
                }
                Ok(Some(0)) | Err(_) => return false,
                Ok(None) if Instant::now() >= until => return false,
                Ok(None) => {}
            }
        }
    }

    fn take_frames(&self, incoming: &mut Incoming) -> Result<(), FrameError> {
        let Incoming {
            decoder, control, ..
        } = incoming;
        let tell = |message| {
            if let Some(control) = &*control {
                // Nobody may be waiting for it.
                let _ = control.send(message);
            }
        };
        let observer = self.observer();
        let mut ended = Ended::default();
        let mut now = None;
        let outcome = loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            match FromHost::parse(frame) {
                Ok(FromHost::Result {
                    call,
                    status,
                    payload,
                }) => {
                    let Some(pending) = lock(&self.table).remove(call) else {
                        continue;
                    };
                    ended.calls += 1;
                    ended.slow += usize::from(pending.slow);
                    if let (Some(observer), Some(sent)) = (&observer, pending.sent) {
                        let now = *now.get_or_insert_with(Instant::now);
                        observer.took(pending.package, now.saturating_duration_since(sent));
                    }
                    let payload = Bytes::copy_from_slice(payload);
                    // A caller that left is not told.
                    let _ = pending.reply.send(Ok(Reply { status, payload }));
                }
                Ok(FromHost::Progress { call, update }) => {
                    self.event(call, HostEvent::Progress(update));
                }
                Ok(FromHost::Log { call, entry }) => self.event(call, HostEvent::Log(entry)),
                Ok(FromHost::Importing(importing)) => tell(Control::Importing(importing.id)),
                Ok(FromHost::Loaded(loaded)) => tell(Control::Loaded(loaded)),
                Ok(FromHost::Stats(stats)) => tell(Control::Stats(stats)),
                Err(error) => break Err(error),
            }
        };
        if ended.calls > 0
            && let Some(observer) = observer
        {
            observer.freed(self, ended);
        }
        outcome
    }
}
