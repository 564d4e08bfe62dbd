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

/// What runs end with, and the states that groups are in.
const STATES: &[&str] = &["ready", "progressing", "stalled", "error"];
/// What most else ends with.
const WORDS: &[&str] = &["ok", "failed"];
/// What deploys end with.
const DEPLOYS: &[&str] = &["ok", "partial", "failed", "broken"];

/// The handles.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    reconciles: Family<ByResult, Counter>,
    duration: Histogram,
    writes: Family<ByKind, Counter>,
    groups: Family<ByState, Gauge>,
    fetches: Family<ByResult, Counter>,
    sources_failing: Gauge,
    deploys: Family<ByResult, Counter>,
    deploy_duration: Histogram,
    rollbacks: Counter,
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
            sources_failing: Gauge::default(),
            deploys: Family::default(),
            deploy_duration: Histogram::new([1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0]),
            rollbacks: Counter::default(),
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
            "sources_failing",
            "Groups whose source could not be had when it was looked at last",
            metrics.sources_failing.clone(),
        );
        registry.register(
            "deploys",
            "Deploys, by result (ok, partial, failed, broken)",
            metrics.deploys.clone(),
        );
        registry.register_with_unit(
            "deploy_duration",
            "Time of a deploy, from the wish for its Job to its report",
            Unit::Seconds,
            metrics.deploy_duration.clone(),
        );
        registry.register(
            "rollbacks",
            "Revisions that served, did not live and were taken back",
            metrics.rollbacks.clone(),
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
        metrics.begin_at_zero();
        metrics
    }

    /// A series that begins with its first event shows no increase: what alerts ask for is there before.
    fn begin_at_zero(&self) {
        for (family, results) in [
            (&self.reconciles, STATES),
            (&self.fetches, WORDS),
            (&self.deploys, DEPLOYS),
            (&self.reloads, WORDS),
        ] {
            for &result in results {
                drop(family.get_or_create(&ByResult { result }));
            }
        }
        for &state in STATES {
            drop(self.groups.get_or_create(&ByState { state }));
        }
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

    /// Whether the source of a group could be had when it was looked at last, after and before; of a group that is not
    /// there, nothing fails.
    pub(crate) fn source_fails(&self, fails: bool, failed: bool) {
        match (failed, fails) {
            (false, true) => {
                self.sources_failing.inc();
            }
            (true, false) => {
                self.sources_failing.dec();
            }
            (true, true) | (false, false) => {}
        }
    }

    /// How many groups are in a state, and how many sources fail.
    #[cfg(test)]
    pub(crate) fn standing(&self, state: &'static str) -> (i64, i64) {
        let groups = self.groups.get_or_create(&ByState { state }).get();
        (groups, self.sources_failing.get())
    }

    /// A deploy ended.
    pub(crate) fn deployed(&self, result: &'static str, took: Duration) {
        self.deploys.get_or_create(&ByResult { result }).inc();
        self.deploy_duration.observe(took.as_secs_f64());
    }

    /// A revision that served was taken back.
    pub(crate) fn rolled_back(&self) {
        self.rollbacks.inc();
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

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    /// Everything that can be counted, once.
    fn all() -> String {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.reconciled("ready", Duration::from_millis(2));
        metrics.wrote("Job", "apply");
        metrics.moved(None, Some("ready"));
        metrics.fetched(true);
        metrics.deployed("ok", Duration::from_secs(1));
        metrics.rolled_back();
        metrics.reloaded(false);
        metrics.hooked("team", "accepted");
        metrics.leads(true);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn the_page_of_metrics_has_all_that_are_exposed_and_no_other() {
        let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap();
        let page = std::fs::read_to_string(top.join("docs/reference/metrics.md")).unwrap();
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `ramen_operator_")?.split('`').next())
            .collect();
        let text = all();
        let kinds = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ramen_operator_"));
        let exposed: Vec<String> = kinds
            .map(|line| match line.split_once(' ').unwrap() {
                (name, "counter") => format!("{name}_total"),
                (name, _) => name.to_owned(),
            })
            .collect();
        assert_eq!(listed, exposed, "run `make gen` and commit");
    }

    #[test]
    fn what_alerts_ask_for_is_there_before_it_happens() {
        let mut registry = Registry::default();
        Metrics::new(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"ramen_operator_reconciles_total{result="error"} 0"#,
            r#"ramen_operator_groups{state="stalled"} 0"#,
            r#"ramen_operator_fetches_total{result="failed"} 0"#,
            "ramen_operator_sources_failing 0",
            r#"ramen_operator_deploys_total{result="broken"} 0"#,
            r#"ramen_operator_reloads_total{result="failed"} 0"#,
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn a_group_is_counted_in_one_state() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.moved(None, Some("progressing"));
        metrics.moved(Some("progressing"), Some("ready"));
        metrics.moved(Some("ready"), Some("ready"));
        let count = |state| metrics.groups.get_or_create(&ByState { state }).get();
        assert_eq!((count("progressing"), count("ready")), (0, 1));
        metrics.moved(Some("ready"), None);
        assert_eq!(count("ready"), 0);
    }

    #[test]
    fn a_source_that_fails_is_counted_once_until_it_can_be_had_or_its_group_is_gone() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        for (fails, failed, count) in [
            (true, false, 1),
            (true, true, 1),
            (true, false, 2),
            (false, true, 1),
            (false, false, 1),
        ] {
            metrics.source_fails(fails, failed);
            assert_eq!(metrics.sources_failing.get(), count);
        }
    }
}
