//! The reading half of a channel: by its own task, or by a caller that expects its answer at once.

use std::hint;
use std::sync::TryLockError;
use std::time::Instant;

use bytes::Bytes;
use ramen_frame::{Decoder, FrameError, FromHost};
use tokio::sync::mpsc;

use super::{Channel, Control, Ended, HostEvent, KEEP_BUFFER, Reply, lock};
use crate::hosts::fate::ChannelError;

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
    /// Reads frames until the host closes its end of the channel or breaks it.
    pub(in crate::hosts) async fn read(
        &self,
        control: mpsc::UnboundedSender<Control>,
    ) -> Result<(), ChannelError> {
        lock(&self.incoming).control = Some(control);
        let ended = self.read_to_end().await;
        // Who waits for control frames learns that none will come.
        lock(&self.incoming).control = None;
        ended
    }

    async fn read_to_end(&self) -> Result<(), ChannelError> {
        loop {
            let mut ready = self.socket.readable().await.map_err(ChannelError::Read)?;
            let mut incoming = lock(&self.incoming);
            if let Some(error) = incoming.broken.take() {
                return Err(error.into());
            }
            let read = self.socket.read(&mut ready, incoming.room());
            match read.map_err(ChannelError::Read)? {
                Some(0) => return Ok(()),
                Some(_) => self.take_frames(&mut incoming)?,
                None => {}
            }
        }
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::hosts::socket::Socket;

    /// How the channel of a host ends that sends `last` and closes its end.
    async fn end_after(last: &[u8]) -> Result<(), ChannelError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let channel = Channel::new(Socket::new(ours.into()).unwrap());
        theirs.write_all(last).unwrap();
        drop(theirs);
        let (control, _waiting) = mpsc::unbounded_channel();
        channel.read(control).await
    }

    #[tokio::test]
    async fn a_host_that_closes_its_end_has_not_broken_the_channel() {
        assert!(end_after(b"").await.is_ok());
        let broken = end_after(&[0; 5]).await.unwrap_err();
        assert!(matches!(broken, ChannelError::Frame(FrameError::Empty)));
    }
}
