//! One `ramen-worker serve` for each group: started once, kept alive, told what to serve.

mod admin;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ramen_group::{DesiredState, Reason};
use ramen_proto::REASON_HEADER;
use ramen_proto::v1::{ReloadRequest, ReloadResponse, StatusRequest, StatusResponse};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::admin::{admin, describe, keyed, wire};
use super::{child, port};
use crate::state::{Address, GroupDir, append, read_json, write_atomic};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A worker that lived this long has earned a quick restart.
const STABLE: Duration = Duration::from_secs(30);
/// How long a starting worker may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often a file that a child writes is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How often the worker is asked how it is, before and after it serves.
const ASK_STARTING: Duration = Duration::from_millis(50);
const ASK_SERVING: Duration = Duration::from_secs(5);
/// Seconds that calls may go on after SIGTERM, and how much longer the process may take.
const DRAIN_SECS: u64 = 10;
const GRACE: Duration = Duration::from_secs(DRAIN_SECS + 5);
/// The log of a worker is put aside beyond this size.
const MAX_LOG: u64 = 16 * 1024 * 1024;
/// A reload imports user code: as long as the deploy's own limit for it.
const RELOAD_LIMIT: Duration = Duration::from_mins(5);
const STATUS_LIMIT: Duration = Duration::from_secs(5);

/// How to run the worker of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) program: PathBuf,
    pub(super) group: String,
    pub(super) store: PathBuf,
    pub(super) cache: PathBuf,
    /// Where to listen; a free port that stays the same over restarts when absent.
    pub(super) listen: Option<SocketAddr>,
    /// Settings of the spec and `RAMEN_SECRET_*`.
    pub(super) env: Vec<(String, OsString)>,
}

/// What is known about the process.
#[derive(Debug, Clone, Default)]
pub(super) struct Health {
    /// Where it listens, while it runs.
    pub(super) address: Option<String>,
    /// Whether it serves a revision.
    pub(super) serving: bool,
    /// The revision that serves.
    pub(super) revision: String,
    /// How often it ended without being asked to.
    pub(super) deaths: u32,
    /// Why it is not up, or why the last load was refused.
    pub(super) problem: Option<String>,
}

/// Why a worker does not serve what it was told to.
pub(super) struct Refused {
    pub(super) message: String,
    /// The worker's own word for it, when it is one that is known here.
    pub(super) reason: Option<Reason>,
    /// It is not its word at all: it was not there, ended before it answered, or took too long.
    pub(super) unanswered: bool,
}

impl Refused {
    fn of(status: &Status) -> Self {
        let reason = status.metadata().get(REASON_HEADER);
        let reason = reason.and_then(|reason| reason.to_str().ok());
        Self {
            message: describe(status),
            reason: reason.and_then(|reason| serde_json::from_value(reason.into()).ok()),
            // A connection that broke is `UNKNOWN` or `CANCELLED` to tonic.
            unanswered: matches!(
                status.code(),
                Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled
            ),
        }
    }
}

/// A supervised worker; dropping it ends the process.
pub(super) struct Worker {
    health: watch::Receiver<Health>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    admin_key: String,
}

impl Worker {
    /// Starts the process and keeps it running.
    pub(super) fn start(setting: Setting, dir: GroupDir, admin_key: String) -> Self {
        let (publish, health) = watch::channel(Health::default());
        let stop = CancellationToken::new();
        let task = Supervisor {
            setting,
            dir,
            admin_key: admin_key.clone(),
            publish,
            stop: stop.clone(),
        };
        Self {
            health,
            stop,
            task: tokio::spawn(task.run()),
            admin_key,
        }
    }

    /// News about the process.
    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Tells the worker to serve this state; the future ends when it does or has refused.
    pub(super) fn reload(
        &self,
        desired: &DesiredState,
    ) -> impl Future<Output = Result<ReloadResponse, Refused>> + Send + use<> {
        let (desired, key, mut health) =
            (wire(desired), self.admin_key.clone(), self.health.clone());
        async move {
            let up = health.wait_for(|health| health.address.is_some());
            let up = tokio::time::timeout(START_LIMIT, up).await;
            // Not kept over an await: it locks what the supervisor publishes.
            let address = up
                .ok()
                .and_then(Result::ok)
                .and_then(|health| health.address.clone());
            let Some(address) = address else {
                let problem = health.borrow().problem.clone();
                let why = problem.unwrap_or_else(|| "the worker does not start".to_owned());
                return Err(Refused {
                    message: format!("UNAVAILABLE: {why}"),
                    reason: None,
                    unanswered: true,
                });
            };
            let loaded = async {
                let request = keyed(
                    ReloadRequest {
                        desired: Some(desired),
                    },
                    &key,
                    RELOAD_LIMIT,
                )?;
                admin(&address)?.reload(request).await
            };
            loaded
                .await
                .map(tonic::Response::into_inner)
                .map_err(|error| Refused::of(&error))
        }
    }

