//! git over SSH: one channel that runs `git-upload-pack`. The host key is judged before anything
//! is said about who we are.

use std::{
    io::{self, Read, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream};
use ssh2::{Channel, ErrorCode, MethodType};

use super::{
    GitError, HostKeyVerdict, KnownHosts,
    known_hosts::{entry_name, fingerprint, kind_of},
    session::Session,
    url::Address,
};

/// How often a silent connection is looked at.
const SLICE: Duration = Duration::from_millis(500);

pub(super) struct SshTransport {
    session: Arc<Session>,
}

impl SshTransport {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }
}

impl SmartSubtransport for SshTransport {
    fn action(
        &self,
        _url: &str,
        action: Service,
    ) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        match action {
            Service::UploadPackLs | Service::UploadPack => match open(&self.session) {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => {
                    let stopped = self.session.fail(error);
                    Err(git2::Error::from_str(&stopped.to_string()))
                }
            },
            Service::ReceivePackLs | Service::ReceivePack => {
                Err(git2::Error::from_str("this transport only reads"))
            }
        }
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

fn millis(wait: Duration) -> u32 {
    // 0 would mean for ever.
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1)
}

fn open(session: &Arc<Session>) -> Result<SshStream, GitError> {
    let Address::Ssh {
        user,
        host,
        port,
        path,
        ..
    } = session.remote.url.address()
    else {
        return Err(session.unreachable("not an ssh address"));
    };
    let broken = |what: &str, e: &ssh2::Error| {
        if matches!(e.code(), ErrorCode::Session(TIMEOUT)) {
            session.late()
        } else {
            let cause = session.patience().err();
            cause.unwrap_or_else(|| session.unreachable(format!("{what}: {}", e.message())))
        }
    };
    let stream = session.dial(host, *port)?;
    let mut ssh = ssh2::Session::new().map_err(|e| broken("ssh cannot start", &e))?;
    ssh.set_tcp_stream(stream);
    ssh.set_timeout(millis(session.patience()?));
    let none = KnownHosts::default();
    let known = session
        .remote
        .credentials
        .known_hosts
        .as_ref()
        .unwrap_or(&none);
    prefer(&ssh, &known.kinds(host, *port)).map_err(|e| broken("no usable host key type", &e))?;
    ssh.handshake()
        .map_err(|e| broken("the ssh handshake failed", &e))?;
    judge(session, &ssh, known, host, *port)?;
    ssh.set_timeout(millis(session.patience()?));
    log_in(session, &ssh, user)?;
    let mut channel = ssh
        .channel_session()
        .map_err(|e| broken("no ssh channel", &e))?;
    let command = format!("git-upload-pack {}", quoted(path));
    channel
        .exec(&command)
        .map_err(|e| broken("the server runs no git-upload-pack", &e))?;
    Ok(SshStream {
        session: Arc::clone(session),
        inner: Mutex::new(Inner {
            channel,
            ssh,
            received: false,
        }),
    })
}

const TIMEOUT: i32 = -9;

/// Asks for a key of a listed type first. The others stay possible, so that an unlisted key is
/// refused with its fingerprint and not with "no common algorithm".
fn prefer(ssh: &ssh2::Session, kinds: &[&str]) -> Result<(), ssh2::Error> {
    if kinds.is_empty() {
        return Ok(());
    }
    let mut order: Vec<&str> = Vec::new();
    for kind in kinds {
        match *kind {
            "ssh-rsa" => order.extend(["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"]),
            other => order.push(other),
        }
    }
    let supported = ssh.supported_algs(MethodType::HostKey)?;
    order.retain(|kind| supported.contains(kind));
    for kind in supported {
        if !order.contains(&kind) {
            order.push(kind);
        }
    }
    ssh.method_pref(MethodType::HostKey, &order.join(","))
}

fn judge(
    session: &Session,
    ssh: &ssh2::Session,
    known: &KnownHosts,
    host: &str,
    port: u16,
) -> Result<(), GitError> {
    let Some((key, _)) = ssh.host_key() else {
        return Err(session.unreachable("the server showed no host key"));
    };
    let host_name = entry_name(host, port);
    let kind = kind_of(key).unwrap_or("unknown type").to_owned();
    let fingerprint = fingerprint(key);
    match known.check(host, port, key) {
        HostKeyVerdict::Known => Ok(()),
        HostKeyVerdict::Mismatch => Err(GitError::HostKeyMismatch {
            host: host_name,
            fingerprint,
            kind,
        }),
        HostKeyVerdict::Unknown => Err(GitError::HostKeyUnknown {
            host: host_name,
            fingerprint,
            kind,
        }),
        HostKeyVerdict::Revoked => Err(GitError::HostKeyRevoked {
            host: host_name,
            fingerprint,
            kind,
        }),
    }
}

