//! What runs share, and what is remembered of each group in this process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::runtime::events::Recorder;
use kube::{Client, Resource as _, ResourceExt as _};
use ramen_crds::{McpGroup, McpGroupStatus};
use ramen_group::{CidrSet, Finding, LayerRef};
use tokio::time::Instant;

use super::apply::Applied;
use super::build::Network;
use super::dereference::SeenSecrets;
use super::rollout::Rollout;
use super::status::ZoneView;
use super::validate::{Invalid, Validated};
use super::{GroupKey, Wake, Work};
use crate::backoff::Pauses;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::names;
use crate::pods::Pods;
use crate::watches::Caches;

/// The least time from a run to the next that nothing but a timer asks for: one in the past that no run takes
/// away must not make a group run without end.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// What the operator was started with, as far as children depend on it.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    /// The image of groups that name none.
    pub(crate) worker_image: String,
    /// How images are pulled.
    pub(crate) image_pull_policy: String,
    /// Where pods reach the artifact endpoint.
    pub(crate) artifacts_url: String,
    /// The bucket that pods read layers from themselves.
    pub(crate) bucket: Option<PodsBucket>,
    /// Repositories over plain http may be used.
    pub(crate) allow_http: bool,
    /// Where the gateways are.
    pub(crate) gateways: Option<String>,
    /// Whom the policies of pods let in and out besides.
    pub(crate) network: Network,
}

/// How pods reach a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodsBucket {
    /// Its address.
    pub(crate) address: String,
    /// A Secret of each namespace with variables.
    pub(crate) secret: Option<String>,
    /// Where it is.
    pub(crate) ranges: CidrSet,
}

/// What all runs share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) operator: Operator,
    pub(crate) caches: Caches,
    pub(crate) pods: Pods,
    pub(crate) work: Work,
    pub(crate) wake: Wake,
    pub(crate) metrics: Metrics,
    pub(crate) recorder: Recorder,
    /// Asks for a look at the Secrets of gateways.
    pub(crate) gateways: tokio::sync::Notify,
    states: Mutex<HashMap<GroupKey, Arc<tokio::sync::Mutex<State>>>>,
    /// Layers that groups need; a group of which that is not known yet is not in it.
    kept: Mutex<HashMap<GroupKey, Vec<LayerRef>>>,
    /// Pauses after errors, here because the error policy cannot wait for a state.
    pauses: Mutex<HashMap<GroupKey, Pauses>>,
}

/// A group in this process.
#[derive(Default)]
pub(crate) struct State {
    pub(super) uid: String,
    /// The annotation `ramen.dev/hinted-at`, as last seen.
    pub(super) mark: Option<String>,
    /// Secrets as last read, by name, with their version.
    pub(super) secrets: SeenSecrets,
    /// The revision machine, made from what is remembered at the first run.
    pub(super) rollout: Option<Rollout>,
    pub(super) applied: BTreeMap<(&'static str, String), Applied>,
    pub(super) zones: Vec<ZoneView>,
    /// What holds up the newest deploy pod.
    pub(super) hurdle: Option<String>,
    pub(super) faults: Vec<Finding>,
    /// The group as it was when it could be acted on last.
    pub(super) valid: Option<Arc<Validated>>,
    /// What keeps the group from being acted on, as of the last run.
    pub(super) invalid: Option<Invalid>,
    pub(super) status: Option<McpGroupStatus>,
    pub(super) counted: Counted,
}

/// What is counted of a group: where it stands, and whether its source fails. Taken back with the last run that holds its
/// state, which may outlive the group.
#[derive(Default)]
pub(super) struct Counted {
    metrics: Option<Metrics>,
    word: Option<&'static str>,
    source_fails: bool,
}

impl Counted {
    /// Counts it as it is after a run.
    pub(super) fn count(&mut self, metrics: &Metrics, word: &'static str, source_fails: bool) {
        metrics.moved(self.word.replace(word), Some(word));
        let failed = std::mem::replace(&mut self.source_fails, source_fails);
        metrics.source_fails(source_fails, failed);
        self.metrics = Some(metrics.clone());
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(metrics) = &self.metrics {
            metrics.moved(self.word, None);
            metrics.source_fails(false, self.source_fails);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of its own, made once"
    )]
    pub(crate) fn new(
        client: Client,
        operator: Operator,
        caches: Caches,
        pods: Pods,
        work: Work,
        wake: Wake,
        metrics: Metrics,
        recorder: Recorder,
    ) -> Self {
        Self {
            client,
            operator,
            caches,
            pods,
            work,
            wake,
            metrics,
            recorder,
            gateways: tokio::sync::Notify::new(),
            states: Mutex::default(),
            kept: Mutex::default(),
            pauses: Mutex::default(),
        }
    }

