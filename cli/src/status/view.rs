//! What the objects of a group mean. Pure: the cluster is read elsewhere.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use ramen_crds::labels::{self, condition};
use ramen_crds::{ErrorEntry, LastDeploy, McpGroup, RevisionStatus, ZoneStatus};
use ramen_group::Reason;
use serde::Serialize;

/// The address of the page that says what to do about each reason.
const ERRORS_PAGE: &str = "docs/reference/errors.md";
/// Events of a group that are shown, the newest.
const EVENTS: usize = 10;

/// Every group of a list.
#[derive(Debug, Serialize)]
pub(super) struct Groups {
    pub(super) groups: Vec<Summary>,
}

/// One group as a line.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `Ready` is true, of the newest spec, and nobody removes it.
    pub(super) ready: bool,
    /// The status of `Ready` as it is written.
    pub(super) status: String,
    pub(super) reason: String,
    /// What is wrong or under way; empty when nothing is.
    pub(super) message: String,
    pub(super) tools: Option<u32>,
    /// Entries of the errors list, those that the status has no room for included.
    pub(super) errors_total: u32,
    pub(super) revision: RevisionStatus,
    pub(super) replicas: Option<String>,
    pub(super) created: Option<Time>,
}

/// One group with everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Detail {
    #[serde(flatten)]
    pub(super) group: Summary,
    pub(super) url: String,
    pub(super) errors: Vec<Entry>,
    pub(super) packages: Vec<Package>,
    pub(super) conditions: Vec<Condition>,
    pub(super) zones: Vec<ZoneStatus>,
    pub(super) pods: Vec<PodView>,
    pub(super) last_deploy: Option<LastDeploy>,
    pub(super) asked: Asked,
    pub(super) events: Vec<EventView>,
    /// What could not be read, and why; the rest is told all the same.
    pub(super) unread: Vec<String>,
}

/// An entry of the errors list with what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) told: ErrorEntry,
    pub(super) fix: &'static str,
    /// Where the page of errors has the reason; nothing for a reason that this program does not know.
    pub(super) see: Option<String>,
}

/// A package of the serving revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Package {
    pub(super) kind: String,
    pub(super) name: String,
    /// Whether it serves.
    pub(super) ok: bool,
}

/// Who asked the operator to look, as far as the object tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// `ramen.dev/requested-at`: by a person or a pipeline.
    pub(super) requested: Option<String>,
    /// The last of these that was acted on.
    pub(super) acted_on: Option<String>,
    /// By a webhook, as far as the cluster remembers.
    pub(super) hinted: Option<String>,
}

/// A worker pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodView {
    pub(super) name: String,
    pub(super) zone: String,
    pub(super) ready: bool,
    /// What it serves, where that is certain: all pods of its zone serve the same.
    pub(super) revision: Option<String>,
    pub(super) restarts: i32,
    pub(super) node: Option<String>,
    pub(super) created: Option<Time>,
    /// Why it is not ready.
    pub(super) message: String,
}

/// An event of the group.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventView {
    pub(super) at: Option<Timestamp>,
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) count: i32,
}

impl Summary {
    /// A group that this version cannot read: the cluster has another version of the kind.
    pub(super) fn unreadable(metadata: &ObjectMeta, why: &str) -> Self {
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            status: "Unknown".to_owned(),
            message: format!("cannot be read by this version of ramen: {why}"),
            created: metadata.creation_timestamp.clone(),
            ..Self::default()
        }
    }

    pub(super) fn of(group: &McpGroup) -> Self {
        let status = group.status.clone().unwrap_or_default();
        let metadata = &group.metadata;
        let ready = find(&status.conditions, condition::READY);
        let is_true = ready.is_some_and(|ready| ready.status == "True");
        let leaving = metadata.deletion_timestamp.is_some();
        let current = status.observed_generation >= metadata.generation;
        let errors = u32::try_from(status.errors.len()).unwrap_or(u32::MAX);
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            ready: is_true && current && !leaving,
            status: ready.map_or("Unknown", |ready| &ready.status).to_owned(),
            reason: ready.map_or_else(String::new, |ready| ready.reason.clone()),
            message: message(&status.conditions, leaving, current),
            tools: status.tools,
            errors_total: status.errors_total.unwrap_or(errors),
            revision: status.revision.unwrap_or_default(),
            replicas: status.replicas,
            created: metadata.creation_timestamp.clone(),
        }
    }
}

/// What a person has to know, in one sentence: what is wrong first, then what is under way.
fn message(conditions: &[Condition], leaving: bool, current: bool) -> String {
    if leaving {
        return "is being removed".to_owned();
    }
    let Some(ready) = find(conditions, condition::READY) else {
        return "no operator has looked at it yet; is one running that watches this namespace?"
            .to_owned();
    };
    if ready.status != "True" {
        return ready.message.clone();
    }
    if !current {
        return "serves; the newest change of the spec was not looked at yet".to_owned();
    }
    let checked = [
        condition::SOURCE_FETCHED,
        condition::DEPLOYED,
        condition::WORKERS_AVAILABLE,
    ];
    let wrong = checked
        .iter()
        .filter_map(|kind| find(conditions, kind))
        .find(|condition| condition.status == "False");
    if let Some(wrong) = wrong {
        return format!("serves, but {}: {}", wrong.reason, wrong.message);
    }
    find(conditions, condition::RECONCILING).map_or_else(String::new, |under_way| {
        format!("serves; {}", under_way.message)
    })
}

