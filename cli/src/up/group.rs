//! One group: the rollout machine, its memory on disk, and the work that its actions ask for.
//!
//! Everything of a group happens in one task, so nothing of it can hold up another group. What takes time runs beside
//! the loop and comes back as an event.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{Finding, Outcome, Reason, Report};
use ramen_rollout::{
    Action, Event, Failure, Fetched, Inputs, Kept, Memory, Revision, Served, Settings, step,
};
use ramen_source::git::Resolved;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deploy::{Code, Job};
use super::source::{Fetcher, Found, Source, Stored, Trouble};
use super::status::Status;
use super::watch::Changes;
use super::worker::{Health, Setting, Worker};
use super::{keys, machine::Machine};
use crate::state::{GroupDir, GroupInfo, read_json, write_atomic};

/// Pause after a source could not be asked, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// A revision whose worker ended this often in a row does not live.
const DEATHS: u32 = 3;
/// Folders of deploys that are kept for people to look into.
const KEPT_DEPLOYS: usize = 5;

/// Namespace and name.
pub(super) type Key = (String, String);

/// All that the loop needs to know about a group.
#[derive(Debug, Clone)]
pub(super) struct GroupSpec {
    pub(super) key: Key,
    pub(super) source: Source,
    /// How often the source is asked; a folder is watched instead.
    pub(super) interval: Duration,
    pub(super) suspended: bool,
    /// Revisions kept for a way back.
    pub(super) history: usize,
    pub(super) python: Option<String>,
    pub(super) allow_sdist: bool,
    pub(super) deploy_timeout_secs: Option<u64>,
    /// Keys from a Secret; generated when absent.
    pub(super) keys: Option<BTreeMap<String, Vec<u8>>>,
    /// Settings of the worker.
    pub(super) worker_env: Vec<(String, OsString)>,
    /// Settings of the deploy step, such as the package index.
    pub(super) deploy_env: Vec<(String, OsString)>,
    /// Where the worker listens; a free port of loopback when absent.
    pub(super) listen: Option<SocketAddr>,
    /// `RAMEN_SECRET_*`.
    pub(super) secrets: Vec<(String, OsString)>,
}

impl GroupSpec {
    /// What makes a deploy of the same tree another one.
    fn settings(&self) -> Settings {
        let python = self.python.as_deref().unwrap_or("default");
        let env: Vec<String> = self
            .deploy_env
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .collect();
        Settings {
            source: self.source.identity(),
            runtime: format!("python {python}, ramen {}", env!("CARGO_PKG_VERSION")),
            spec: format!("sdist={} {}", self.allow_sdist, env.join(" ")),
            suspended: self.suspended,
            history: self.history,
            ..Settings::default()
        }
    }
}

/// What a group tells.
pub(super) enum News {
    /// Its state; shown when it differs.
    Status(Box<Status>),
    /// What it is busy with; empty when it is idle.
    Progress(Key, String),
    /// Something that people should read once.
    Remark(String),
}

/// Why a group should look at its source.
#[derive(Debug, Clone)]
pub(super) enum Poke {
    /// Look now.
    Look,
    /// Look, and try again what failed before.
    Again(String),
}

