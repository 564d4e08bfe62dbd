//! Every metric of the operator, registered here and nowhere else. No label has a value that a group
//! chose.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
    verb: &'static str,
}

/// What became of a hook. Receivers are named by whoever runs the operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReceiver {
    receiver: String,
    outcome: &'static str,
}

/// A state that groups are in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// The handles.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    reconciles: Family<ByResult, Counter>,
    duration: Histogram,
    writes: Family<ByKind, Counter>,
    groups: Family<ByState, Gauge>,
    fetches: Family<ByResult, Counter>,
    deploys: Family<ByResult, Counter>,
    reloads: Family<ByResult, Counter>,
    hooks: Family<ByReceiver, Counter>,
    leader: Gauge,
}

impl Metrics {
    /// Registers everything.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("ramen_operator");
        let metrics = Self {
            reconciles: Family::default(),
            duration: Histogram::new([0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0]),
            writes: Family::default(),
            groups: Family::default(),
            fetches: Family::default(),
            deploys: Family::default(),
            reloads: Family::default(),
            hooks: Family::default(),
            leader: Gauge::default(),
        };
        registry.register(
            "reconciles",
            "Runs of the reconcile pipeline, by result (ready, progressing, stalled, error)",
            metrics.reconciles.clone(),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Time of a run",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "writes",
            "Writes to the API server, by kind and verb; none at rest",
            metrics.writes.clone(),
        );
        registry.register(
            "groups",
            "Groups by state (ready, progressing, stalled, error)",
            metrics.groups.clone(),
        );
        registry.register(
            "fetches",
            "Looks at repositories and fetches, by result (ok, failed)",
            metrics.fetches.clone(),
        );
        registry.register(
            "deploys",
            "Deploys, by result (ok, partial, failed, broken)",
            metrics.deploys.clone(),
        );
        registry.register(
            "reloads",
            "Reloads, by result (ok, failed)",
            metrics.reloads.clone(),
        );
        registry.register(
            "hooks",
            "Webhooks, by receiver and outcome (accepted, ignored, unmatched, refused, limited)",
            metrics.hooks.clone(),
        );
        registry.register(
            "leader",
            "1 while this replica holds the lease",
            metrics.leader.clone(),
        );
        metrics
    }

    /// A run ended.
    pub(crate) fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&ByResult { result }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Something was written.
    pub(crate) fn wrote(&self, kind: &'static str, verb: &'static str) {
        self.writes.get_or_create(&ByKind { kind, verb }).inc();
    }

    /// A group went from one state to another; `None` for not there.
    pub(crate) fn moved(&self, from: Option<&'static str>, to: Option<&'static str>) {
        if from == to {
            return;
        }
        if let Some(state) = from {
            self.groups.get_or_create(&ByState { state }).dec();
        }
        if let Some(state) = to {
            self.groups.get_or_create(&ByState { state }).inc();
        }
    }

    /// A look at a repository, or a fetch, ended.
    pub(crate) fn fetched(&self, ok: bool) {
        self.fetches
            .get_or_create(&ByResult { result: word(ok) })
            .inc();
    }

    /// A deploy ended.
    pub(crate) fn deployed(&self, result: &'static str) {
        self.deploys.get_or_create(&ByResult { result }).inc();
    }

    /// A reload ended.
    pub(crate) fn reloaded(&self, ok: bool) {
        self.reloads
            .get_or_create(&ByResult { result: word(ok) })
            .inc();
    }

    /// A hook came in; `receiver` is empty when there is none of that name.
    pub(crate) fn hooked(&self, receiver: &str, outcome: &'static str) {
        let receiver = receiver.to_owned();
        let labels = ByReceiver { receiver, outcome };
        self.hooks.get_or_create(&labels).inc();
    }

    /// Whether this replica writes.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

fn word(ok: bool) -> &'static str {
    if ok { "ok" } else { "failed" }
}
