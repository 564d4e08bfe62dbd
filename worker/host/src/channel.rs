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
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
};

/// Where the front puts its end.
const STARTED_WITH: i32 = 3;
/// Above what user code is likely to close by number.
const MOVED_ABOVE: i32 = 200;
/// A buffer that grew over this is given back when it is empty.
pub(crate) const KEEP: usize = 256 * 1024;

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

/// The socket, and the replies that are not sent yet.
pub(crate) struct Channel {
    fd: OwnedFd,
    out: Mutex<Outbox>,
}

/// Bytes to send; those before `sent` are gone.
#[derive(Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
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
        })
    }

    /// Reads at least one byte; 0 = the front is gone.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((read, _)) => return Ok(read),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for the outbox; not for use by a thread that is attached to Python.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outbox when nobody writes right now.
    pub(crate) fn try_outbox(&self) -> Option<MutexGuard<'_, Outbox>> {
        match self.out.try_lock() {
            Ok(outbox) => Some(outbox),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sends what waits. With `block` false it stops where it would have to wait. A socket that is
    /// broken ends the process.
    pub(crate) fn send(&self, outbox: &mut Outbox, block: bool) {
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
        if outbox.bytes.capacity() > KEEP {
            outbox.bytes.shrink_to(KEEP);
        }
    }
}

impl Outbox {
    /// Adds whole frames.
    pub(crate) fn push(&mut self, frames: &[u8]) {
        self.bytes.extend_from_slice(frames);
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.sent
    }
}
