//! One host process: spawn, load, call, end.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ramen_frame::{Load, Loaded, Stats, ToHost};
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::channel::{CallHandle, CallOptions, Channel, Control, Pending, lock};
use super::fate::{CallError, Death, EndCause, HostError};
use super::memory::{Memory, Tenant};
use super::socket::{self, Socket};
use super::{output, spawner};

/// After a host died: how long its last frames are waited for. A process that it forked can hold
/// the socket open for ever.
const LAST_FRAMES: Duration = Duration::from_millis(100);

/// What a host is started with. Its environment is built from nothing: `PATH`, `LANG` and `TZ` of
/// the front, `HOME` and `TMPDIR` as given here, the secrets and `env`.
#[derive(Clone)]
pub struct HostSpec {
    /// The `ramen-host-3.x` program.
    pub program: PathBuf,
    /// A writable folder: `HOME`, `TMPDIR` and the working directory of the host.
    pub home: PathBuf,
    /// `RAMEN_SECRET_*` names and values.
    pub secrets: Vec<(String, String)>,
    /// Further variables.
    pub env: BTreeMap<String, String>,
    /// Where lines of stdout and stderr go; `None` discards them.
    pub output: Option<mpsc::Sender<OutputLine>>,
    /// The memory that it has with others.
    pub memory: Arc<Memory>,
}

/// One line that user code printed.
#[derive(Debug, Clone)]
pub struct OutputLine {
    /// The host's process id.
    pub pid: u32,
    /// True for stderr.
    pub stderr: bool,
    /// The line, at most 8 KiB, without its newline, not yet redacted.
    pub line: String,
    /// The package that ran, when exactly one did; when none did, the one that ran last.
    pub package: Option<u32>,
}

/// How long a load may take.
#[derive(Debug, Clone, Copy)]
pub struct LoadLimits {
    /// From the start to the first frame.
    pub start: Duration,
    /// One package's import.
    pub package: Duration,
    /// All of it.
    pub total: Duration,
}

impl LoadLimits {
    /// The usual ones, but with this one for a package.
    pub fn of_package(package: Duration) -> Self {
        let usual = Self::default();
        Self {
            package,
            total: usual.total.max(package.saturating_mul(4)),
            ..usual
        }
    }
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(20),
            package: Duration::from_secs(30),
            total: Duration::from_mins(2),
        }
    }
}

/// The program for one Python version in the host directory.
pub fn host_program(dir: &Path, python: &str) -> PathBuf {
    dir.join(format!("ramen-host-{python}"))
}

struct Shared {
    channel: Arc<Channel>,
    pid: Pid,
    /// `None` once reaped: from then on the id may be somebody else's.
    child: Mutex<Option<Child>>,
    ended_for: Mutex<Option<EndCause>>,
    death: watch::Sender<Option<Death>>,
    /// Until its packages are imported.
    loading: AtomicBool,
}

impl Tenant for Shared {
    fn lives(&self) -> bool {
        lock(&self.child).is_some()
    }

    fn is_busy(&self) -> bool {
        self.loading.load(Ordering::Relaxed) || self.channel.running() > 0
    }

    fn end(&self, cause: EndCause) {
        // First, for a process that holds much takes a while to be gone: calls go to others from now on.
        self.channel.condemn(cause);
        self.kill(Some(cause));
    }
}