/// One attempt, with the key or the password that is configured. No agent, no `~/.ssh`.
fn log_in(session: &Session, ssh: &ssh2::Session, user: &str) -> Result<(), GitError> {
    let credentials = &session.remote.credentials;
    let failed = |message: String| GitError::AuthFailed {
        url: session.url(),
        message,
    };
    let (result, with) = if let Some(identity) = &credentials.identity {
        let passphrase = identity.passphrase.as_ref().map(|p| p.expose().as_str());
        let result = ssh.userauth_pubkey_memory(user, None, identity.key.expose(), passphrase);
        (result, "the key in identity")
    } else if let Some((_, password)) = &credentials.basic {
        (
            ssh.userauth_password(user, password.expose()),
            "the password",
        )
    } else {
        return Err(failed("no ssh key is configured (identity)".to_owned()));
    };
    match result {
        Ok(()) if ssh.authenticated() => Ok(()),
        Ok(()) => Err(failed(format!("{with} is not enough for the user {user}"))),
        Err(e) if matches!(e.code(), ErrorCode::Session(TIMEOUT)) => Err(session.late()),
        Err(e) => match session.patience() {
            Ok(_) => Err(failed(format!(
                "{with} for the user {user}: {}",
                e.message()
            ))),
            Err(error) => Err(error),
        },
    }
}

/// A word for the server's shell.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''").replace('!', r"'\!'"))
}

struct Inner {
    channel: Channel,
    ssh: ssh2::Session,
    received: bool,
}

struct SshStream {
    session: Arc<Session>,
    inner: Mutex<Inner>,
}

impl SshStream {
    fn try_read(&self, buf: &mut [u8]) -> Result<usize, GitError> {
        let session = &self.session;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let started = Instant::now();
        loop {
            let patience = session.patience()?;
            inner.ssh.set_timeout(millis(patience.min(SLICE)));
            match inner.channel.read(buf) {
                Ok(0) if !inner.received && !buf.is_empty() => {
                    return Err(said(session, &mut inner));
                }
                Ok(n) => {
                    inner.received |= n > 0;
                    session.count(n)?;
                    return Ok(n);
                }
                Err(e) if is_timeout(&e) => {
                    if started.elapsed() >= session.remote.limits.idle {
                        return Err(session.late());
                    }
                }
                Err(_) => {
                    session.patience()?;
                    return Err(session.unreachable("the ssh connection broke off"));
                }
            }
        }
    }

    fn try_write(&self, buf: &[u8]) -> Result<usize, GitError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ssh.set_timeout(millis(self.session.patience()?));
        inner.channel.write(buf).map_err(|e| {
            if is_timeout(&e) {
                self.session.late()
            } else {
                let broken = || self.session.unreachable("the ssh connection broke off");
                self.session.patience().err().unwrap_or_else(broken)
            }
        })
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

/// Why the server ended without a word of the protocol, in its own words, shortened.
fn said(session: &Session, inner: &mut Inner) -> GitError {
    inner.ssh.set_timeout(millis(SLICE));
    let mut words = Vec::new();
    // Half of it is better than none.
    let _ = inner.channel.stderr().take(4096).read_to_end(&mut words);
    let words = String::from_utf8_lossy(&words);
    let plain: String = words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    let plain = plain.trim();
    let lower = plain.to_lowercase();
    let absent = [
        "not found",
        "does not exist",
        "not appear to be a git repository",
    ];
    if absent.iter().any(|sign| lower.contains(sign)) {
        return GitError::NotFound { url: session.url() };
    }
    if lower.contains("permission denied") || lower.contains("access denied") {
        return GitError::AuthFailed {
            url: session.url(),
            message: plain.to_owned(),
        };
    }
    session.unreachable(format!(
        "git-upload-pack ended at once: {}",
        ramen_redact::mask_urls(plain)
    ))
}

impl Read for SshStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_read(buf).map_err(|error| self.session.fail(error))
    }
}

impl Write for SshStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.try_write(buf)
            .map_err(|error| self.session.fail(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_the_servers_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("a'; rm -rf '"), r"'a'\''; rm -rf '\'''");
        assert_eq!(quoted("a!b"), r"'a'\!'b'");
    }
}
