//! Which revision comes next: feeds the machine of `ramen-rollout` with what happened, keeps what it
//! remembers, and holds its actions until the memory is saved.

mod events;
mod known;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ramen_group::{DesiredState, Finding, LayerRef, Reason};
use ramen_rollout::{
    Action, Event, Failure, Inputs, Memory, Revision, Served, Settings, Stage, step,
};
use ramen_source::git::{Credentials, Resolved};
use serde::{Deserialize, Serialize};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::known::{Known, MAX_ERRORS, MAX_TEXT, cut, entry};
use super::convergence::Convergence;
use super::dereference::Remembered;
use super::health::{Ends, Health};
use super::tasks::Done;
use super::validate::Validated;
use super::{GroupKey, Operator, Wake, Work};
use crate::backoff::jitter;
use crate::error::Error;
use crate::names::child;
use crate::pods::PodView;

/// The least time after which a Deployment says that its pods do not come up.
const MIN_OVERDUE: Duration = Duration::from_mins(1);
/// Reports that are remembered.
const MAX_KNOWN: usize = 8;
/// Bytes of them: a `ConfigMap` holds 1 MiB, and there is more in it.
const MAX_KNOWN_BYTES: usize = 700 << 10;

/// What the `ConfigMap` named `<group>-rollout` holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Saved {
    memory: Memory,
    /// What deploys found, newest last.
    known: Vec<Known>,
    /// The ends of the pods of what serves.
    #[serde(skip_serializing_if = "Ends::is_empty")]
    ends: Ends,
}

/// What children are built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// What pods serve; absent before the first deploy that worked.
    pub(crate) desired: Option<DesiredState>,
    /// The image with which it was deployed; absent when that is not known.
    pub(crate) image: Option<String>,
    /// The text of the `ConfigMap` named `<group>-rollout`.
    pub(crate) remembered: String,
}

/// The source could not be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) finding: Finding,
    /// Trying again without a change may help.
    pub(crate) transient: bool,
}

/// A group's revisions.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of its own"
)]
pub(crate) struct Rollout {
    key: GroupKey,
    saved: Saved,
    started: bool,
    /// The layers of what serves were looked for in the store.
    looked_for: bool,
    /// They are not there; makes the deploy that makes them again another one than that before.
    lost: bool,
    repair: u64,
    pending: VecDeque<Action>,
    pub(super) inbox: Arc<Mutex<Vec<Done>>>,
    /// Ends with the group.
    pub(super) tasks: JoinSet<()>,
    pub(super) want_look: bool,
    pub(super) resolving: bool,
    pub(super) found: Option<Resolved>,
    /// What the last question was asked with.
    asked_with: Option<Arc<Credentials>>,
    /// The source has answered, or failed, since the start.
    looked: bool,
    trouble: Option<Trouble>,
    troubles: u32,
    /// Why the last attempt broke off, while it is to be made again.
    setback: Option<Failure>,
    look_at: Option<Instant>,
    retry_at: Option<Instant>,
    health: Health,
    want_inspection: bool,
    convergence: Convergence,
    /// Pods that are to be asked what they serve.
    to_ask: Vec<PodView>,
    /// The fetch and the deploy under way.
    pub(super) fetching: Option<AbortHandle>,
    pub(super) deploying: Option<Deploying>,
}

/// A deploy under way.
#[derive(Debug)]
pub(super) struct Deploying {
    /// Of which inputs, and for which try.
    pub(super) id: String,
    pub(super) task: AbortHandle,
    /// Its end is not wanted any more; the Job is taken away.
    pub(super) stop: CancellationToken,
}

impl Deploying {
    /// Whether its end is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        !self.task.is_finished() && !self.stop.is_cancelled()
    }
}

impl Rollout {
    /// From what is remembered. When that is gone but pods serve something, it goes on serving.
    pub(super) fn load(key: &GroupKey, remembered: &Remembered) -> Result<Self, Error> {
        let unreadable = |error: serde_json::Error| Error::Memory {
            name: child::rollout(&key.name),
            message: error.to_string(),
        };
        let saved: Saved = match &remembered.memory {
            Some(text) => serde_json::from_str(text).map_err(unreadable)?,
            None => Saved {
                memory: Memory {
                    serving: remembered.desired.as_deref().and_then(serving),
                    ..Memory::default()
                },
                ..Saved::default()
            },
        };
        let serving = saved.memory.serving.as_ref();
        let health = Health::resume(
            saved.ends.clone(),
            serving.map(|serving| &serving.inputs),
            Instant::now(),
        );
        Ok(Self {
            key: key.clone(),
            saved,
            started: false,
            looked_for: false,
            lost: false,
            repair: 0,
            pending: VecDeque::new(),
            inbox: Arc::default(),
            tasks: JoinSet::new(),
            want_look: false,
            resolving: false,
            found: None,
            asked_with: None,
            looked: false,
            trouble: None,
            troubles: 0,
            setback: None,
            look_at: None,
            retry_at: None,
            health,
            want_inspection: false,
            convergence: Convergence::default(),
            to_ask: Vec::new(),
            fetching: None,
            deploying: None,
        })
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.saved.memory
    }