impl Shared {
    fn kill(&self, cause: Option<EndCause>) {
        let child = lock(&self.child);
        if child.is_some() {
            if let Some(cause) = cause {
                lock(&self.ended_for).get_or_insert(cause);
            }
            // ESRCH: everything in the group ended by itself.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
    }

    /// Waits for the end, takes the group down with it and reaps.
    async fn reap(&self, pidfd: OwnedFd) -> Death {
        let ended = match socket::watch(pidfd, Interest::READABLE) {
            Ok(fd) => fd.readable().await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::error!(%error, "cannot watch a host process; it is ended");
            self.kill(None);
        }
        let mut child = lock(&self.child);
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let status = child.take().map(|mut child| child.wait());
        match status {
            Some(Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => Death::Exited(code),
                (None, signal) => Death::Signalled(signal.unwrap_or_default()),
            },
            _ => Death::Channel("lost".into()),
        }
    }
}

/// A running host. Dropping it kills the host and everything in its process group.
pub struct HostProcess {
    shared: Arc<Shared>,
    control: tokio::sync::Mutex<mpsc::UnboundedReceiver<Control>>,
}

impl HostProcess {
    /// Starts the program with its end of the channel as fd 3.
    pub async fn spawn(spec: &HostSpec) -> Result<Self, HostError> {
        let failed = |source| HostError::Spawn {
            program: spec.program.display().to_string(),
            source,
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let socket = Socket::new(ours.into()).map_err(failed)?;
        let mut child = spawner::spawn(spawner::Order {
            program: spec.program.clone(),
            args: Vec::new(),
            env: environment(spec),
            cwd: spec.home.clone(),
            channel: theirs.into(),
        })
        .await
        .map_err(failed)?;
        let pid = Pid::from_child(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let watched = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let shared = Arc::new(Shared {
            channel: Arc::new(Channel::new(socket)),
            pid,
            child: Mutex::new(Some(child)),
            ended_for: Mutex::new(None),
            death: watch::Sender::new(None),
            loading: AtomicBool::new(true),
        });
        shared.channel.announce(Arc::clone(&spec.memory));
        let tenant: Weak<Shared> = Arc::downgrade(&shared);
        spec.memory.adopt(pid, tenant);
        let (control_in, control) = mpsc::unbounded_channel();
        let host = Self {
            shared: Arc::clone(&shared),
            control: tokio::sync::Mutex::new(control),
        };
        // From here on a drop of `host` ends the process.
        let pidfd = watched.map_err(|error| failed(error.into()))?;
        host.watch(pidfd, control_in);
        for (pipe, stderr) in [
            (stdout.map(OwnedFd::from), false),
            (stderr.map(OwnedFd::from), true),
        ] {
            if let Some(pipe) = pipe {
                host.forward(pipe, stderr, spec.output.clone());
            }
        }
        Ok(host)
    }

    fn watch(&self, pidfd: OwnedFd, control: mpsc::UnboundedSender<Control>) {
        let shared = Arc::clone(&self.shared);
        let mut reading = tokio::spawn(async move {
            let ended = shared.channel.read(control).await;
            shared.kill(None);
            ended
        });
        let shared = Arc::clone(&self.shared);
        let writing = tokio::spawn(async move { shared.channel.write_unsent().await });
        let shared = Arc::clone(&self.shared);
        let climbing = tokio::spawn(async move { climb(&shared).await });
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let status = shared.reap(pidfd).await;
            let read = timeout(LAST_FRAMES, &mut reading).await;
            reading.abort();
            writing.abort();
            climbing.abort();
            let cause = *lock(&shared.ended_for);
            let killed = status == Death::Signalled(Signal::KILL.as_raw());
            let death = match (cause, read) {
                (Some(cause), _) => Death::Ended(cause),
                (None, Ok(Ok(Err(broken)))) if killed => Death::Channel(broken.to_string()),
                _ => status,
            };
            let error = match cause {
                Some(cause) => CallError::Restarted(cause),
                None => CallError::Crashed(death.clone()),
            };
            shared.channel.close(&death, &error);
            shared.death.send_replace(Some(death));
        });
    }

    fn forward(&self, pipe: OwnedFd, stderr: bool, output: Option<mpsc::Sender<OutputLine>>) {
        let pid = self.pid();
        let channel = Arc::downgrade(&self.shared.channel);
        let mut death = self.shared.death.subscribe();
        let ended = async move {
            // A lost sender means the same.
            let _ = death.wait_for(Option::is_some).await;
        };
        output::read_lines(pipe, ended, move |line| {
            if let Some(output) = &output {
                let package = channel
                    .upgrade()
                    .and_then(|channel| channel.likely_package());
                // A full queue means that nobody reads fast enough: the line is dropped.
                let _ = output.try_send(OutputLine {
                    pid,
                    stderr,
                    line,
                    package,
                });
            }
        });
    }

    /// Sends `LOAD` and waits for `LOADED`. `importing` is told of each package before its import.
    /// When it takes too long the host is killed.
    pub async fn load(
        &self,
        load: &Load,
        limits: LoadLimits,
        importing: impl FnMut(u32),
    ) -> Result<Loaded, HostError> {
        let loaded = self.load_within(load, limits, importing).await;
        self.shared.loading.store(false, Ordering::Relaxed);
        loaded
    }

