//! A server that is a program of its own: its group of processes, its pipes, its end.

mod stderr;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use ramen_mcp::RequestId;
use ramen_redact::{Redactor, Secret};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pipe::{read_lines, send, write_lines};
use super::{Inbound, Link, Outgoing, QUEUE, Wire, passed};
use crate::error::ClientError;
use crate::guard::Guard;
use crate::limits::Limits;
use stderr::Tail;

/// Variables that a server gets from our environment, as the official SDKs have it, and what a program needs to find
/// its certificates, its proxy and its files. Anything else, secrets above all, is named in the configuration.
const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "npm_config_cache",
    "npm_config_registry",
    "PIP_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
];

/// How long what a process wrote before its end may still take to be read, and the end to be told. All of it is used up
/// only when somebody else holds its stdout, or it lives on without.
const LAST_LINES: Duration = Duration::from_secs(2);

/// What to start.
pub(crate) struct Program<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, Secret>,
    pub(crate) cwd: Option<&'a Path>,
}

/// A running program.
pub(crate) struct StdioWire {
    messages: mpsc::Sender<Bytes>,
    stop: CancellationToken,
    /// How long it may take to end by itself, and then again after `SIGTERM`.
    grace: watch::Sender<Duration>,
    ended: watch::Receiver<Option<String>>,
}

/// Starts the program in a group of its own.
pub(crate) fn start(
    server: &str,
    program: &Program<'_>,
    limits: &Limits,
    redactor: Redactor,
    guard: Option<Guard>,
) -> Result<Link, ClientError> {
    let failed = |source| ClientError::Spawn {
        program: program.command.to_owned(),
        source: Arc::new(source),
    };
    if let Some(guard) = &guard {
        guard.begin();
    }
    let mut child = command(program).spawn().map_err(failed)?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let (Some(guard), Some(group)) = (&guard, group) {
        guard.watch(group);
    }
    let missing = || failed(std::io::Error::other("a pipe is missing"));
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;

    let stop = CancellationToken::new();
    let (ended_in, ended) = watch::channel(None);
    let tail = Tail::read(server, stderr, limits, redactor, ended.clone());
    let (messages, _) = write_lines(stdin, stop.clone());
    let (grace, grace_in) = watch::channel(limits.close);
    let keeper = Keeper {
        child,
        group,
        guard,
        stop: stop.clone(),
        grace: grace_in,
    };
    tokio::spawn(keeper.run(ended_in));
    let (sender, inbound) = mpsc::channel(QUEUE);
    let reader = Reader {
        stop: stop.clone(),
        ended: ended.clone(),
        tail,
        limit: limits.message,
    };
    tokio::spawn(reader.run(stdout, sender));
    Ok(Link {
        wire: Box::new(StdioWire {
            messages,
            stop,
            grace,
            ended,
        }),
        inbound,
    })
}

fn command(program: &Program<'_>) -> Command {
    let mut command = Command::new(program.command);
    command
        .args(program.args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        // For the case that the runtime goes down before the keeper has done its work.
        .kill_on_drop(true);
    for name in INHERITED {
        if let Some(value) = crate::config::inherited(name) {
            command.env(name, value);
        }
    }
    for (name, value) in program.env {
        command.env(name, value.expose());
    }
    if let Some(cwd) = program.cwd {
        command.current_dir(cwd);
    }
    command
}

/// Owns the process until it is reaped. Its group goes down with it, so that nothing it started stays behind.
struct Keeper {
    child: Child,
    group: Option<Pid>,
    guard: Option<Guard>,
    stop: CancellationToken,
    grace: watch::Receiver<Duration>,
}

impl Keeper {
    async fn run(mut self, ended: watch::Sender<Option<String>>) {
        let group = self.group;
        let tell = |signal| {
            if let Some(group) = group {
                // ESRCH: everything in the group ended by itself.
                let _ = kill_process_group(group, signal);
            }
        };
        {
            let exited = exited(group, &mut self.child);
            tokio::pin!(exited);
            let asked = tokio::select! {
                () = &mut exited => false,
                () = self.stop.cancelled() => true,
            };
            if asked {
                // Its stdin is closed now, which tells a server to end.
                let by_itself = tokio::select! {
                    () = &mut exited => true,
                    () = passed(Instant::now(), &mut self.grace) => false,
                };
                if !by_itself {
                    tell(Signal::TERM);
                    tokio::select! {
                        () = &mut exited => {}
                        () = passed(Instant::now(), &mut self.grace) => {}
                    }
                }
            }
        }
        // Before the process is reaped its id cannot be anybody else's.
        tell(Signal::KILL);
        if let (Some(guard), Some(group)) = (&self.guard, group) {
            guard.forget(group);
        }
        let why = match self.child.wait().await {
            Ok(status) => format!("the process ended ({status})"),
            Err(error) => format!("the process cannot be waited for: {error}"),
        };
        self.stop.cancel();
        ended.send_replace(Some(why));
    }
}

/// Waits for the end of a process without reaping it, so that its id stays its own.
async fn exited(process: Option<Pid>, child: &mut Child) {
    let (Some(process), Ok(mut ended)) = (process, signal(SignalKind::child())) else {
        return drop(child.wait().await);
    };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // Listening begins before the first look, so that no end is missed.
    while let Ok(None) = waitid(WaitId::Pid(process), look) {
        if ended.recv().await.is_none() {
            return drop(child.wait().await);
        }
    }
}

struct Reader {
    stop: CancellationToken,
    ended: watch::Receiver<Option<String>>,
    tail: Arc<Tail>,
    limit: usize,
}

impl Reader {
    /// Reads to the end of stdout, or of the process: a grandchild may hold stdout open.
    async fn run(mut self, stdout: ChildStdout, inbound: mpsc::Sender<Inbound>) {
        let mut ended = self.ended.clone();
        let process = async {
            // The sender is the keeper's, which says so before it goes.
            let _ = ended.wait_for(Option::is_some).await;
            tokio::time::sleep(LAST_LINES).await;
        };
        let why = tokio::select! {
            read = read_lines(stdout, self.limit, &inbound) => match read {
                Ok(()) => None,
                Err(error) => Some(format!("reading from it failed: {error}")),
            },
            () = process => None,
        };
        self.stop.cancel();
        let why = match why {
            Some(why) => why,
            None => self.cause().await,
        };
        let _ = inbound.send(Inbound::End(why)).await;
    }

    /// How the process ended and what it said last; that it closed its stdout, if it lives on.
    async fn cause(&mut self) -> String {
        let _ = tokio::time::timeout(LAST_LINES, self.ended.wait_for(Option::is_some)).await;
        let status = self.ended.borrow().clone();
        let status = status.unwrap_or_else(|| "it closed its stdout".to_owned());
        match self.tail.last().await {
            Some(said) => format!("{status}; its stderr ends with: {said}"),
            None => status,
        }
    }
}

impl Wire for StdioWire {
    fn send(&self, message: Outgoing) -> BoxFuture<'_, Result<(), ClientError>> {
        Box::pin(send(&self.messages, message))
    }

    fn post(&self, message: Outgoing) {
        let _ = self.messages.try_send(message.body);
    }

    fn cancel(&self, _id: &RequestId, notice: Option<Outgoing>) {
        if let Some(notice) = notice {
            self.post(notice);
        }
    }

    fn stop(&self) {
        self.stop.cancel();
    }

    fn hurry(&self, patience: Duration) {
        self.grace.send_replace(patience / 2);
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        let mut ended = self.ended.clone();
        Box::pin(async move {
            let _ = ended.wait_for(Option::is_some).await;
        })
    }
}