    /// Ends the process in order.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How one life of the process ended.
enum End {
    /// On purpose.
    Asked,
    /// By itself; why.
    Died(String),
    /// It never began; why. That says nothing about the revision it would have served.
    NotStarted(String),
}

struct Supervisor {
    setting: Setting,
    dir: GroupDir,
    admin_key: String,
    publish: watch::Sender<Health>,
    stop: CancellationToken,
}

impl Supervisor {
    async fn run(self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let started = Instant::now();
            let (problem, deaths) = match self.once().await {
                End::Asked => return,
                End::Died(problem) => (problem, 1),
                End::NotStarted(problem) => (problem, 0),
            };
            tracing::warn!(group = self.setting.group, problem, "the worker ended");
            if started.elapsed() >= STABLE {
                backoff = FIRST_BACKOFF;
            }
            self.publish.send_modify(|health| {
                *health = Health {
                    deaths: health.deaths + deaths,
                    problem: Some(problem),
                    ..Health::default()
                };
            });
            if self
                .stop
                .run_until_cancelled(tokio::time::sleep(backoff))
                .await
                .is_none()
            {
                return;
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// One life of the process.
    async fn once(&self) -> End {
        // The address of an earlier life must not be taken for this one's.
        let _ = std::fs::remove_file(self.dir.address());
        // Somebody may have taken the port since the last life, and may give it back.
        if let Some(trouble) = self.setting.listen.and_then(port::trouble) {
            return End::NotStarted(trouble);
        }
        let command = match self.command() {
            Ok(command) => command,
            Err(error) => {
                return End::NotStarted(format!("the worker's files cannot be made: {error}"));
            }
        };
        let mut running = match child::spawn(command) {
            Ok(running) => running,
            Err(error) => {
                let program = self.setting.program.display();
                return End::NotStarted(format!("{program} cannot be started: {error}"));
            }
        };
        let pid = running
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or_default();
        let ended = tokio::select! {
            () = self.stop.cancelled() => None,
            status = running.child.wait() => Some(status),
            never = self.watch(pid) => match never {},
        };
        match ended {
            None => {
                running.stop(GRACE).await;
                let _ = std::fs::remove_file(self.dir.address());
                End::Asked
            }
            Some(Ok(status)) => End::Died(format!(
                "the worker ended with {status}{}",
                self.last_words()
            )),
            Some(Err(error)) => End::Died(format!("the worker was lost: {error}")),
        }
    }

    fn command(&self) -> std::io::Result<Command> {
        let (dir, setting) = (&self.dir, &self.setting);
        let log = dir.worker_log();
        let log = append(&log)?;
        let mut command = child::command(&setting.program);
        command
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        command
            .env("RAMEN_LISTEN", self.listen().to_string())
            .env("RAMEN_METRICS_LISTEN", "127.0.0.1:0")
            .env("RAMEN_DRAIN_SECS", DRAIN_SECS.to_string())
            .envs(setting.env.iter().map(|(name, value)| (name, value)))
            .env("RAMEN_GROUP", &setting.group)
            .env("RAMEN_KEYS_DIR", dir.keys())
            .env("RAMEN_ADMIN_KEY_FILE", dir.admin_key())
            .env("RAMEN_STORE", &setting.store)
            .env("RAMEN_CACHE_DIR", &setting.cache)
            .env("RAMEN_DESIRED", dir.desired())
            .env("RAMEN_ADDRESS_FILE", dir.address());
        // Keys of the person at the keyboard are no business of the worker.
        for name in [crate::names::BRIDGE_KEY, crate::names::MCP_KEY] {
            command.env_remove(name);
        }
        child::own_group(&mut command);
        Ok(command)
    }

    /// The address to listen at: the one asked for, or the port of the last life when it is still free.
    fn listen(&self) -> SocketAddr {
        if let Some(listen) = self.setting.listen {
            return listen;
        }
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let last = std::fs::read_to_string(self.dir.port())
            .ok()
            .and_then(|text| text.trim().parse().ok());
        match last {
            Some(port) if TcpListener::bind(loopback(port)).is_ok() => loopback(port),
            _ => loopback(0),
        }
    }

    /// Waits for the address, then asks the worker how it is, for as long as it lives.
    async fn watch(&self, pid: i32) -> std::convert::Infallible {
        let started = Instant::now();
        let address = loop {
            match read_json::<Address>(&self.dir.address()) {
                Some(address) if address.pid == pid => break address.grpc,
                _ => tokio::time::sleep(LOOK).await,
            }
            if started.elapsed() > START_LIMIT {
                self.publish.send_if_modified(|health| {
                    let news = health.problem.is_none();
                    health.problem.get_or_insert_with(|| {
                        "the worker does not say where it listens".to_owned()
                    });
                    news
                });
            }
        };
        if self.setting.listen.is_none()
            && let Some((_, port)) = address.rsplit_once(':')
        {
            // Without it the next start only gets another port.
            let _ = write_atomic(&self.dir.port(), port.as_bytes());
        }
        self.publish.send_modify(|health| {
            health.address = Some(address.clone());
            health.problem = None;
        });
        loop {
            let serving = self.ask(&address).await;
            self.bound_log();
            tokio::time::sleep(if serving { ASK_SERVING } else { ASK_STARTING }).await;
        }
    }

    /// Puts a log that grew too large aside; what is written in between is lost.
    fn bound_log(&self) {
        let log = self.dir.worker_log();
        if std::fs::metadata(&log).is_ok_and(|meta| meta.len() > MAX_LOG) {
            let emptied = std::fs::copy(&log, log.with_extension("log.1"))
                .and_then(|_| append(&log))
                // The worker appends: it goes on at the new end.
                .and_then(|file| file.set_len(0));
            if let Err(error) = emptied {
                tracing::warn!(error = %error, "the worker's log cannot be put aside");
            }
        }
    }

    /// Asks once and publishes what is new; whether the worker serves.
    async fn ask(&self, address: &str) -> bool {
        let status: Result<StatusResponse, Status> = async {
            let request = keyed(StatusRequest {}, &self.admin_key, STATUS_LIMIT)?;
            Ok(admin(address)?.status(request).await?.into_inner())
        }
        .await;
        let (serving, revision, problem) = match status {
            Ok(status) => {
                let problem = Some(status.last_error).filter(|text| !text.is_empty());
                (status.health == "SERVING", status.revision, problem)
            }
            Err(status) => (false, String::new(), Some(describe(&status))),
        };
        self.publish.send_if_modified(|health| {
            let news = health.serving != serving
                || health.revision != revision
                || health.problem != problem;
            (health.serving, health.revision, health.problem) = (serving, revision, problem);
            news
        });
        serving
    }

    /// The last complaint in the log, where a worker that cannot start says why.
    fn last_words(&self) -> String {
        let text = std::fs::read(self.dir.worker_log()).unwrap_or_default();
        let from = text.len().saturating_sub(4096);
        let tail = String::from_utf8_lossy(&text[from..]).into_owned();
        let complaint = tail
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .find_map(complaint);
        complaint.map_or_else(String::new, |text| {
            format!(": {}", text.chars().take(300).collect::<String>())
        })
    }
}

/// What a line of the log complains about: the text of an error, or words that are no log line at all.
fn complaint(line: &str) -> Option<String> {
    let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
        return Some(line.trim().to_owned());
    };
    if entry["level"] != "ERROR" {
        return None;
    }
    let message = entry["message"].as_str().unwrap_or_default();
    Some(match entry["error"].as_str() {
        Some(error) => format!("{message}: {error}"),
        None => message.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complaints_of_the_log_are_repeated() {
        assert_eq!(complaint(r#"{"level":"INFO","message":"serving"}"#), None);
        assert_eq!(
            complaint(r#"{"level":"ERROR","message":"cannot listen","error":"address in use"}"#)
                .as_deref(),
            Some("cannot listen: address in use")
        );
        assert_eq!(
            complaint("error: bad flag").as_deref(),
            Some("error: bad flag")
        );
    }

    #[test]
    fn a_worker_that_ends_before_it_answers_says_nothing_about_a_revision() {
        for broken in [
            Status::unknown("transport error"),
            Status::unavailable("tcp connect error"),
            Status::cancelled("h2 protocol error"),
            Status::deadline_exceeded("timeout"),
        ] {
            assert!(Refused::of(&broken).unanswered, "{broken}");
        }
        let its_word = Status::failed_precondition("no package loads");
        assert!(!Refused::of(&its_word).unanswered);
    }
}
