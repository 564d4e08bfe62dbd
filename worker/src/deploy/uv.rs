//! Running `uv`: in a process group of its own, bounded in time, output and disk, and its words
//! turned into a reason.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use ramen_group::Reason;

use crate::hosts::{EndCause, Memory, Tenant, lock};

use super::index::IndexConfig;
use super::log::{RunLog, cut};

mod words;

use words::explain;

/// Bytes of one output stream that are kept.
const OUTPUT: usize = 8 << 20;
/// Bytes of a message in the errors list.
const MESSAGE: usize = 1500;
/// How often a growing folder is measured.
const MEASURE: Duration = Duration::from_millis(250);

/// The installer, ready to run.
pub(crate) struct Uv {
    /// The program.
    pub(crate) program: PathBuf,
    /// Where packages come from.
    pub(crate) config: IndexConfig,
    /// The Python that packages are for.
    pub(crate) python: PathBuf,
    /// Working directory: a scratch folder, so that no `uv.toml` or `pyproject.toml` is found.
    pub(crate) scratch: PathBuf,
    /// When to give up.
    pub(crate) deadline: Instant,
    /// Where its words go.
    pub(crate) log: RunLog,
    /// Shared with everything else that runs code of the group: building a package does.
    pub(crate) memory: Arc<Memory>,
}

/// A folder that is measured while the installer fills it.
pub(crate) struct Watch<'a> {
    /// The folder.
    pub(crate) dir: &'a Path,
    /// The most it may hold.
    pub(crate) limit: u64,
    /// Told of packages and bytes so far.
    pub(crate) progress: &'a (dyn Fn(u64, u64) + Send + Sync),
}

/// Why the installer did not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UvFault {
    /// The reason for the errors list.
    pub(crate) reason: Reason,
    /// The installer's words, joined and bounded; without secrets.
    pub(crate) message: String,
    /// Where in the requirements the fault lies, when the installer said so.
    pub(crate) offset: Option<usize>,
    /// Why we ended it, when that is how it failed.
    pub(crate) ended: Option<EndCause>,
}

impl UvFault {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            offset: None,
            ended: None,
        }
    }
}

enum Stop {
    Deadline,
    TooLarge(u64),
}

impl Uv {
    /// Runs one command of the installer and gives its stdout.
    pub(crate) async fn run(
        &self,
        args: &[OsString],
        env: &[(&str, &str)],
        watch: Option<Watch<'_>>,
    ) -> Result<String, UvFault> {
        self.program(&self.program, args, env, watch).await
    }

    /// Compiles what lies in `dir`. Not with the installer's own option: that writes the name of
    /// the scratch folder into each file, so that no two layers would be alike. Files have no
    /// times in a layer, so bytecode is not checked against them.
    pub(crate) async fn compile(&self, dir: &Path, parallel: bool) -> Result<(), UvFault> {
        let mut args: Vec<OsString> = [
            "-I",
            "-m",
            "compileall",
            "-qq",
            "--invalidation-mode",
            "unchecked-hash",
            "-j",
        ]
        .into_iter()
        .map(OsString::from)
        .collect();
        args.extend([
            if parallel { "0" } else { "1" }.into(),
            "-s".into(),
            dir.into(),
            dir.into(),
        ]);
        match self.program(&self.python, &args, &[], None).await {
            // Some packages ship files for other versions of Python, which do not compile.
            Err(fault) if fault.reason == Reason::InstallFailed && fault.ended.is_none() => Ok(()),
            compiled => compiled.map(drop),
        }
    }

