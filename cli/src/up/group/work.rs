//! What the actions of the machine ask for, each as a task beside the loop.

use std::path::PathBuf;
use std::time::Duration;

use ramen_group::{Finding, LayerRef, Report};
use ramen_rollout::{Inputs, Revision, Served, Stage};
use ramen_source::git::Resolved;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Group, News};
use crate::revision::short;
use crate::state::read_json;
use crate::up::deploy::{Code, Job, Progress};
use crate::up::source::{Fetcher, Found, Source, Stored, Trouble};
use crate::up::worker::{Refused, Worker};

/// Folders of deploys that are kept for people to look into.
const KEPT_DEPLOYS: usize = 5;

/// What ends a piece of work.
pub(super) enum Done {
    /// Of the source with this fingerprint.
    Resolved(String, Result<Found, Trouble>),
    Fetched(Revision, Result<Stored, Trouble>),
    Deployed(Revision, Inputs, Result<Box<Report>, String>),
    Reloaded(Box<Served>, Result<(u32, u32, u32), Refused>),
}

impl Group {
    /// Asks the source, now or after the question that is under way.
    pub(super) fn look(&mut self) {
        self.look_at = None;
        if self.spec.suspended {
            return;
        }
        if std::mem::replace(&mut self.resolving, true) {
            self.look_again = true;
            return;
        }
        let (fetcher, source) = (self.fetcher(), self.spec.source.clone());
        let fingerprint = self.spec.source_fingerprint.clone();
        self.work
            .spawn(async move { Done::Resolved(fingerprint, fetcher.resolve(&source).await) });
    }

    /// Ends what was given up for something newer. While the newer is fetched, the deploy of before goes
    /// on: it may turn out to be the same tree.
    pub(super) fn give_up(&mut self) {
        let stage = self.memory.attempting.as_ref().map(|one| &one.stage);
        if !matches!(stage, Some(Stage::Fetching | Stage::Deploying(_)))
            && let Some((_, task)) = self.attempt.take()
        {
            task.abort();
        }
    }

    pub(super) fn fetcher(&self) -> Fetcher {
        self.machine.fetcher.clone()
    }

    pub(super) fn fetch(&mut self, revision: Revision) {
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
        let task = self.work.spawn(async move {
            let progress = move |text| drop(news.send(News::Progress(key.clone(), text)));
            let stored = fetcher.store(&source, found, progress).await;
            Done::Fetched(revision, stored)
        });
        match &self.attempt {
            Some((Some(_), deploy)) if !deploy.is_finished() => {}
            _ => self.replace(None, task),
        }
    }

    fn replace(&mut self, inputs: Option<Inputs>, task: AbortHandle) {
        if let Some((_, before)) = self.attempt.replace((inputs, task)) {
            before.abort();
        }
    }

    pub(super) fn deploy(&mut self, revision: Revision, inputs: Inputs, code: Option<LayerRef>) {
        let Some(code) = code else {
            let why = "the code of the revision is not in the store".to_owned();
            self.work
                .spawn(async move { Done::Deployed(revision, inputs, Err(why)) });
            return;
        };
        if let Some((Some(under_way), task)) = &self.attempt
            && *under_way == inputs
            && !task.is_finished()
        {
            // Another commit of the same tree: its end is this one's too.
            return;
        }
        self.status.message = format!("deploying {}", short(&revision.label));
        self.progress(format!("deploying {}", revision.label));
        let job = self.job(&revision, &inputs.tree, code);
        let (news, key) = (self.news.clone(), self.spec.key.clone());
        let of = inputs.clone();
        let task = self.work.spawn(async move {
            let progress =
                |step: Progress| drop(news.send(News::Progress(key.clone(), step.text())));
            let report = job.run(progress).await.map(Box::new);
            Done::Deployed(revision, inputs, report)
        });
        self.replace(Some(of), task);
    }

    pub(super) fn job(&self, revision: &Revision, tree: &str, code: LayerRef) -> Job {
        Job {
            worker: self.machine.worker.clone(),
            out: self.deploy_folder(tree),
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

    /// The folder for the report of this tree; old ones go.
    fn deploy_folder(&self, tree: &str) -> PathBuf {
        let served = self.memory.serving.iter().chain(&self.memory.previous);
        let keep: Vec<PathBuf> = served
            .map(|served| self.report_folder(&served.inputs.tree))
            .collect();
        let mut old: Vec<_> = std::fs::read_dir(self.dir.deploys())
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .filter(|(_, folder)| !keep.contains(folder))
            .collect();
        old.sort();
        for (_, folder) in old.iter().rev().skip(KEPT_DEPLOYS) {
            let _ = std::fs::remove_dir_all(folder);
        }
        self.report_folder(tree)
    }

    fn report_folder(&self, tree: &str) -> PathBuf {
        let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let name: String = tree.chars().filter(plain).take(80).collect();
        self.dir.deploys().join(name)
    }

    /// What the deploy of a tree found, when its report is still there: errors and warnings.
    pub(super) fn findings_of(&self, tree: &str) -> Option<(Vec<Finding>, Vec<Finding>)> {
        let report: Report = read_json(&self.report_folder(tree).join("report.json"))?;
        Some((report.errors, report.warnings))
    }

    pub(super) fn reload(&mut self, served: Box<Served>, worker: &Worker) {
        self.progress(format!("loading {}", served.revision.label));
        let reload = worker.reload(&served.desired);
        self.work.spawn(async move {
            let loaded = reload
                .await
                .map(|loaded| (loaded.tools, loaded.resources, loaded.prompts));
            Done::Reloaded(served, loaded)
        });
    }

    /// Sets the next look, a tenth earlier or later: many groups must not ask at once.
    pub(super) fn schedule(&mut self, pause: Duration) {
        if matches!(self.spec.source, Source::Folder(_)) {
            return;
        }
        let spread = self.sighted.elapsed().subsec_nanos() % 200;
        self.look_at = Some(Instant::now() + pause * (900 + spread) / 1000);
    }
}
