//! One operation: its deadline, its limits, what it has received, and why it failed.
//!
//! libgit2 turns every error of a transport into a text; the true cause is kept here and comes
//! back out in [`Session::finish`].

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{FetchProgress, GitError, OnProgress, Remote};

/// The longest wait for one address of a host.
const CONNECT: Duration = Duration::from_secs(10);

pub(super) struct Session {
    pub(super) remote: Remote,
    scratch: PathBuf,
    progress: OnProgress,
    deadline: Instant,
    stopped: AtomicBool,
    received: AtomicU64,
    error: Mutex<Option<GitError>>,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Session {
    pub(super) fn new(remote: Remote, scratch: PathBuf, progress: OnProgress) -> Self {
        let deadline = Instant::now() + remote.limits.timeout;
        Self {
            remote,
            scratch,
            progress,
            deadline,
            stopped: AtomicBool::new(false),
            received: AtomicU64::new(0),
            error: Mutex::default(),
            sockets: Mutex::default(),
        }
    }

    pub(super) fn url(&self) -> String {
        self.remote.url.to_string()
    }

    pub(super) fn timed_out(&self) -> GitError {
        GitError::Timeout {
            url: self.url(),
            what: "not done",
            after: self.remote.limits.timeout,
        }
    }

    /// The time that is left for one step: to the deadline, or to the end of the server's silence.
    pub(super) fn patience(&self) -> Result<Duration, GitError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(GitError::Stopped);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timed_out());
        }
        Ok(left.min(self.remote.limits.idle))
    }

    /// The error for a step that took longer than its [`Self::patience`].
    pub(super) fn late(&self) -> GitError {
        match self.patience() {
            Ok(_) => {
                let after = self.remote.limits.idle;
                GitError::Timeout {
                    url: self.url(),
                    what: "no answer",
                    after,
                }
            }
            Err(error) => error,
        }
    }

    pub(super) fn unreachable(&self, message: impl Into<String>) -> GitError {
        GitError::Unreachable {
            url: self.url(),
            message: message.into(),
        }
    }

    /// Counts received bytes.
    pub(super) fn count(&self, bytes: usize) -> Result<(), GitError> {
        self.patience()?;
        let limit = self.remote.limits.bytes;
        let received = self.received.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if received > limit {
            return Err(GitError::TooLarge {
                url: self.url(),
                limit,
                unit: "bytes",
            });
        }
        Ok(())
    }

    /// libgit2's progress; `false` ends the operation.
    pub(super) fn transferred(&self, stats: &git2::Progress<'_>) -> bool {
        let total_objects = stats.total_objects();
        let limit = self.remote.limits.objects;
        let verdict = if total_objects > limit {
            let limit = limit as u64;
            Err(GitError::TooLarge {
                url: self.url(),
                limit,
                unit: "objects",
            })
        } else {
            self.patience().map(|_| ())
        };
        (self.progress)(FetchProgress {
            objects: stats.received_objects(),
            total_objects,
            bytes: self.received.load(Ordering::Relaxed),
        });
        match verdict {
            Ok(()) => true,
            Err(error) => {
                // What libgit2 makes of it is not looked at.
                let _ = self.fail(error);
                false
            }
        }
    }

    /// Keeps the first cause; what is given back is for libgit2.
    pub(super) fn fail(&self, error: GitError) -> io::Error {
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(error);
        io::Error::other("the transport failed")
    }

    /// Forgets a failure, when there is another way to try.
    pub(super) fn forget_failure(&self) -> Option<GitError> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The result of the operation, with the true cause of a failure.
    pub(super) fn finish<T>(&self, result: Result<T, GitError>) -> Result<T, GitError> {
        match result {
            Err(GitError::Library { url, message }) => Err(self
                .forget_failure()
                .unwrap_or(GitError::Library { url, message })),
            other => other,
        }
    }

    /// An error of libgit2 that is not one of a transport.
    pub(super) fn library(&self, error: &git2::Error) -> GitError {
        if error.class() == git2::ErrorClass::Os && error.message().contains("No space left") {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return GitError::Disk {
                path: self.scratch.clone(),
                source: source.into(),
            };
        }
        GitError::Library {
            url: self.url(),
            message: error.message().to_owned(),
        }
    }

    /// Ends all connections: whoever reads or writes comes back at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.iter() {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Connects to an address that the policy admits. The address that is judged is the one that
    /// is used: a name cannot point elsewhere a moment later.
    pub(super) fn dial(&self, host: &str, port: u16) -> Result<TcpStream, GitError> {
        self.patience()?;
        let addresses: Vec<SocketAddr> = (host, port)
            .to_socket_addrs()
            .map_err(|_| self.unreachable(format!("the name {host} cannot be resolved")))?
            .collect();
        let policy = &self.remote.policy.addresses;
        let mut failure = self.unreachable(format!("the name {host} has no address"));
        for address in addresses {
            if !policy.admits(address.ip()) {
                failure = GitError::Forbidden {
                    url: self.url(),
                    message: format!("{host} leads to an address that is not allowed here"),
                };
                continue;
            }
            let wait = self.patience()?.min(CONNECT);
            match TcpStream::connect_timeout(&address, wait) {
                Ok(stream) => {
                    // Only latency depends on it.
                    let _ = stream.set_nodelay(true);
                    if let Ok(clone) = stream.try_clone() {
                        self.sockets
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(clone);
                    }
                    self.patience()?;
                    return Ok(stream);
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => failure = self.late(),
                Err(e) => failure = self.unreachable(format!("cannot connect: {}", e.kind())),
            }
        }
        Err(failure)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}