    async fn program(
        &self,
        program: &Path,
        args: &[OsString],
        env: &[(&str, &str)],
        watch: Option<Watch<'_>>,
    ) -> Result<String, UvFault> {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(&self.config.env)
            .envs(env.iter().copied())
            .env("NO_COLOR", "1")
            .env("UV_NO_PROGRESS", "1")
            .env("UV_PYTHON_DOWNLOADS", "never")
            .env("GIT_TERMINAL_PROMPT", "0")
            .current_dir(&self.scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            let program = self.program.display();
            UvFault::new(
                Reason::InstallerMissing,
                format!("cannot start {program}: {error}"),
            )
        })?;
        let group = Group::of(&child);
        if let Some(pid) = group.running.pid {
            let tenant: Weak<Running> = Arc::downgrade(&group.running);
            self.memory.adopt(pid, tenant);
        }
        let stdout = read_bounded(child.stdout.take());
        let stderr = read_bounded(child.stderr.take());
        let ended = async {
            let status = async {
                let status = child.wait().await;
                group.running.gone.store(true, Ordering::Relaxed);
                status
            };
            tokio::join!(stdout, stderr, status)
        };
        let result = tokio::select! {
            ended = ended => Ok(ended),
            stop = self.stop(watch.as_ref()) => Err(stop),
        };
        match result {
            Ok((stdout, stderr, status)) => {
                let cause = *lock(&group.running.ended_for);
                group.disarm();
                self.log.lines("uv", &stderr);
                match (status, cause) {
                    // It may have been done just before it was to be ended.
                    (Ok(status), _) if status.success() => Ok(stdout),
                    (_, Some(cause)) => Err(UvFault {
                        ended: Some(cause),
                        ..UvFault::new(Reason::InstallFailed, format!("the installer was {cause}"))
                    }),
                    (Ok(_), None) => Err(self.explain(&stderr)),
                    (Err(error), None) => {
                        Err(UvFault::new(Reason::InstallFailed, error.to_string()))
                    }
                }
            }
            Err(stop) => {
                drop(group);
                reap(child).await;
                Err(match stop {
                    Stop::Deadline => UvFault::new(
                        Reason::InstallTimeout,
                        "the deadline passed while the installer was still at work",
                    ),
                    Stop::TooLarge(bytes) => UvFault::new(
                        Reason::DepsTooLarge,
                        too_large(bytes, watch.map_or(0, |watch| watch.limit)),
                    ),
                })
            }
        }
    }

    async fn stop(&self, watch: Option<&Watch<'_>>) -> Stop {
        let deadline = tokio::time::sleep_until(self.deadline.into());
        tokio::pin!(deadline);
        let mut ticks = tokio::time::interval(MEASURE);
        loop {
            tokio::select! {
                () = &mut deadline => return Stop::Deadline,
                _ = ticks.tick(), if watch.is_some() => {
                    let Some(watch) = watch else { continue };
                    let dir = watch.dir.to_owned();
                    let measured = tokio::task::spawn_blocking(move || measure(&dir)).await;
                    let (packages, bytes) = measured.unwrap_or_default();
                    if bytes > watch.limit {
                        return Stop::TooLarge(bytes);
                    }
                    (watch.progress)(packages, bytes);
                }
            }
        }
    }

    fn explain(&self, stderr: &str) -> UvFault {
        let mut fault = explain(stderr);
        fault.message = cut(&self.log.clean(&fault.message), MESSAGE);
        fault
    }
}

/// The message of [`Reason::DepsTooLarge`].
pub(crate) fn too_large(bytes: u64, limit: u64) -> String {
    use super::progress::size;
    format!(
        "the requirements take more than {} ({} so far)",
        size(limit),
        size(bytes)
    )
}

/// A process that was started as the leader of its group.
struct Running {
    pid: Option<Pid>,
    gone: AtomicBool,
    ended_for: Mutex<Option<EndCause>>,
}

impl Running {
    fn kill(&self) {
        if let Some(pid) = self.pid {
            // ESRCH: it ended by itself.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Tenant for Running {
    fn lives(&self) -> bool {
        !self.gone.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        true
    }

    fn end(&self, cause: EndCause) {
        *lock(&self.ended_for) = Some(cause);
        self.kill();
    }
}

/// Kills a process group unless disarmed.
struct Group {
    running: Arc<Running>,
    armed: bool,
}

impl Group {
    fn of(child: &Child) -> Self {
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let running = Running {
            pid,
            gone: AtomicBool::new(false),
            ended_for: Mutex::new(None),
        };
        Self {
            running: Arc::new(running),
            armed: true,
        }
    }

    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.armed {
            self.running.kill();
        }
    }
}

async fn reap(mut child: Child) {
    let _ = child.wait().await;
}

/// Reads to the end, keeps the first bytes.
async fn read_bounded(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else {
        return String::new();
    };
    let mut kept = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n) = pipe.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        let room = OUTPUT.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Installed packages and bytes in a folder.
pub(crate) fn measure(dir: &Path) -> (u64, u64) {
    let (mut packages, mut bytes) = (0, 0);
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        // Files come and go while the installer works.
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                if entry.file_name().to_string_lossy().ends_with(".dist-info") {
                    packages += 1;
                }
                folders.push(entry.path());
            } else {
                bytes += entry.metadata().map_or(0, |meta| meta.len());
            }
        }
    }
    (packages, bytes)
}

#[cfg(test)]
mod tests;
