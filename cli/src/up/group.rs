//! One group: the rollout machine, its memory on disk, and the work that its actions ask for.
//!
//! Everything of a group happens in one task, so nothing of it can hold up another group. What takes time runs beside
//! the loop and comes back as an event.

mod outcome;
mod remembered;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ramen_group::Finding;
use ramen_rollout::{Action, Event, Inputs, Memory, step};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::work::Done;
use super::source::{Found, Source, Stored};
use super::spec::GroupSpec;
use super::status::Status;
use super::watch::Changes;
use super::worker::{Setting, Worker};
use super::{keys, machine::Machine};
use crate::state::{GroupDir, GroupInfo, write_atomic};

/// Pause after something of this machine or the source failed, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// Namespace and name.
pub(super) type Key = (String, String);

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

struct Group {
    machine: Arc<Machine>,
    spec: Arc<GroupSpec>,
    dir: GroupDir,
    memory: Memory,
    /// Where what serves comes from.
    origin: String,
    status: Status,
    news: mpsc::UnboundedSender<News>,
    work: JoinSet<Done>,
    /// The source is being asked, and whether to ask again after that.
    resolving: bool,
    look_again: bool,
    found: Option<(String, Found)>,
    stored: Option<Stored>,
    /// Why the source could not be asked, and how often in a row.
    trouble: Option<Finding>,
    troubles: u32,
    look_at: Option<Instant>,
    retry_at: Option<Instant>,
    /// When the newest change was first heard of.
    sighted: Instant,
    /// When the worker ended without being asked to, lately, and how many such ends it told of.
    deaths: VecDeque<Instant>,
    deaths_told: u32,
    /// The fetch or deploy under way, with what the deploy is made of.
    attempt: Option<(Option<Inputs>, AbortHandle)>,
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
                // Given up for something newer.
                Err(error) if error.is_cancelled() => {}
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
        let origin = spec.source.origin();
        let memory = remembered::load(&dir.memory(), &origin);
        let status = Status::new(&spec.key.0, &spec.key.1);
        Self {
            machine,
            spec,
            dir,
            memory,
            origin,
            status,
            news,
            work: JoinSet::new(),
            resolving: false,
            look_again: false,
            found: None,
            stored: None,
            trouble: None,
            troubles: 0,
            look_at: None,
            retry_at: None,
            sighted: Instant::now(),
            deaths: VecDeque::new(),
            deaths_told: 0,
            attempt: None,
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
            through_gateway: self.spec.through_gateway(),
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
        Changes::of_group(dir)
            .map_err(|error| {
                self.tell(News::Remark(format!(
                    "{} cannot be watched: {error}",
                    dir.display()
                )));
            })
            .ok()
    }

    /// Takes a step of the machine, saves the memory, then acts.
    fn feed(&mut self, event: Event, worker: &Worker) {
        let served = self.memory.serving.clone();
        let actions = step(&mut self.memory, event);
        if self.memory.serving != served {
            self.origin = self.spec.source.origin();
        }
        // Saved before anything is done: what is lost in a crash is asked for again at the next start.
        if let Err(error) = self.save() {
            self.say(format!("the state cannot be saved: {error}"));
        }
        for action in actions {
            self.act(action, worker);
        }
        self.give_up();
        self.show();
    }

    fn save(&self) -> std::io::Result<()> {
        remembered::save(&self.dir.memory(), &self.origin, &self.memory)
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
        let remembered = self.memory.serving.as_ref();
        let mut status = self
            .status
            .serving(remembered.map(|serving| serving.revision.label.clone()));
        if let Some(trouble) = &self.trouble {
            let why = format!("{}: {}", trouble.reason, trouble.message);
            status.message = if status.ready {
                format!("serving, but {why}")
            } else {
                why
            };
            status.errors.insert(0, trouble.clone());
        }
        self.tell(News::Status(Box::new(status)));
    }

    fn progress(&self, text: String) {
        self.tell(News::Progress(self.spec.key.clone(), text));
    }

    fn tell(&self, news: News) {
        // Nobody listens only while everything ends.
        let _ = self.news.send(news);
    }
}