    /// Whether this process knows how the source does.
    pub(crate) fn has_looked(&self) -> bool {
        self.looked
    }

    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    pub(crate) fn setback(&self) -> Option<&Failure> {
        self.setback.as_ref()
    }

    /// How what serves does.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Which pods serve it.
    pub(crate) fn convergence(&self) -> &Convergence {
        &self.convergence
    }

    /// What a deploy of these inputs found, when it is remembered.
    pub(crate) fn known(&self, inputs: &Inputs) -> Option<&Known> {
        self.saved
            .known
            .iter()
            .rev()
            .find(|known| known.inputs == *inputs)
    }

    /// The last deploy.
    pub(crate) fn last(&self) -> Option<&Known> {
        self.saved.known.last()
    }

    /// What serves, when its layers are to be looked for: once, and when a pod asked for one in vain.
    pub(super) fn looks_for(&mut self, in_vain: bool) -> Option<DesiredState> {
        let looked_for = std::mem::replace(&mut self.looked_for, true);
        let serving = self.saved.memory.serving.as_ref();
        let wanted = (in_vain || !looked_for) && !self.saved.memory.lost;
        serving
            .filter(|_| wanted)
            .map(|serving| serving.desired.clone())
    }

    /// They are not in the store.
    pub(super) fn lost(&mut self) {
        tracing::warn!(group = %self.key, "layers of what serves are not in the store; they are made again");
        self.lost = true;
    }

    /// Tells a deploy that makes lost layers again from the one that made them first.
    pub(super) fn repair(&self) -> u64 {
        self.repair
    }