fn find<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

impl Detail {
    pub(super) fn of(
        group: &McpGroup,
        pods: &[Pod],
        events: &[Event],
        unread: Vec<String>,
    ) -> Self {
        let status = group.status.clone().unwrap_or_default();
        let annotation = |name: &str| group.metadata.annotations.as_ref()?.get(name).cloned();
        let summary = Summary::of(group);
        let serving = summary.revision.serving.as_deref();
        let mut pods: Vec<PodView> = pods
            .iter()
            .map(|pod| PodView::of(pod, &status.zones, serving))
            .collect();
        pods.sort_by(|a, b| (&a.zone, &a.name).cmp(&(&b.zone, &b.name)));
        let events = in_order(events);
        Self {
            group: summary,
            url: group.spec.source.url.clone(),
            errors: status.errors.iter().map(Entry::of).collect(),
            packages: status
                .packages
                .iter()
                .map(|package| Package {
                    kind: package.kind.clone(),
                    name: package.name.clone(),
                    ok: package.ok,
                })
                .collect(),
            conditions: status.conditions,
            zones: status.zones,
            pods,
            last_deploy: status.last_deploy,
            asked: Asked {
                requested: annotation(labels::REQUESTED_AT),
                acted_on: status.last_requested_at,
                hinted: hinted(annotation(labels::HINTED_AT), &events),
            },
            events: newest(events),
            unread,
        }
    }
}

impl Entry {
    fn of(entry: &ErrorEntry) -> Self {
        // Every word deserializes: one of a newer operator is `Unknown`.
        let reason: Reason =
            serde_json::from_value(entry.reason.clone().into()).unwrap_or(Reason::Unknown);
        Self {
            told: entry.clone(),
            fix: reason.fix(),
            see: (reason != Reason::Unknown)
                .then(|| format!("{ERRORS_PAGE}#{}", entry.reason.to_lowercase())),
        }
    }
}

impl PodView {
    fn of(pod: &Pod, zones: &[ZoneStatus], serving: Option<&str>) -> Self {
        let label = |name: &str| pod.metadata.labels.as_ref()?.get(name).cloned();
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let zone = label(labels::LABEL_ZONE).unwrap_or_default();
        let same = zones
            .iter()
            .any(|known| known.name == zone && known.updated >= known.replicas);
        // The container's own words come first: `ImagePullBackOff` says more than `ContainersNotReady`.
        let waiting = containers.iter().find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            Some((waiting.reason.clone(), waiting.message.clone()))
        });
        let scheduled = conditions
            .iter()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        let why = waiting
            .or_else(|| scheduled.map(|c| (c.reason.clone(), c.message.clone())))
            .or_else(|| ready.map(|c| (c.reason.clone(), c.message.clone())))
            .filter(|_| !is_ready);
        let mut message = why.map_or_else(String::new, |(reason, message)| {
            let parts: Vec<String> = [reason, message].into_iter().flatten().collect();
            parts.join(": ")
        });
        if pod.metadata.deletion_timestamp.is_some() {
            "is being removed".clone_into(&mut message);
        } else if !is_ready && message.is_empty() {
            message = status.phase.unwrap_or_else(|| "Pending".to_owned());
        }
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            zone,
            ready: is_ready,
            revision: serving.filter(|_| same && is_ready).map(str::to_owned),
            restarts: containers.iter().map(|c| c.restart_count).sum(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            created: pod.metadata.creation_timestamp.clone(),
            message,
        }
    }
}

/// When a webhook asked last. Every hook leaves an event, which the cluster forgets after a while; one that reached a replica
/// without the lease leaves the time on the group too.
fn hinted(mark: Option<String>, events: &[EventView]) -> Option<String> {
    let mut hooks = events.iter().rev();
    let event = hooks.find(|event| event.reason == labels::HOOK_RECEIVED);
    let marked: Option<Timestamp> = mark
        .as_deref()
        .and_then(|mark| mark.split(' ').next()?.parse().ok());
    match event.and_then(|event| event.at) {
        Some(at) if marked.is_none_or(|marked| marked < at) => {
            Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        }
        _ => mark,
    }
}

/// The newest of events in order.
fn newest(mut events: Vec<EventView>) -> Vec<EventView> {
    let older = events.len().saturating_sub(EVENTS);
    events.split_off(older)
}

/// Events, the newest last.
fn in_order(events: &[Event]) -> Vec<EventView> {
    let mut views: Vec<EventView> = events
        .iter()
        .map(|event| {
            let series = event.series.as_ref();
            let seen = series
                .and_then(|series| series.last_observed_time.as_ref())
                .or(event.event_time.as_ref())
                .map(|time| time.0);
            EventView {
                at: seen.or(event.last_timestamp.as_ref().map(|time| time.0)),
                kind: event.type_.clone().unwrap_or_default(),
                reason: event.reason.clone().unwrap_or_default(),
                message: event.message.clone().unwrap_or_default(),
                count: series
                    .and_then(|series| series.count)
                    .or(event.count)
                    .unwrap_or(1),
            }
        })
        .collect();
    views.sort_by_key(|view| view.at);
    views
}

#[cfg(test)]
pub(in crate::status) mod tests;
