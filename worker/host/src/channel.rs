//! The socket to the front: adopting it, reading, and writing in as few system calls as possible.
#![expect(
    unsafe_code,
    reason = "takes over file descriptor 3, which it was started with"
)]

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};

/// Where the front puts its end.
const STARTED_WITH: i32 = 3;
/// Above what user code is likely to close by number.
const MOVED_ABOVE: i32 = 200;
/// How long replies may wait for more, and how many bytes.
const GATHER: Duration = Duration::from_micros(100);
const GATHER_BYTES: usize = 32 * 1024;
/// A buffer that grew over this is given back when it is empty.
pub(crate) const KEEP: usize = 256 * 1024;
/// How long a read waits before it asks again. User code that closes the socket does not wake the
/// thread that reads it: without this the host would hang half dead until the front gave up on it.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Set in a forked child: it has no channel and must end instead of answering.
pub(crate) static FORKED: AtomicBool = AtomicBool::new(false);
static FD: AtomicI32 = AtomicI32::new(-1);

/// After a fork, in the child: without this a grandchild would keep the socket open.
pub(crate) fn close_in_child() {
    FORKED.store(true, Ordering::SeqCst);
    let fd = FD.swap(-1, Ordering::SeqCst);
    if fd >= 0 {
        // SAFETY: the child has one thread, and `FORKED` keeps it from using the number again.
        unsafe { libc::close(fd) };
    }
}

/// The socket, and the frames that are not sent yet.
pub(crate) struct Channel {
    fd: OwnedFd,
    out: Mutex<Outbox>,
    /// Frames of the thread that reads: it must never wait for one that sends, or a front that
    /// writes without reading would stop both.
    aside: Mutex<Vec<u8>>,
}

/// Bytes to send; those before `sent` are gone. Whoever leaves some behind sees to them later: the
/// reading thread before it reads, others by waiting.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    /// Since when the reading thread's replies wait for more.
    gathering_since: Option<Instant>,
}

/// How [`Channel::reply`] went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left to do.
    Done,
    /// The frames were not taken: use [`Channel::send_waiting`] with them.
    Busy,
    /// The frames were taken but not all bytes went out: use [`Channel::send_waiting`] with none.
    Rest,
}

