//! Every metric of the gateway, registered here and nowhere else. The only label that a group chooses
//! is its own name, and only of a group that is served: at most 1,000 have series of their own.

mod outcome;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::answer::{Answer, Refusal};
use crate::groups::{GroupName, Groups};
use crate::operations::OpError;

pub(crate) use outcome::Outcome;

/// What an operation that did not fail counts as.
pub(crate) const DONE: &str = "ok";

/// Groups with series of their own; all others count as `other`.
const MAX_GROUPS: usize = 1000;
/// The group of requests to one that is not served.
const UNKNOWN: &str = "unknown";
/// The group of requests to those beyond [`MAX_GROUPS`].
const OTHER: &str = "other";
/// What a request that never said it counts as.
const NO_ERA: &str = "none";
const ERAS: [&str; 3] = ["legacy", "modern", NO_ERA];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCall {
    group: String,
    era: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEra {
    era: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGroup {
    group: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    group: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFile {
    file: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: String,
    outcome: &'static str,
}

/// The metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<ByCall, Counter>,
    duration: Family<ByEra, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    listen_streams: Gauge,
    connections: Gauge,
    groups: Gauge,
    workers: Family<ByState, Gauge>,
    ejections: Family<ByGroup, Counter>,
    upstreams: Family<ByState, Gauge>,
    auth_failures: Family<ByReason, Counter>,
    refusals: Family<ByReason, Counter>,
    operations: Family<ByOperation, Counter>,
    unusable_files: Family<ByFile, Gauge>,
    /// Groups that have series of their own.
    known: RwLock<HashSet<String>>,
    /// Held while the text is written: what it counts anew is counted for one reader at a time.
    writing: Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("ramen_gateway");
        let buckets: fn() -> Histogram = || {
            Histogram::new([
                0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
                2.5, 5.0, 10.0, 30.0, 120.0,
            ])
        };
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(buckets),
            in_flight: Gauge::default(),
            listen_streams: Gauge::default(),
            connections: Gauge::default(),
            groups: Gauge::default(),
            workers: Family::default(),
            ejections: Family::default(),
            upstreams: Family::default(),
            auth_failures: Family::default(),
            refusals: Family::default(),
            operations: Family::default(),
            unusable_files: Family::default(),
            known: RwLock::default(),
            writing: Mutex::default(),
            registry: Registry::default(),
        };
        metrics.register(&mut registry);
        // A series that begins with its first event shows no increase: what alerts ask for is there before.
        for refusal in Refusal::ALL {
            metrics.counter(refusal);
        }
        Self {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests to groups by how they ended (ok, tool_error, error, invalid, refused, unavailable, deadline, exhausted, lost, bad_worker, stream, listening, cancelled)",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "Time from a request to its answer, or to the first event of it; listen streams are not in it",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register(
            "in_flight",
            "Requests to groups that have no answer yet",
            self.in_flight.clone(),
        );
        registry.register(
            "listen_streams",
            "Open subscriptions to changes of lists",
            self.listen_streams.clone(),
        );
        registry.register(
            "connections",
            "Open connections of callers",
            self.connections.clone(),
        );
        registry.register("groups", "Groups that are served", self.groups.clone());
        registry.register(
            "workers",
            "Workers by state: ready, or aside because they could not be reached lately, or failed several calls in a row",
            self.workers.clone(),
        );
        registry.register(
            "worker_ejections",
            "Times that a worker was set aside: it could not be reached, or failed several calls in a row",
            self.ejections.clone(),
        );
        registry.register(
            "upstreams",
            "Upstreams of groups by state (up, connecting, down)",
            self.upstreams.clone(),
        );
        registry.register(
            "auth_failures",
            "Requests turned away for who sent them or from where (credential, unverified, forbidden, address, host, origin)",
            self.auth_failures.clone(),
        );
        registry.register(
            "refusals",
            "Requests turned away by the gate for their form or number (headers, ambiguous, method, size, encoding, rate, in_flight, slow, path)",
            self.refusals.clone(),
        );
        registry.register(
            "operations",
            "Operations of the platform by how they ended: ok, or the code of the error",
            self.operations.clone(),
        );
        registry.register(
            "unusable_files",
            "1 while a file of the configuration cannot be used as it is now (certificate, groups, oidc, operators)",
            self.unusable_files.clone(),
        );
    }

    /// A request to a group begins. It counts as cancelled when this is dropped before its end.
    pub(crate) fn begin(self: &Arc<Self>, group: Option<&GroupName>) -> Running {
        self.in_flight.inc();
        Running {
            metrics: Arc::clone(self),
            group: group.map_or_else(|| UNKNOWN.to_owned(), |group| self.series(group)),
            begin: Instant::now(),
            ended: false,
        }
    }

    /// A subscription that is open until this is dropped.
    pub(crate) fn listening(self: &Arc<Self>) -> Open {
        Open::new(self.listen_streams.clone())
    }

    /// A connection that is open until this is dropped.
    pub(crate) fn connected(self: &Arc<Self>) -> Open {
        Open::new(self.connections.clone())
    }

    /// Counts an answer that is a refusal of the gate.
    pub(crate) fn judged(&self, answer: &Answer) {
        if let Some(refusal) = answer.extensions().get::<Refusal>() {
            self.counter(*refusal).inc();
        }
    }

    fn counter(&self, refusal: Refusal) -> Counter {
        let (family, reason) = match refusal {
            Refusal::Credential => (&self.auth_failures, "credential"),
            Refusal::Unverified => (&self.auth_failures, "unverified"),
            Refusal::Forbidden | Refusal::Insufficient => (&self.auth_failures, "forbidden"),
            Refusal::Address => (&self.auth_failures, "address"),
            Refusal::Host => (&self.auth_failures, "host"),
            Refusal::Origin => (&self.auth_failures, "origin"),
            Refusal::Headers => (&self.refusals, "headers"),
            Refusal::Ambiguous => (&self.refusals, "ambiguous"),
            Refusal::Method => (&self.refusals, "method"),
            Refusal::Size => (&self.refusals, "size"),
            Refusal::Encoding => (&self.refusals, "encoding"),
            Refusal::Rate => (&self.refusals, "rate"),
            Refusal::InFlight => (&self.refusals, "in_flight"),
            Refusal::Slow => (&self.refusals, "slow"),
            Refusal::Path => (&self.refusals, "path"),
        };
        family.get_or_create_owned(&ByReason { reason })
    }

    /// Whether a file of the configuration cannot be used as it is now.
    pub(crate) fn unusable(&self, file: &'static str, unusable: bool) {
        let labels = ByFile { file };
        self.unusable_files
            .get_or_create(&labels)
            .set(unusable.into());
    }

    /// This operation of the platform is served.
    pub(crate) fn operates(&self, operation: &str) {
        for &outcome in OpError::CODES.iter().chain(&[DONE]) {
            let operation = operation.to_owned();
            let labels = ByOperation { operation, outcome };
            drop(self.operations.get_or_create(&labels));
        }
    }

    /// An operation of the platform ended.
    pub(crate) fn operated(&self, operation: &str, outcome: &'static str) {
        let operation = operation.to_owned();
        let labels = ByOperation { operation, outcome };
        self.operations.get_or_create(&labels).inc();
    }

    /// The label of a group.
    fn series(&self, group: &GroupName) -> String {
        let label = group.to_string();
        if self.is_known(&label) {
            return label;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_GROUPS {
            return OTHER.to_owned();
        }
        known.insert(label.clone());
        label
    }

    fn is_known(&self, label: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.contains(label)
    }

    /// The text of `/metrics`, with what the groups are now. Groups that went take their series along.
    pub(crate) fn text(&self, groups: &Groups) -> String {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let all = groups.all();
        let names: HashSet<String> = all.iter().map(|group| group.name.to_string()).collect();
        let mut gone: Vec<String> = Vec::new();
        self.known
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|label| {
                let stays = names.contains(label);
                if !stays {
                    gone.push(label.clone());
                }
                stays
            });
        for label in gone {
            self.forget(&label);
        }
        self.groups.set(count(all.len()));
        self.workers.clear();
        self.upstreams.clear();
        for group in &all {
            let label = self.series(&group.name);
            let workers = group.pool.workers();
            let aside = workers.iter().filter(|one| one.stands_aside()).count();
            for (state, number) in [("ready", workers.len() - aside), ("aside", aside)] {
                let group = label.clone();
                let labels = ByState { group, state };
                self.workers.get_or_create(&labels).inc_by(count(number));
            }
            for upstream in group.upstreams.status() {
                let state = match upstream["state"].as_str() {
                    Some("up") => "up",
                    Some("connecting") => "connecting",
                    _ => "down",
                };
                let group = label.clone();
                self.upstreams
                    .get_or_create(&ByState { group, state })
                    .inc();
            }
            if label != OTHER {
                let ejections = self.ejections.get_or_create(&ByGroup { group: label });
                ejections
                    .inner()
                    .store(group.pool.ejections(), Ordering::Relaxed);
            }
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn forget(&self, label: &str) {
        let group = || label.to_owned();
        self.ejections.remove(&ByGroup { group: group() });
        for era in ERAS {
            for outcome in Outcome::ALL.map(Outcome::label) {
                let group = group();
                self.requests.remove(&ByCall {
                    group,
                    era,
                    outcome,
                });
            }
        }
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A request under way.
pub(crate) struct Running {
    metrics: Arc<Metrics>,
    group: String,
    begin: Instant,
    ended: bool,
}

impl Running {
    /// It ended with this answer.
    pub(crate) fn end(mut self, answer: &Answer) {
        self.ended = true;
        self.count(outcome::era_of(answer), Outcome::of(answer));
        self.metrics.judged(answer);
    }

    fn count(&mut self, era: &'static str, outcome: Outcome) {
        let group = std::mem::take(&mut self.group);
        let outcome = outcome.label();
        let labels = ByCall {
            group,
            era,
            outcome,
        };
        self.metrics.requests.get_or_create(&labels).inc();
        if outcome != Outcome::Listening.label() {
            let duration = self.metrics.duration.get_or_create(&ByEra { era });
            duration.observe(self.begin.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if !self.ended {
            self.count(NO_ERA, Outcome::Cancelled);
        }
    }
}

/// One more of something, until this is dropped.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