    /// Takes everything that happened since the last run.
    pub(super) fn advance(
        &mut self,
        group: &Validated,
        operator: &Operator,
        look: bool,
        now: Instant,
    ) {
        let settings = settings(group, operator);
        // What has come in was asked for with the settings of before, and is taken so. A deploy with other secrets has the
        // same inputs: until the one of before is stopped its end must not come in, or it is taken for the new one's.
        let inbox = Arc::clone(&self.inbox);
        let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for done in inbox.drain(..) {
            self.finished(done, group, now);
        }
        if !self.started || settings != self.saved.memory.settings {
            let given_others = settings.secrets != self.saved.memory.settings.secrets;
            let before = self.pending.len();
            self.feed(Event::Configured(settings), now);
            let mut started = self.pending.iter().skip(before);
            if given_others
                && started.any(|action| matches!(action, Action::Deploy { .. }))
                && let Some(deploying) = &self.deploying
            {
                deploying.stop.cancel();
            }
        }
        drop(inbox);
        if !self.started {
            self.started = true;
            self.feed(Event::Restarted, now);
            self.want_look = true;
        }
        if std::mem::take(&mut self.lost) {
            self.repair = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_secs());
            self.feed(Event::LayerLost, now);
        }
        // It waits while the group is suspended: nothing would be looked at.
        if let Some(token) = &group.requested
            && !group.spec.source.suspend
            && self.saved.memory.requested.as_deref() != Some(token)
        {
            self.feed(Event::Requested(token.clone()), now);
        }
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            self.feed(Event::RetryDue, now);
        }
        // What was refused may be let in with other credentials.
        let asked = self.asked_with.as_ref();
        if asked.is_some_and(|asked| *asked != group.remote.credentials) {
            self.feed(Event::Access, now);
        }
        if look || self.look_at.take_if(|at| *at <= now).is_some() {
            self.want_look = true;
        }
        if group.spec.source.suspend {
            self.want_look = false;
            self.look_at = None;
            // Nobody asks whether that is still so.
            self.trouble = None;
        } else if self.look_at.is_none() && !self.resolving && !self.want_look {
            // Resumed, or never asked.
            self.want_look = true;
        }
    }

    /// Takes how the pods are; what serves and does not live is taken back, and then true is returned. Call
    /// after `advance`.
    pub(super) fn observe(
        &mut self,
        group: &Validated,
        pods: &[PodView],
        overdue: Option<&str>,
        now: Instant,
    ) -> bool {
        let inputs = self.note(pods, now);
        let (Some(inputs), false) = (inputs, self.is_loading()) else {
            return false;
        };
        self.want_inspection |= self.health.asks(now);
        if !self.is_restoring() {
            self.to_ask.extend(self.convergence.asks(pods, now));
        }
        let image = image_of(&inputs);
        let failure = self.health.verdict(pods, image).or_else(|| {
            let message = overdue?;
            let late = self.health.serves_for(now) > group.spec.rollout.timeout.max(MIN_OVERDUE);
            let before = self.saved.memory.previous.first();
            let before = before.and_then(|before| image_of(&before.inputs));
            // Pods of the old image still serve, since those of the new one do not come up.
            let old = before.filter(|before| Some(*before) != image);
            let serve = |image: &str| pods.iter().any(|pod| pod.ready && pod.image == image);
            (late && old.is_some_and(serve)).then(|| Failure {
                reason: Reason::ReloadFailed,
                message: format!("its pods do not come up: {message}"),
                transient: false,
            })
        });
        let Some(failure) = failure else { return false };
        if self.saved.memory.failure(&inputs).is_some() {
            return false;
        }
        let label = serving_label(&self.saved.memory);
        let before = self.saved.memory.serving.clone();
        self.feed(Event::Unhealthy(inputs, failure.clone()), now);
        let taken_back = self.saved.memory.serving != before;
        if taken_back {
            let (group, error) = (&self.key, failure.message);
            tracing::warn!(%group, revision = label, error, "a revision that served was taken back");
            self.note(pods, now);
        }
        taken_back
    }

    /// Pods are between two revisions: they are not judged.
    fn is_loading(&self) -> bool {
        let attempt = self.saved.memory.attempting.as_ref();
        attempt.is_some_and(|attempt| matches!(attempt.stage, Stage::Reloading(_)))
    }

    /// Pods are told to load once more what serves; the answer says which do.
    fn is_restoring(&self) -> bool {
        let restoring = self.saved.memory.restoring.as_ref();
        restoring.is_some_and(|restore| !restore.waiting)
    }

    /// Notes how the pods of what serves are, and says what that is.
    fn note(&mut self, pods: &[PodView], now: Instant) -> Option<Inputs> {
        let serving = self.saved.memory.serving.as_ref();
        let inputs = serving.map(|serving| serving.inputs.clone());
        let clock = k8s_openapi::jiff::Timestamp::now().as_second();
        self.health.note(inputs.as_ref(), pods, now, clock);
        self.saved.ends = self.health.ends().clone();
        self.convergence.note(inputs.as_ref(), pods, now);
        inputs
    }

    fn feed(&mut self, event: Event, now: Instant) {
        for action in step(&mut self.saved.memory, event) {
            match action {
                Action::Resolve => self.want_look = true,
                Action::RetryAfter(pause) => {
                    self.retry_at = Some(now + jitter(pause, &self.key.name));
                }
                // Told from the memory, and swept by a task of its own.
                Action::Keep(_) | Action::Prune(_) => {}
                action => self.pending.push_back(action),
            }
        }
    }

    /// What pods start with: what serves, and before anything does the first candidate.
    fn started_with(&self) -> Option<&Served> {
        let memory = &self.saved.memory;
        let attempt = memory.attempting.as_ref().map(|attempt| &attempt.stage);
        let first = match attempt {
            Some(Stage::Reloading(candidate)) => Some(candidate.as_ref()),
            Some(Stage::Fetching | Stage::Deploying(_)) | None => None,
        };
        memory.serving.as_ref().or(first)
    }

    /// There is something that pods can start with.
    pub(super) fn starts_pods(&self) -> bool {
        self.started_with().is_some()
    }

    /// What children are built from, as things stand.
    pub(super) fn wanted(&self) -> Result<Wanted, Error> {
        let served = self.started_with();
        let remembered = serde_json::to_string(&self.saved)
            .map_err(|error| Error::Internal(format!("the memory cannot be written: {error}")))?;
        Ok(Wanted {
            desired: served.map(|served| served.desired.clone()),
            image: served
                .and_then(|served| image_of(&served.inputs))
                .map(str::to_owned),
            remembered,
        })
    }

    /// Starts what was asked for. Call when the memory is saved.
    pub(super) fn act(&mut self, group: &Validated, operator: &Operator, work: &Work, wake: &Wake) {
        while self.tasks.try_join_next().is_some() {}
        if std::mem::take(&mut self.want_look) {
            if self.resolving {
                // Asked again when the question that is under way is answered.
                self.want_look = true;
            } else {
                self.resolving = true;
                self.look_at = None;
                self.asked_with = Some(Arc::clone(&group.remote.credentials));
                work.resolve(self, group, wake);
            }
        }
        if std::mem::take(&mut self.want_inspection) {
            work.inspect(self, group, wake);
        }
        let pods = std::mem::take(&mut self.to_ask);
        if !pods.is_empty() {
            work.survey(self, group, wake, pods);
        }
        while let Some(action) = self.pending.pop_front() {
            match action {
                Action::Fetch(revision) => work.fetch(self, group, wake, revision),
                Action::Deploy {
                    revision,
                    inputs,
                    code,
                } => work.deploy(self, group, operator, wake, (revision, inputs, code)),
                Action::Reload(served) => work.reload(self, group, wake, *served),
                Action::Resolve | Action::Keep(_) | Action::RetryAfter(_) | Action::Prune(_) => {}
            }
        }
        self.give_up();
    }

    /// Ends what was given up for something newer. While the newer is fetched, the deploy of before goes
    /// on: it may turn out to be the same tree.
    fn give_up(&mut self) {
        let attempt = self.saved.memory.attempting.as_ref();
        let stage = attempt.map(|attempt| &attempt.stage);
        if !matches!(stage, Some(Stage::Fetching))
            && let Some(fetching) = self.fetching.take()
        {
            fetching.abort();
        }
        if !matches!(stage, Some(Stage::Fetching | Stage::Deploying(_)))
            && let Some(deploying) = self.deploying.take()
        {
            deploying.stop.cancel();
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        // Nobody is asked before the end of a load, which wakes the group.
        let asks = self.health.next_timer().filter(|_| !self.is_loading());
        let surveys = self.convergence.next_timer();
        let surveys = surveys.filter(|_| !self.is_loading() && !self.is_restoring());
        let timers = [self.look_at, self.retry_at, asks, surveys];
        timers.into_iter().flatten().min()
    }

    fn schedule(&mut self, pause: Duration, now: Instant) {
        self.look_at = Some(now + jitter(pause, &self.key.name));
    }
}