/// A running group.
pub(super) struct Handle {
    pub(super) spec: watch::Sender<Arc<GroupSpec>>,
    pub(super) poke: mpsc::UnboundedSender<Poke>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Handle {
    /// Ends the group in order: its worker drains, its deploy is given up.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// Starts a group.
pub(super) fn start(
    machine: Arc<Machine>,
    spec: GroupSpec,
    news: mpsc::UnboundedSender<News>,
) -> Handle {
    let (spec_sender, spec_receiver) = watch::channel(Arc::new(spec));
    let (poke, pokes) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(machine, spec_receiver, pokes, news, stop.clone()));
    Handle {
        spec: spec_sender,
        poke,
        stop,
        task,
    }
}

/// What ends a piece of work.
enum Done {
    Resolved(Result<Found, Trouble>),
    Fetched(Revision, Result<Stored, Trouble>),
    Deployed(Revision, Inputs, Result<Box<Report>, String>),
    Reloaded(Box<Served>, Result<(u32, u32, u32), String>),
}

struct Group {
    machine: Arc<Machine>,
    spec: Arc<GroupSpec>,
    dir: GroupDir,
    memory: Memory,
    status: Status,
    news: mpsc::UnboundedSender<News>,
    work: JoinSet<Done>,
    /// The source is being asked, and whether to ask again after that.
    resolving: bool,
    look_again: bool,
    found: Option<(String, Found)>,
    stored: Option<Stored>,
    troubles: u32,
    look_at: Option<Instant>,
    retry_at: Option<Instant>,
    /// When the newest change was first heard of.
    sighted: Instant,
    deaths: u32,
}

async fn run(
    machine: Arc<Machine>,
    mut specs: watch::Receiver<Arc<GroupSpec>>,
    mut pokes: mpsc::UnboundedReceiver<Poke>,
    news: mpsc::UnboundedSender<News>,
    stop: CancellationToken,
) {
    let spec = Arc::clone(&specs.borrow_and_update());
    let dir = machine.state.group(&spec.key.0, &spec.key.1);
    let mut group = Group::new(machine, spec, dir, news);
    let Some(mut worker) = group.prepare_until(&stop).await else {
        return;
    };
    let mut health = worker.0.health();
    let mut changes = group.watch_folder();
    group.feed(Event::Configured(group.spec.settings()), &worker.0);
    group.feed(Event::Restarted, &worker.0);
    group.look();
    loop {
        let timer = earliest(group.look_at, group.retry_at);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(done) = group.work.join_next() => match done {
                Ok(done) => group.finished(done, &worker.0),
                Err(error) => tracing::error!(error = %error, "a task of the group was lost"),
            },
            Ok(()) = health.changed() => {
                let now = health.borrow_and_update().clone();
                group.worker_news(&now, &worker.0);
            }
            poke = pokes.recv() => match poke {
                Some(poke) => group.poked(poke, &worker.0),
                None => break,
            },
            Ok(()) = specs.changed() => {
                group.spec = Arc::clone(&specs.borrow_and_update());
                if let Err(error) = group.lay_keys() {
                    group.say(format!("the keys cannot be written: {error}"));
                }
                if group.setting() != worker.1 {
                    // The worker is started again only when its own settings changed.
                    group.progress("restarting the worker with new settings".to_owned());
                    worker.0.stop().await;
                    let Some(again) = group.prepare_until(&stop).await else { return };
                    worker = again;
                }
                health = worker.0.health();
                changes = group.watch_folder();
                group.feed(Event::Configured(group.spec.settings()), &worker.0);
                group.look();
            }
            () = next_change(&mut changes) => {
                group.sighted = Instant::now();
                group.look();
            }
            () = tokio::time::sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => {
                group.due(&worker.0);
            }
        }
    }
    group.work.shutdown().await;
    worker.0.stop().await;
    group.progress(String::new());
}