    async fn load_within(
        &self,
        load: &Load,
        limits: LoadLimits,
        mut importing: impl FnMut(u32),
    ) -> Result<Loaded, HostError> {
        let mut control = self.control.lock().await;
        self.shared.channel.load(load).map_err(HostError::Frame)?;
        let begin = Instant::now();
        let mut package = None;
        loop {
            let step = if package.is_some() {
                limits.package
            } else {
                limits.start
            };
            let left = limits.total.saturating_sub(begin.elapsed());
            match timeout(step.min(left), control.recv()).await {
                Ok(Some(Control::Importing(id))) => {
                    package = Some(id);
                    importing(id);
                }
                Ok(Some(Control::Loaded(loaded))) => return Ok(loaded),
                Ok(Some(Control::Stats(_))) => {}
                Ok(None) => {
                    let death = self.died().await;
                    return Err(HostError::Died { death, package });
                }
                Err(_) => {
                    self.kill(EndCause::Load);
                    return Err(match package {
                        Some(id) if step < left => HostError::ImportTimeout { id, limit: step },
                        Some(_) => HostError::LoadTimeout {
                            limit: limits.total,
                        },
                        None => HostError::LoadTimeout {
                            limit: step.min(limits.total),
                        },
                    });
                }
            }
        }
    }

    /// Sends one call; `arguments` is a JSON object. Fails at once when the host is gone.
    pub fn call(
        &self,
        package: u32,
        arguments: &[u8],
        options: CallOptions,
    ) -> Result<CallHandle, CallError> {
        let (pending, answer) = Pending::new(package, options);
        self.shared
            .channel
            .submit(pending, arguments)
            .map_err(|(_, error)| error)?;
        Ok(CallHandle {
            answer,
            channel: Arc::clone(&self.shared.channel),
            done: false,
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.shared.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Calls that it was sent and has not answered.
    pub fn in_flight(&self) -> usize {
        self.shared.channel.running()
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.shared.channel
    }

    /// `SIGKILL` to the whole process group.
    pub fn kill(&self, cause: EndCause) {
        self.shared.kill(Some(cause));
    }

    /// Waits until the process ended and was reaped.
    pub async fn died(&self) -> Death {
        let mut death = self.shared.death.subscribe();
        let seen = death
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|death| death.clone());
        seen.unwrap_or(Death::Channel("lost".into()))
    }

    /// Asks for `STATS`.
    pub async fn stats(&self, limit: Duration) -> Result<Stats, HostError> {
        let mut control = self.control.lock().await;
        self.shared
            .channel
            .send(&ToHost::Stats)
            .map_err(HostError::Frame)?;
        loop {
            match timeout(limit, control.recv()).await {
                Ok(Some(Control::Stats(stats))) => return Ok(stats),
                Ok(Some(_)) => {}
                Ok(None) => {
                    return Err(HostError::Died {
                        death: self.died().await,
                        package: None,
                    });
                }
                Err(_) => return Err(HostError::LoadTimeout { limit }),
            }
        }
    }

    /// Sends `EXIT`.
    pub fn ask_to_end(&self) {
        lock(&self.shared.ended_for).get_or_insert(EndCause::Retired);
        // A host that is gone or does not read is killed by whoever asked.
        let _ = self.shared.channel.send(&ToHost::Exit);
    }

    /// Sends `EXIT`, waits up to `grace` and kills what is left.
    pub async fn end(self, grace: Duration) -> Death {
        self.ask_to_end();
        if let Ok(death) = timeout(grace, self.died()).await {
            return death;
        }
        self.kill(EndCause::Retired);
        self.died().await
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.shared.kill(Some(EndCause::Retired));
    }
}

/// Ends the host when a call of a caller that left does not return.
async fn climb(shared: &Shared) {
    let mut next: Option<Instant> = None;
    loop {
        match next {
            Some(at) => {
                let at = tokio::time::Instant::from_std(at);
                tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = shared.channel.somebody_left() => {}
                }
            }
            None => shared.channel.somebody_left().await,
        }
        let ladder = shared.channel.climb(Instant::now());
        if ladder.kill {
            let cause = shared.channel.condemned();
            shared.kill(cause.or(Some(EndCause::Overdue)));
            return;
        }
        next = ladder.next;
    }
}

fn environment(spec: &HostSpec) -> Vec<(String, String)> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for name in ["PATH", "LANG", "TZ"] {
        if let Some(value) = crate::config::inherited(name) {
            env.insert(name.into(), value);
        }
    }
    env.entry("PATH".into())
        .or_insert_with(|| "/usr/local/bin:/usr/bin:/bin".into());
    env.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
    let home = spec.home.display().to_string();
    for name in ["HOME", "TMPDIR"] {
        env.insert(name.into(), home.clone());
    }
    // Hosts already use every core; a pool of threads in each would only fight over them.
    for name in ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
        env.insert(name.into(), "1".into());
    }
    env.extend(spec.env.clone());
    env.extend(spec.secrets.iter().cloned());
    env.into_iter().collect()
}