impl Channel {
    /// Moves the socket away from where user code would stumble over it.
    pub(crate) fn adopt() -> Result<Self, String> {
        // SAFETY: fcntl on a number; a bad one gives an error.
        let mut fd = unsafe { libc::fcntl(STARTED_WITH, libc::F_DUPFD_CLOEXEC, MOVED_ABOVE) };
        if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            // The limit of open files is lower than that.
            // SAFETY: as above.
            fd = unsafe { libc::fcntl(STARTED_WITH, libc::F_DUPFD_CLOEXEC, STARTED_WITH + 1) };
        }
        if fd < 0 {
            return Err(format!(
                "no socket on file descriptor {STARTED_WITH} ({}); ramen-worker starts this program",
                io::Error::last_os_error()
            ));
        }
        // SAFETY: `fd` was just made and is ours; 3 was given to us for good.
        let fd = unsafe {
            libc::close(STARTED_WITH);
            OwnedFd::from_raw_fd(fd)
        };
        FD.store(fd.as_raw_fd(), Ordering::SeqCst);
        Ok(Self {
            fd,
            out: Mutex::default(),
            aside: Mutex::default(),
        })
    }

    /// Reads at least one byte; 0 = the front is gone.
    ///
    /// It waits in `poll`: a thread that waits in `recv` is also woken when the front takes a reply,
    /// because that makes room to send, and a call would cost two changes of threads instead of one.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((read, _)) => return Ok(read),
                Err(Errno::AGAIN) => {
                    let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
                    // What it says does not matter: the next read tells.
                    let _ = poll(&mut polled, Some(&LOOK_AGAIN));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is something to read; false when there is only room to send.
    pub(crate) fn wait(&self) -> bool {
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::OUT)];
        match poll(&mut polled, None) {
            Ok(_) => {
                let [polled] = &polled;
                let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
                polled.revents().intersects(readable)
            }
            Err(_) => false,
        }
    }

    /// Takes a reply without waiting, for attached threads. With `gather` (by the reading thread
    /// alone) it may wait for the next one, a little.
    pub(crate) fn reply(&self, frames: &[u8], gather: bool) -> Sent {
        let Some(mut outbox) = self.try_outbox() else {
            return Sent::Busy;
        };
        outbox.bytes.extend_from_slice(frames);
        if gather && outbox.may_gather() {
            return Sent::Done;
        }
        self.send(&mut outbox, false);
        let left = outbox.waiting() > 0;
        drop(outbox);
        if left || !self.settle(false) {
            Sent::Rest
        } else {
            Sent::Done
        }
    }

    /// Sends frames, and whatever waits. Not for attached threads, nor for the reading thread.
    pub(crate) fn send_waiting(&self, frames: &[u8]) {
        let mut outbox = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.bytes.extend_from_slice(frames);
        self.send(&mut outbox, true);
        drop(outbox);
        self.settle(true);
    }

    /// Takes frames of the reading thread.
    pub(crate) fn put_aside(&self, frames: &[u8]) {
        self.aside().extend_from_slice(frames);
    }

    /// Sends what waits as far as that goes at once; true when some is left for the caller, which
    /// is the reading thread. What another thread is sending is that one's to finish.
    pub(crate) fn flush(&self) -> bool {
        let Some(mut outbox) = self.try_outbox() else {
            return false;
        };
        outbox.bytes.append(&mut self.aside());
        if outbox.waiting() == 0 {
            return false;
        }
        self.send(&mut outbox, false);
        let left = outbox.waiting() > 0;
        drop(outbox);
        left || !self.settle(false)
    }

    /// Frames may have been put aside while this thread had the outbox: nobody else sends them.
    /// False when some are left.
    fn settle(&self, block: bool) -> bool {
        while !self.aside().is_empty() {
            let Some(mut outbox) = self.try_outbox() else {
                return true;
            };
            outbox.bytes.append(&mut self.aside());
            self.send(&mut outbox, block);
            if outbox.waiting() > 0 {
                return false;
            }
        }
        true
    }

    fn aside(&self) -> MutexGuard<'_, Vec<u8>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_outbox(&self) -> Option<MutexGuard<'_, Outbox>> {
        match self.out.try_lock() {
            Ok(outbox) => Some(outbox),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sends what waits. With `block` false it stops where it would have to wait. A socket that is
    /// broken ends the process.
    fn send(&self, outbox: &mut Outbox, block: bool) {
        let flags = if block {
            SendFlags::NOSIGNAL
        } else {
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT
        };
        while let Some(rest) = outbox
            .bytes
            .get(outbox.sent..)
            .filter(|rest| !rest.is_empty())
        {
            if FORKED.load(Ordering::Relaxed) {
                break;
            }
            match rustix::net::send(self.fd.as_fd(), rest, flags) {
                Ok(sent) => outbox.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !block => return,
                // The front is gone, or user code closed the socket (which does not wake the thread
                // that reads it): nobody can be answered any more.
                // SAFETY: ends the process.
                Err(_) => unsafe { libc::_exit(1) },
            }
        }
        outbox.bytes.clear();
        outbox.sent = 0;
        outbox.gathering_since = None;
        if outbox.bytes.capacity() > KEEP {
            outbox.bytes.shrink_to(KEEP);
        }
    }
}

impl Outbox {
    fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn may_gather(&mut self) -> bool {
        let now = Instant::now();
        let since = *self.gathering_since.get_or_insert(now);
        self.waiting() < GATHER_BYTES && now.duration_since(since) < GATHER
    }
}
