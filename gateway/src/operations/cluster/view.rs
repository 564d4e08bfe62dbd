//! Groups and events of a cluster as the operations show them.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use ramen_crds::labels::{CHANGED_AT, CHANGED_BY, condition};
use ramen_crds::{McpGroup, McpGroupStatus};
use serde_json::{Value, json};

use super::Guarded;

/// Events that are shown.
const SHOWN: usize = 100;

/// One group in a list.
pub(super) fn brief(guarded: &Guarded) -> Value {
    match &guarded.0 {
        Ok(group) => of(group),
        Err(invalid) => json!({
            "group": format!(
                "{}/{}",
                invalid.metadata.namespace.as_deref().unwrap_or_default(),
                invalid.metadata.name.as_deref().unwrap_or_default()
            ),
            "ready": false,
            "message": format!("the object is no McpGroup: {}", invalid.error),
        }),
    }
}

fn of(group: &McpGroup) -> Value {
    let status = group.status.clone().unwrap_or_default();
    let (ready, reason, message) = stands(&status);
    json!({
        "group": name_of(group),
        "ready": ready,
        "reason": reason,
        "message": message,
        "revision": status.revision.and_then(|revision| revision.serving),
        "tools": status.tools.unwrap_or_default(),
        "errors": status.errors_total.unwrap_or_default(),
        "replicas": status.replicas,
        "suspended": group.spec.source.suspend,
    })
}

/// One group in full.
pub(super) fn full(group: &McpGroup) -> Value {
    let mut shown = of(group);
    let status = group.status.clone().unwrap_or_default();
    let source = &group.spec.source;
    let more = json!({
        "generation": group.metadata.generation,
        "observedGeneration": status.observed_generation,
        "source": { "url": ramen_redact::mask_urls(&source.url), "ref": source.reference, "path": source.path },
        "revisions": status.revision,
        "packages": status.packages,
        "zones": status.zones,
        "lastDeploy": status.last_deploy,
        "conditions": status.conditions,
        "changedBy": group.annotations().get(CHANGED_BY),
        "changedAt": group.annotations().get(CHANGED_AT),
    });
    if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
        shown.extend(more);
    }
    shown
}

/// Namespace and name.
pub(super) fn name_of(group: &McpGroup) -> String {
    format!(
        "{}/{}",
        group.namespace().unwrap_or_default(),
        group.name_any()
    )
}

/// Whether it serves, and the condition's own words.
fn stands(status: &McpGroupStatus) -> (bool, &str, &str) {
    let of_kind = |kind: &str| -> Option<&Condition> {
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.type_ == kind)
    };
    match of_kind(condition::READY) {
        Some(ready) => (ready.status == "True", &ready.reason, &ready.message),
        None => (
            false,
            "NotSeenYet",
            "no operator has looked at it yet; is one running that watches this namespace?",
        ),
    }
}

/// The newest events, newest first.
pub(super) fn events(events: &[Event]) -> Vec<Value> {
    let mut timed: Vec<_> = events.iter().map(|event| (at(event), event)).collect();
    timed.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let newest = timed.into_iter().take(SHOWN);
    newest
        .map(|(at, event)| {
            let series = event.series.as_ref().and_then(|series| series.count);
            json!({
                "unixMs": at,
                "type": event.type_,
                "reason": event.reason,
                "message": event.message,
                "count": series.or(event.count).unwrap_or(1),
                "by": event.reporting_component,
            })
        })
        .collect()
}

/// When it was seen last, in milliseconds.
fn at(event: &Event) -> i64 {
    let series = event.series.as_ref();
    let seen = series
        .and_then(|series| series.last_observed_time.as_ref())
        .or(event.event_time.as_ref())
        .map(|time| time.0);
    let seen = seen.or_else(|| event.last_timestamp.as_ref().map(|time| time.0));
    let seen = seen.or_else(|| {
        event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0)
    });
    seen.map_or(0, Timestamp::as_millisecond)
}
