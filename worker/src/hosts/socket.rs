//! The front's end of a socket pair, watched for reading only.
//!
//! The usual socket of the runtime is watched for writing too, and a unix socket reports room each
//! time its peer reads: the front would be woken by every frame that a host takes, just to find
//! nothing to do.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{SendFlags, send};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// Watches a descriptor of ours for one kind of event.
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is an open descriptor and always the same one, and nothing but the
    // `AsyncFd` owns it until it is dropped.
    #[expect(unsafe_code, reason = "registering a descriptor of our own")]
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    registered.map_err(io::Error::from)
}

pub(super) struct Socket {
    fd: AsyncFd<OwnedFd>,
}

impl Socket {
    /// `fd` is a stream socket that does not block.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            fd: watch(fd, Interest::READABLE)?,
        })
    }

    /// Waits until there may be something to read.
    pub(super) async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.fd.readable().await
    }

    /// Appends what is there to `buffer`, as far as its capacity goes; 0 at the end, `None` when
    /// nothing is there. One reader at a time.
    pub(super) fn read(
        &self,
        ready: &mut AsyncFdReadyGuard<'_, OwnedFd>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        let room = buffer.capacity() - buffer.len();
        let read = self.try_read(buffer)?;
        if read.is_none_or(|read| 0 < read && read < room) {
            // Drained; more that came meanwhile is another event.
            ready.clear_ready();
        }
        Ok(read)
    }

    /// As `read`, by whoever looks without waiting.
    pub(super) fn try_read(&self, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
        loop {
            let spare = rustix::buffer::spare_capacity(buffer);
            match rustix::io::read(self.fd.get_ref(), spare) {
                Ok(read) => return Ok(Some(read)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                // Its end too, with something of ours that it had not read; the system says so once.
                Err(rustix::io::Errno::CONNRESET) => return Ok(Some(0)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends the connection both ways; its reader sees the end.
    pub(super) fn shut_down(&self) {
        // A socket that is gone is shut down.
        let _ = rustix::net::shutdown(self.fd.get_ref(), rustix::net::Shutdown::Both);
    }

    /// Writes what the peer has room for.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL)?)
    }

    /// Calls `write` whenever there is room, until it says that all is written.
    pub(super) async fn when_writable(&self, mut write: impl FnMut() -> bool) -> io::Result<()> {
        // A second descriptor of the same socket, watched only as long as it is needed.
        let fd = watch(self.fd.get_ref().try_clone()?, Interest::WRITABLE)?;
        loop {
            let mut ready = fd.writable().await?;
            if write() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    async fn read(socket: &Socket, buffer: &mut Vec<u8>) -> usize {
        loop {
            let mut ready = socket.readable().await.unwrap();
            if let Some(read) = socket.read(&mut ready, buffer).unwrap() {
                return read;
            }
        }
    }

    #[tokio::test]
    async fn bytes_come_through_both_ways_also_when_the_peer_is_slow() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut buffer = Vec::with_capacity(3);
        assert_eq!(read(&socket, &mut buffer).await, 3);
        buffer.reserve(100);
        assert_eq!(read(&socket, &mut buffer).await, 2);
        assert_eq!(buffer, b"hello");

        let big = vec![7; 4 << 20];
        let peer = std::thread::spawn(move || {
            let mut got = vec![0; 4 << 20];
            theirs.read_exact(&mut got).unwrap();
            got
        });
        let mut sent = 0;
        let write = || loop {
            match socket.try_write(&big[sent..]) {
                Ok(count) => sent += count,
                Err(_) => return false,
            }
            if sent == big.len() {
                return true;
            }
        };
        socket.when_writable(write).await.unwrap();
        assert_eq!(peer.join().unwrap(), big);
        assert_eq!(read(&socket, &mut buffer).await, 0, "the peer is gone");
    }

    #[tokio::test]
    async fn a_peer_that_ended_with_bytes_unread_has_ended_like_any_other() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        assert_eq!(socket.try_write(b"a call").unwrap(), 6);
        theirs.write_all(b"last").unwrap();
        drop(theirs);
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(read(&socket, &mut buffer).await, 4);
        assert_eq!(read(&socket, &mut buffer).await, 0);
        assert_eq!(buffer, b"last");
    }
}
