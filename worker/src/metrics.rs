//! Every metric of the worker, registered here and nowhere else. No label has a value that a group
//! or a caller chose.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::gate::Refusal;
use crate::hosts::{Death, EndCause};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// With a response that the caller wanted.
    Ok,
    /// With an error of the tool.
    ToolError,
    /// Without a result within its time.
    Deadline,
    /// The caller went away.
    Cancelled,
    /// Its host was lost, or none was there.
    HostLost,
    /// The request or the response was too large, or not gRPC.
    BadTransport,
}

impl CallOutcome {
    const ALL: [Self; 6] = [
        Self::Ok,
        Self::ToolError,
        Self::Deadline,
        Self::Cancelled,
        Self::HostLost,
        Self::BadTransport,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::HostLost => "host_lost",
            Self::BadTransport => "bad_transport",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

/// Why host processes are replaced.
const CAUSES: [&str; 7] = [
    "exited", "signal", "channel", "overdue", "memory", "recycled", "load",
];

/// The metrics of one worker.
pub struct Metrics {
    registry: Registry,
    /// By [`CallOutcome::ALL`], looked up once.
    calls: Vec<Counter>,
    refusals: Vec<Counter>,
    seconds: Histogram,
    restarts: Family<ByCause, Counter>,
    reloads: Family<ByOutcome, Counter>,
    in_flight: Gauge,
    hosts: Gauge,
    generation: Gauge<u64, AtomicU64>,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Open sessions.
    pub(crate) sessions: Gauge,
    /// Whether the certificate could not be renewed.
    pub(crate) certificate_stale: Gauge,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("ramen");
        let calls = Family::<ByOutcome, Counter>::default();
        let refusals = Family::<ByReason, Counter>::default();
        let seconds = Histogram::new([
            0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
            5.0, 10.0, 30.0, 120.0,
        ]);
        let restarts = Family::<ByCause, Counter>::default();
        let reloads = Family::<ByOutcome, Counter>::default();
        let in_flight = Gauge::default();
        let hosts = Gauge::default();
        let generation = Gauge::<u64, AtomicU64>::default();
        let connections = Gauge::default();
        let sessions = Gauge::default();
        let certificate_stale = Gauge::default();
        registry.register(
            "calls",
            "Calls of tools and resources by how they ended (ok, tool_error, deadline, cancelled, host_lost, bad_transport)",
            calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Time from the request to the response of calls of tools and resources",
            Unit::Seconds,
            seconds.clone(),
        );
        registry.register(
            "gate_refusals",
            "Calls turned away by the gate (no_key, wrong_key, address, full)",
            refusals.clone(),
        );
        registry.register(
            "host_restarts",
            "Host processes that were replaced, by why the old one ended (exited, signal, channel, overdue, memory, recycled, load)",
            restarts.clone(),
        );
        registry.register(
            "reloads",
            "Revisions that were to be loaded (ok, refused)",
            reloads.clone(),
        );
        registry.register("in_flight", "Calls in flight", in_flight.clone());
        registry.register(
            "hosts_ready",
            "Host processes that take calls",
            hosts.clone(),
        );
        registry.register(
            "generation",
            "Number of the generation that serves",
            generation.clone(),
        );
        registry.register("connections", "Open connections", connections.clone());
        registry.register("sessions", "Open sessions", sessions.clone());
        registry.register(
            "certificate_stale",
            "1 while the renewed certificate cannot be used and the one before goes on",
            certificate_stale.clone(),
        );
        // A series that begins with its first event shows no increase: what alerts ask for is there before.
        for cause in CAUSES {
            drop(restarts.get_or_create(&ByCause { cause }));
        }
        for outcome in ["ok", "refused"] {
            drop(reloads.get_or_create(&ByOutcome { outcome }));
        }
        let calls = CallOutcome::ALL.map(|outcome| {
            calls
                .get_or_create(&ByOutcome {
                    outcome: outcome.label(),
                })
                .clone()
        });
        let refusals = Refusal::ALL.map(|refusal| {
            refusals
                .get_or_create(&ByReason {
                    reason: refusal.label(),
                })
                .clone()
        });
        Arc::new(Self {
            registry,
            calls: calls.into(),
            refusals: refusals.into(),
            seconds,
            restarts,
            reloads,
            in_flight,
            hosts,
            generation,
            connections,
            sessions,
            certificate_stale,
        })
    }

    pub(crate) fn call(&self, outcome: CallOutcome, elapsed: Duration) {
        if let Some(counter) = self.calls.get(outcome as usize) {
            counter.inc();
        }
        self.seconds.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        if let Some(counter) = self.refusals.get(refusal as usize) {
            counter.inc();
        }
    }

    pub(crate) fn restarted(&self, death: &Death) {
        if let Some(cause) = cause(death) {
            self.restarts.get_or_create(&ByCause { cause }).inc();
        }
    }

    pub(crate) fn reloaded(&self, ok: bool) {
        let outcome = if ok { "ok" } else { "refused" };
        self.reloads.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// The text of `/metrics`, with what is counted elsewhere filled in.
    pub(crate) fn text(&self, in_flight: usize, hosts: usize, generation: u64) -> String {
        self.in_flight
            .set(i64::try_from(in_flight).unwrap_or(i64::MAX));
        self.hosts.set(i64::try_from(hosts).unwrap_or(i64::MAX));
        self.generation.set(generation);
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Why a host was replaced; `None`: it was not.
fn cause(death: &Death) -> Option<&'static str> {
    Some(match death {
        Death::Exited(_) => "exited",
        Death::Signalled(_) => "signal",
        Death::Channel(_) => "channel",
        Death::Ended(EndCause::Overdue) => "overdue",
        Death::Ended(EndCause::Memory | EndCause::Budget { .. }) => "memory",
        Death::Ended(EndCause::Recycled) => "recycled",
        Death::Ended(EndCause::Load) => "load",
        Death::Ended(EndCause::Retired) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_stands_in_the_text() {
        let metrics = Metrics::new();
        metrics.call(CallOutcome::ToolError, Duration::from_millis(3));
        metrics.refused(Refusal::Address);
        metrics.restarted(&Death::Exited(9));
        metrics.restarted(&Death::Ended(EndCause::Retired));
        metrics.reloaded(false);
        let text = metrics.text(4, 2, 7);
        for line in [
            "ramen_calls_total{outcome=\"tool_error\"} 1",
            "ramen_calls_total{outcome=\"ok\"} 0",
            "ramen_gate_refusals_total{reason=\"address\"} 1",
            "ramen_host_restarts_total{cause=\"exited\"} 1",
            "ramen_host_restarts_total{cause=\"memory\"} 0",
            "ramen_reloads_total{outcome=\"refused\"} 1",
            "ramen_call_duration_seconds_count 1",
            "ramen_in_flight 4",
            "ramen_generation 7",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("retired"));
    }

    #[test]
    fn every_value_of_a_label_stands_in_the_help() {
        let metrics = Metrics::new();
        // Without a value there is no help.
        metrics.restarted(&Death::Exited(1));
        let text = metrics.text(0, 0, 0);
        let listed = |metric: &str| {
            let start = format!("# HELP {metric} ");
            let help = text.lines().find(|line| line.starts_with(&start)).unwrap();
            help.split(['(', ')']).nth(1).unwrap().to_owned()
        };
        let outcomes = CallOutcome::ALL.map(CallOutcome::label);
        assert_eq!(listed("ramen_calls"), outcomes.join(", "));
        let reasons = Refusal::ALL.map(Refusal::label);
        assert_eq!(listed("ramen_gate_refusals"), reasons.join(", "));
        let deaths = [
            Death::Exited(0),
            Death::Signalled(9),
            Death::Channel("x".into()),
            Death::Ended(EndCause::Overdue),
            Death::Ended(EndCause::Memory),
            Death::Ended(EndCause::Recycled),
            Death::Ended(EndCause::Load),
        ];
        let causes: Vec<_> = deaths.iter().filter_map(cause).collect();
        assert_eq!(listed("ramen_host_restarts"), causes.join(", "));
    }
}