async fn next_change(changes: &mut Option<Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// A worker and the setting it was started with.
type Started = (Worker, Setting);

impl Group {
    fn new(
        machine: Arc<Machine>,
        spec: Arc<GroupSpec>,
        dir: GroupDir,
        news: mpsc::UnboundedSender<News>,
    ) -> Self {
        let memory: Memory = read_json(&dir.memory()).unwrap_or_default();
        let status = Status::new(&spec.key.0, &spec.key.1);
        Self {
            machine,
            spec,
            dir,
            memory,
            status,
            news,
            work: JoinSet::new(),
            resolving: false,
            look_again: false,
            found: None,
            stored: None,
            troubles: 0,
            look_at: None,
            retry_at: None,
            sighted: Instant::now(),
            deaths: 0,
        }
    }

    /// Lays keys and the last good state, then starts the worker: it serves before anything is fetched.
    fn prepare(&mut self) -> Result<Started, String> {
        let io = |error: std::io::Error| error.to_string();
        self.lay_keys().map_err(io)?;
        self.write_desired().map_err(io)?;
        let admin_key = keys::admin(&self.dir).map_err(io)?;
        let setting = self.setting();
        Ok((
            Worker::start(setting.clone(), self.dir.clone(), admin_key),
            setting,
        ))
    }

    /// The same, again and again while it fails; `None` when everything ends.
    async fn prepare_until(&mut self, stop: &CancellationToken) -> Option<Started> {
        loop {
            match self.prepare() {
                Ok(started) => return Some(started),
                Err(why) => self.say(format!("the worker cannot be started: {why}")),
            }
            stop.run_until_cancelled(tokio::time::sleep(FIRST_PAUSE))
                .await?;
        }
    }

    fn lay_keys(&self) -> std::io::Result<()> {
        let (key_file, new) = keys::lay(&self.dir, self.spec.keys.as_ref())?;
        if new {
            let name = &self.spec.key.1;
            self.tell(News::Remark(format!(
                "{name}: made a key, it is in {}",
                key_file.display()
            )));
        }
        let (namespace, name) = self.spec.key.clone();
        let info = serde_json::to_vec_pretty(&GroupInfo {
            namespace,
            name,
            key_file,
        })?;
        write_atomic(&self.dir.info(), &info)
    }

    fn write_desired(&self) -> std::io::Result<()> {
        match &self.memory.serving {
            Some(serving) => write_atomic(
                &self.dir.desired(),
                &serde_json::to_vec_pretty(&serving.desired)?,
            ),
            None => match std::fs::remove_file(self.dir.desired()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    fn setting(&self) -> Setting {
        Setting {
            program: self.machine.worker.clone(),
            group: self.spec.key.1.clone(),
            store: self.machine.state.store(),
            cache: self.machine.state.cache(),
            listen: self.spec.listen,
            env: self
                .spec
                .worker_env
                .iter()
                .chain(&self.spec.secrets)
                .cloned()
                .collect(),
        }
    }

    fn watch_folder(&self) -> Option<Changes> {
        let Source::Folder(dir) = &self.spec.source else {
            return None;
        };
        Changes::of_folder(dir)
            .map_err(|error| {
                self.tell(News::Remark(format!(
                    "{} cannot be watched: {error}",
                    dir.display()
                )))
            })
            .ok()
    }

    /// Takes a step of the machine, saves the memory, then acts.
    fn feed(&mut self, event: Event, worker: &Worker) {
        let actions = step(&mut self.memory, event);
        // Saved before anything is done: what is lost in a crash is asked for again at the next start.
        if let Err(error) = self.save() {
            self.say(format!("the state cannot be saved: {error}"));
        }
        for action in actions {
            self.act(action, worker);
        }
        self.show();
    }

    fn save(&self) -> std::io::Result<()> {
        write_atomic(
            &self.dir.memory(),
            &serde_json::to_vec_pretty(&self.memory)?,
        )
    }

    fn act(&mut self, action: Action, worker: &Worker) {
        match action {
            Action::Resolve => self.look(),
            Action::Fetch(revision) => self.fetch(revision),
            Action::Deploy {
                revision,
                inputs,
                code,
            } => self.deploy(revision, inputs, code),
            Action::Reload(served) => self.reload(served, worker),
            Action::Keep(kept) => self.kept(kept),
            Action::RetryAfter(pause) => {
                self.retry_at = Some(Instant::now() + pause);
                self.status.message =
                    format!("{}; next try in {} s", self.status.message, pause.as_secs());
            }
            Action::Prune(_) => self.machine.prune(),
        }
    }

    /// Asks the source, now or after the question that is under way.
    fn look(&mut self) {
        self.look_at = None;
        if self.spec.suspended {
            return;
        }
        if std::mem::replace(&mut self.resolving, true) {
            self.look_again = true;
            return;
        }
        let (fetcher, source) = (self.fetcher(), self.spec.source.clone());
        self.work
            .spawn(async move { Done::Resolved(fetcher.resolve(&source).await) });
    }

    fn fetcher(&self) -> Fetcher {
        self.machine.fetcher.clone()
    }

    fn fetch(&mut self, revision: Revision) {
        if let Some(stored) = self
            .stored
            .take_if(|stored| stored.commit == revision.commit)
        {
            self.work
                .spawn(async move { Done::Fetched(revision, Ok(stored)) });
            return;
        }
        let found = match self.found.take_if(|(commit, _)| *commit == revision.commit) {
            Some((_, found)) => found,
            // Known from an earlier run: the commit alone is enough.
            None => Found::Git(Resolved {
                name: None,
                full_ref: None,
                on_branch: None,
                commit: revision.commit.clone(),
            }),
        };
        self.progress(format!("fetching {}", revision.label));
        let (fetcher, source) = (self.fetcher(), self.spec.source.clone());
        let (news, key) = (self.news.clone(), self.spec.key.clone());
        self.work.spawn(async move {
            let progress = move |text| drop(news.send(News::Progress(key.clone(), text)));
            let stored = fetcher.store(&source, found, progress).await;
            Done::Fetched(revision, stored)
        });
    }

    fn deploy(&mut self, revision: Revision, inputs: Inputs, code: Option<ramen_group::LayerRef>) {
        let Some(code) = code else {
            let why = "the code of the revision is not in the store".to_owned();
            self.work
                .spawn(async move { Done::Deployed(revision, inputs, Err(why)) });
            return;
        };
        self.status.message = format!("deploying {}", super::status::short(&revision.label));
        self.progress(format!("deploying {}", revision.label));
        let job = self.job(&revision, code);
        let (news, key) = (self.news.clone(), self.spec.key.clone());
        self.work.spawn(async move {
            let progress = |step: super::deploy::Progress| {
                drop(news.send(News::Progress(key.clone(), step.text())))
            };
            let report = job.run(progress).await.map(Box::new);
            Done::Deployed(revision, inputs, report)
        });
    }

    fn job(&self, revision: &Revision, code: ramen_group::LayerRef) -> Job {
        Job {
            worker: self.machine.worker.clone(),
            out: self.deploy_folder(revision),
            code: Code::Layer(code),
            store: self.machine.state.store(),
            cache: self.machine.state.cache(),
            group: Some(self.spec.key.1.clone()),
            revision: Some(revision.label.clone()),
            python: self.spec.python.clone(),
            no_install: false,
            allow_sdist: self.spec.allow_sdist,
            timeout_secs: self.spec.deploy_timeout_secs,
            env: self
                .spec
                .deploy_env
                .iter()
                .chain(&self.spec.secrets)
                .cloned()
                .collect(),
        }
    }

    /// The folder of this revision's report; old ones go.
    fn deploy_folder(&self, revision: &Revision) -> PathBuf {
        let deploys = self.dir.deploys();
        let mut old: Vec<_> = std::fs::read_dir(&deploys)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        old.sort();
        for (_, folder) in old.iter().rev().skip(KEPT_DEPLOYS) {
            let _ = std::fs::remove_dir_all(folder);
        }
        let name: String = revision
            .commit
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(40)
            .collect();
        deploys.join(name)
    }

    fn reload(&mut self, served: Box<Served>, worker: &Worker) {
        self.progress(format!("loading {}", served.revision.label));
        let reload = worker.reload(&served.desired);
        self.work.spawn(async move {
            let loaded = reload
                .await
                .map(|loaded| (loaded.tools, loaded.resources, loaded.prompts));
            Done::Reloaded(served, loaded)
        });
    }

    fn finished(&mut self, done: Done, worker: &Worker) {
        match done {
            Done::Resolved(found) => self.resolved(found, worker),
            Done::Fetched(revision, stored) => self.fetched(revision, stored, worker),
            Done::Deployed(revision, inputs, report) => {
                self.deployed(&revision, inputs, report, worker)
            }
            Done::Reloaded(served, loaded) => self.reloaded(&served, loaded, worker),
        }
        if self.memory.attempting.is_none() {
            self.progress(String::new());
        }
    }

    fn resolved(&mut self, found: Result<Found, Trouble>, worker: &Worker) {
        self.resolving = false;
        if std::mem::take(&mut self.look_again) {
            self.look();
        }
        match found {
            Ok(found) => {
                self.troubles = 0;
                self.schedule(self.spec.interval);
                let revision = Revision {
                    commit: found.commit().to_owned(),
                    label: found.revision(),
                };
                let known = self.memory.observed.as_ref() == Some(&revision);
                self.status.observed = Some(revision.label.clone());
                self.found = Some((revision.commit.clone(), found));
                // The same again is no news, unless an earlier sight of it led nowhere.
                if !known || !self.memory.is_current() {
                    self.feed(Event::Observed(revision), worker);
                } else {
                    self.settle();
                }
            }
            Err(trouble) => {
                let pause = FIRST_PAUSE * (1 << self.troubles.min(6));
                self.troubles += 1;
                let pause = if trouble.transient {
                    pause.min(MAX_PAUSE)
                } else {
                    self.spec.interval
                };
                self.schedule(pause.min(self.spec.interval));
                self.status.message =
                    format!("{}: {}", trouble.finding.reason, trouble.finding.message);
                self.status.errors = vec![trouble.finding];
                self.show();
            }
        }
    }

    /// What a look that found nothing new leaves to say: a trouble of the source is over.
    fn settle(&mut self) {
        let from_source = |finding: &Finding| {
            finding.reason.stage() == ramen_group::Stage::Source && finding.package.is_none()
        };
        if self.status.errors.iter().any(from_source) {
            self.status.errors.retain(|finding| !from_source(finding));
            self.status.message = "serving".to_owned();
            self.show();
        }
    }

    /// Sets the next look, a tenth earlier or later: many groups must not ask at once.
    fn schedule(&mut self, pause: Duration) {
        if matches!(self.spec.source, Source::Folder(_)) {
            return;
        }
        let spread = u32::try_from(self.sighted.elapsed().subsec_nanos() % 200).unwrap_or(100);
        self.look_at = Some(Instant::now() + pause * (900 + spread) / 1000);
    }

    fn fetched(&mut self, revision: Revision, stored: Result<Stored, Trouble>, worker: &Worker) {
        match stored {
            Ok(stored) if stored.commit == revision.commit => {
                let (tree, code) = (stored.code.key.clone(), Some(stored.code));
                self.feed(
                    Event::Fetched(Fetched {
                        revision,
                        tree,
                        code,
                    }),
                    worker,
                );
            }
            // The branch moved while it was fetched: the newer commit is at hand already.
            Ok(stored) => {
                let newer = Revision {
                    commit: stored.commit.clone(),
                    label: stored.revision.clone(),
                };
                self.stored = Some(stored);
                self.feed(Event::Observed(newer), worker);
                let failure = Failure {
                    reason: Reason::RefNotFound,
                    message: "the ref moved while it was fetched".to_owned(),
                    transient: true,
                };
                self.feed(Event::FetchFailed(revision, failure), worker);
            }
            Err(trouble) => {
                self.status.attempted = Some(revision.label.clone());
                self.status.errors = vec![trouble.finding.clone()];
                self.status.warnings.clear();
                self.status.message =
                    format!("{}: {}", trouble.finding.reason, trouble.finding.message);
                let failure = Failure {
                    reason: trouble.finding.reason,
                    message: trouble.finding.message,
                    transient: trouble.transient,
                };
                self.feed(Event::FetchFailed(revision, failure), worker);
            }
        }
    }

    fn deployed(
        &mut self,
        revision: &Revision,
        inputs: Inputs,
        report: Result<Box<Report>, String>,
        worker: &Worker,
    ) {
        self.status.attempted = Some(revision.label.clone());
        match report {
            Ok(report) => {
                let desired = report.desired_state();
                let failure = report.errors.first().map(|first| Failure {
                    reason: first.reason,
                    message: first.message.clone(),
                    transient: report.errors.iter().any(|error| passes(error.reason)),
                });
                self.status.errors = report.errors;
                self.status.warnings = report.warnings;
                if report.outcome == Outcome::Failed {
                    self.status.message = self.refused(&revision.label);
                }
                self.feed(
                    Event::Deployed {
                        inputs,
                        outcome: report.outcome,
                        desired,
                        failure,
                    },
                    worker,
                );
            }
            Err(message) => {
                self.status.errors = vec![Finding::group(Reason::Internal, message.clone())];
                self.status.warnings.clear();
                self.status.message = self.refused(&revision.label);
                let failure = Failure {
                    reason: Reason::Internal,
                    message,
                    transient: true,
                };
                self.feed(Event::DeployFailed(inputs, failure), worker);
            }
        }
    }

    fn refused(&self, label: &str) -> String {
        let label = super::status::short(label);
        match &self.memory.serving {
            Some(serving) => {
                format!(
                    "{label} was refused, {} goes on serving",
                    super::status::short(&serving.revision.label)
                )
            }
            None => format!("{label} was refused"),
        }
    }

    fn reloaded(
        &mut self,
        served: &Served,
        loaded: Result<(u32, u32, u32), String>,
        worker: &Worker,
    ) {
        match loaded {
            Ok((tools, resources, prompts)) => {
                (
                    self.status.tools,
                    self.status.resources,
                    self.status.prompts,
                ) = (tools, resources, prompts);
                self.deaths = 0;
                let fresh = self
                    .memory
                    .serving
                    .as_ref()
                    .is_none_or(|serving| serving.inputs != served.inputs);
                if fresh {
                    self.status.took_ms = u64::try_from(self.sighted.elapsed().as_millis()).ok();
                }
                if fresh || self.status.since.is_none() {
                    self.status.since = Some(Instant::now());
                }
                self.status.ready = true;
                self.status.message = match self.status.took_ms.filter(|_| fresh) {
                    Some(ms) => format!(
                        "serving, {}.{:02} s after the change was seen",
                        ms / 1000,
                        ms % 1000 / 10
                    ),
                    None => "serving".to_owned(),
                };
                self.feed(Event::Reloaded(served.inputs.clone()), worker);
                // After the swap: a start in between serves what served before, and tries again.
                if let Err(error) = self.write_desired() {
                    self.say(format!("the desired state cannot be saved: {error}"));
                }
            }
            Err(message) if is_layer(&message) && self.serves(served) => {
                self.status.message = format!("a layer is lost and made again: {message}");
                self.feed(Event::LayerLost, worker);
            }
            Err(message) => {
                self.status
                    .errors
                    .push(Finding::group(Reason::ReloadFailed, message.clone()));
                self.status.message = self.refused(&served.revision.label);
                let transient =
                    message.starts_with("UNAVAILABLE") || message.starts_with("DEADLINE_EXCEEDED");
                let failure = Failure {
                    reason: Reason::ReloadFailed,
                    message,
                    transient,
                };
                self.feed(Event::ReloadFailed(served.inputs.clone(), failure), worker);
            }
        }
    }

    fn serves(&self, served: &Served) -> bool {
        self.memory
            .serving
            .as_ref()
            .is_some_and(|serving| serving.inputs == served.inputs)
    }

    fn kept(&mut self, kept: Kept) {
        match kept {
            Kept::Suspended => self.status.message = "suspended".to_owned(),
            Kept::SameTree => {
                self.status.message = "serving, the same code under a new revision".to_owned()
            }
            Kept::UpToDate if self.status.ready => {
                if !self.status.message.starts_with("serving") {
                    self.status.message = "serving".to_owned();
                }
            }
            Kept::Failed(failed) => {
                self.status.attempted = Some(failed.revision.label.clone());
                self.status.message = self.refused(&failed.revision.label);
                if self.status.errors.is_empty() {
                    self.status.errors = vec![Finding::group(failed.reason, failed.message)];
                }
            }
            Kept::RolledBack(failed) => {
                self.status.attempted = Some(failed.revision.label.clone());
                self.status.message = format!(
                    "{} was rolled back: {}",
                    super::status::short(&failed.revision.label),
                    failed.message
                );
                self.status.errors = vec![Finding::group(failed.reason, failed.message)];
            }
            Kept::UpToDate | Kept::NothingObserved | Kept::Waiting | Kept::Busy => {}
        }
    }

    /// The process came up, went away, or has something to say.
    fn worker_news(&mut self, health: &Health, worker: &Worker) {
        self.status.address.clone_from(&health.address);
        let was_ready = std::mem::replace(&mut self.status.ready, health.serving);
        if health.serving {
            self.deaths = 0;
            self.status.since.get_or_insert_with(Instant::now);
            if !was_ready
                && !self.status.message.starts_with("serving")
                && self.memory.attempting.is_none()
            {
                self.status.message = "serving".to_owned();
            }
        } else if let Some(problem) = &health.problem {
            self.status.message.clone_from(problem);
            if health.address.is_none() {
                self.deaths += 1;
            }
            if let Some(serving) = self.memory.serving.clone() {
                if is_layer(problem) && !self.memory.lost {
                    self.feed(Event::LayerLost, worker);
                } else if self.deaths >= DEATHS {
                    self.deaths = 0;
                    let failure = Failure {
                        reason: Reason::HostCrashed,
                        message: problem.clone(),
                        transient: false,
                    };
                    self.feed(Event::Unhealthy(serving.inputs, failure), worker);
                }
            }
        }
        self.show();
    }

    fn poked(&mut self, poke: Poke, worker: &Worker) {
        self.sighted = Instant::now();
        match poke {
            Poke::Look => self.look(),
            Poke::Again(token) => self.feed(Event::Requested(token), worker),
        }
    }

    /// A timer ran out.
    fn due(&mut self, worker: &Worker) {
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.sighted = now;
            self.look();
        }
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            self.feed(Event::RetryDue, worker);
        }
    }

    fn say(&mut self, message: String) {
        self.status.message = message;
        self.show();
    }

    fn show(&mut self) {
        self.status.revision = self
            .memory
            .serving
            .as_ref()
            .map(|serving| serving.revision.label.clone());
        self.tell(News::Status(Box::new(self.status.clone())));
    }

    fn progress(&self, text: String) {
        self.tell(News::Progress(self.spec.key.clone(), text));
    }

    fn tell(&self, news: News) {
        // Nobody listens only while everything ends.
        let _ = self.news.send(news);
    }
}

/// Reasons that the surroundings may take back.
fn passes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::IndexUnreachable | Reason::InstallTimeout | Reason::DiskFull
    )
}

/// Whether the worker complains about a layer in the store.
fn is_layer(message: &str) -> bool {
    message.contains("cannot unpack the ")
}