    /// The state of a group; new when it was not seen before.
    pub(super) fn state(&self, key: &GroupKey) -> Arc<tokio::sync::Mutex<State>> {
        Arc::clone(locked(&self.states).entry(key.clone()).or_default())
    }

    /// The group is gone: its tasks end.
    pub(crate) fn forget(&self, key: &GroupKey) {
        locked(&self.kept).remove(key);
        locked(&self.pauses).remove(key);
        self.gateways.notify_one();
        // What ends with it does so without the lock.
        let state = locked(&self.states).remove(key);
        drop(state);
    }

    /// Forgets all groups but these: what a watch missed.
    pub(crate) fn retain(&self, there: &dyn Fn(&GroupKey) -> bool) {
        // A run that outlived its group leaves something in some of them.
        let mut known: HashSet<GroupKey> = locked(&self.states).keys().cloned().collect();
        known.extend(locked(&self.kept).keys().cloned());
        known.extend(locked(&self.pauses).keys().cloned());
        for key in known.into_iter().filter(|key| !there(key)) {
            self.forget(&key);
        }
    }

    /// The next pause of a group whose run failed.
    pub(super) fn pause(&self, key: &GroupKey) -> Duration {
        let mut pauses = locked(&self.pauses);
        let pauses = pauses.entry(key.clone()).or_default();
        pauses.failed(tokio::time::Instant::now(), &key.name)
    }

    /// A run went well.
    pub(super) fn went_well(&self, key: &GroupKey) {
        locked(&self.pauses).remove(key);
    }

    /// Notes the layers that a group needs.
    pub(crate) fn keeps(&self, key: &GroupKey, layers: Vec<LayerRef>) {
        locked(&self.kept).insert(key.clone(), layers);
    }

    /// Whether it is known which layers a group needs.
    pub(super) fn knows_layers(&self, key: &GroupKey) -> bool {
        locked(&self.kept).contains_key(key)
    }

    /// All layers that are needed; else the groups of which that is not known. Those that are being removed need none
    /// any more.
    pub(crate) fn layers(&self) -> Result<Vec<LayerRef>, Vec<GroupKey>> {
        let groups = self.caches.groups.state();
        let kept = locked(&self.kept);
        let unknown: Vec<GroupKey> = groups
            .iter()
            .filter(|group| group.meta().deletion_timestamp.is_none())
            .map(|group| GroupKey::new(group.namespace().unwrap_or_default(), group.name_any()))
            .filter(|key| !kept.contains_key(key))
            .collect();
        if unknown.is_empty() {
            Ok(kept.values().flatten().cloned().collect())
        } else {
            Err(unknown)
        }
    }
}

impl State {
    /// A group that was removed and made again starts afresh.
    pub(super) fn begin(&mut self, uid: &str) {
        if self.uid != uid {
            *self = Self {
                uid: uid.to_owned(),
                counted: std::mem::take(&mut self.counted),
                ..Self::default()
            };
        }
    }

    /// Whether a replica without the lease passed a hook on since the last run. The first run looks anyway.
    pub(super) fn is_marked(&mut self, group: &McpGroup) -> bool {
        let mark = group.annotations().get(names::HINTED_AT).cloned();
        let new = mark.is_some() && mark != self.mark;
        self.mark = mark;
        new
    }

    /// The revision machine.
    pub(super) fn rollout(&mut self) -> Result<&mut Rollout, Error> {
        self.rollout
            .as_mut()
            .ok_or_else(|| Error::Internal("a run begins with the memory".to_owned()))
    }

    pub(super) fn layers(&self) -> Vec<LayerRef> {
        self.rollout
            .as_ref()
            .map(|rollout| rollout.memory().keep())
            .unwrap_or_default()
    }

    /// When to run again without being woken. What is invalid waits for a change: no run acts on its timers.
    pub(super) fn next_run(&self) -> Option<Duration> {
        let rollout = self.rollout.as_ref().filter(|_| self.invalid.is_none())?;
        let left = rollout
            .next_timer()?
            .saturating_duration_since(Instant::now());
        Some(left.max(LEAST_PAUSE))
    }
}