fn serving_label(memory: &Memory) -> String {
    let serving = memory.serving.as_ref();
    serving.map_or_else(String::new, |serving| serving.revision.label.clone())
}

/// The layers that a group needs by what is remembered of it; `None` when that cannot be told.
pub(super) fn layers(remembered: &Remembered) -> Option<Vec<LayerRef>> {
    let saved = remembered.memory.as_deref();
    if let Some(Ok(saved)) = saved.map(serde_json::from_str::<Saved>) {
        return Some(saved.memory.keep());
    }
    // What pods serve is needed, whatever became of the memory.
    let Some(desired) = &remembered.desired else {
        return Some(Vec::new());
    };
    let memory = Memory {
        serving: Some(serving(desired)?),
        ..Memory::default()
    };
    Some(memory.keep())
}

/// What pods are known to serve although nothing else is remembered.
fn serving(desired: &str) -> Option<Served> {
    let desired: DesiredState = serde_json::from_str(desired).ok()?;
    let commit = desired.revision.rsplit(':').next().unwrap_or_default();
    Some(Served {
        revision: Revision {
            commit: commit.to_owned(),
            label: desired.revision.clone(),
        },
        inputs: Inputs {
            tree: desired.code.key.clone(),
            runtime: String::new(),
            spec: String::new(),
        },
        desired,
    })
}

/// Between image and Python version in [`Inputs::runtime`].
const PYTHON: &str = " python ";

/// The image that a revision was deployed with.
pub(super) fn image_of(inputs: &Inputs) -> Option<&str> {
    inputs.runtime.rsplit_once(PYTHON).map(|(image, _)| image)
}

fn settings(group: &Validated, operator: &Operator) -> Settings {
    let worker = &group.spec.worker;
    let image = group.image(operator);
    let python = worker
        .python
        .as_ref()
        .map_or("newest", |python| python.as_str());
    Settings {
        source: group.spec.source_fingerprint(),
        runtime: format!("{image}{PYTHON}{python}"),
        spec: group.spec.deploy_fingerprint(),
        secrets: group.secrets_hash.clone(),
        suspended: group.spec.source.suspend,
        auto_rollback: group.spec.rollout.auto_rollback,
        history: group.spec.history,
        ..Settings::default()
    }
}

#[cfg(test)]
pub(crate) mod tests;
