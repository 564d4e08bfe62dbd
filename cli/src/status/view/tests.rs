use serde_json::{Value, json};

use super::*;

pub(in crate::status) fn group(status: &Value) -> McpGroup {
    serde_json::from_value(json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {
            "name": "demo", "namespace": "team-a", "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"ramen.dev/requested-at": "run 7", "ramen.dev/hinted-at": "2026-01-02T03:04:05Z"},
        },
        "spec": {"source": {"url": "https://git.example.com/demo.git"}, "network": {"allowedCIDRs": ["10.0.0.0/8"]}},
        "status": status,
    }))
    .unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 3,
    })
}

fn with_conditions(generation: i64, conditions: &[Value]) -> Summary {
    Summary::of(&group(&json!({
        "observedGeneration": generation, "conditions": conditions,
    })))
}

#[test]
fn ready_means_true_for_the_newest_spec_of_a_group_that_stays() {
    let ready = || condition("Ready", "True", "Serving", "all pods serve");
    let good = with_conditions(3, &[ready()]);
    assert!(good.ready);
    assert_eq!(
        (good.message.as_str(), good.reason.as_str()),
        ("", "Serving")
    );

    let behind = with_conditions(2, &[ready()]);
    assert!(!behind.ready);
    assert!(
        behind.message.contains("newest change of the spec"),
        "{behind:?}"
    );

    let mut leaving = group(&json!({"observedGeneration": 3, "conditions": [ready()]}));
    leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
    let leaving = Summary::of(&leaving);
    assert_eq!(
        (leaving.ready, leaving.message.as_str()),
        (false, "is being removed")
    );

    let unseen = Summary::of(&group(&json!({})));
    assert!(!unseen.ready);
    assert!(unseen.message.contains("no operator"), "{unseen:?}");
}

#[test]
fn what_is_wrong_comes_before_what_is_under_way() {
    let ready = condition(
        "Ready",
        "True",
        "LastGoodServes",
        "the last good revision serves",
    );
    let under_way = condition("Reconciling", "True", "Deploying", "main@2 is deployed");
    let broken = condition("Deployed", "False", "ImportFailed", "main@2 was refused");
    let fine = condition("SourceFetched", "True", "Fetched", "asked");
    let busy = with_conditions(3, &[ready.clone(), under_way.clone(), fine.clone()]);
    assert_eq!(busy.message, "serves; main@2 is deployed");
    let both = with_conditions(3, &[ready, under_way, fine, broken]);
    assert_eq!(both.message, "serves, but ImportFailed: main@2 was refused");
    let stuck = condition(
        "Ready",
        "False",
        "SecretMissing",
        "the Secret `keys` is missing",
    );
    assert_eq!(
        with_conditions(3, &[stuck]).message,
        "the Secret `keys` is missing"
    );
}

#[test]
fn every_error_has_its_fix_and_an_unknown_reason_is_kept() {
    let group = group(&json!({
        "errors": [
            {"package": "tools/a", "reason": "ImportFailed", "message": "no module x", "path": "mcp/tools/a/a.py", "line": 3},
            {"reason": "FromTheFuture", "message": "?"},
        ],
        "errorsTotal": 60,
    }));
    let detail = Detail::of(&group, &[], &[], Vec::new());
    assert_eq!(detail.group.errors_total, 60);
    assert_eq!(detail.errors[0].fix, Reason::ImportFailed.fix());
    assert_eq!(
        detail.errors[0].see.as_deref(),
        Some("docs/reference/errors.md#importfailed")
    );
    assert_eq!(detail.errors[1].told.reason, "FromTheFuture");
    assert_eq!(
        (detail.errors[1].fix, &detail.errors[1].see),
        (Reason::Unknown.fix(), &None)
    );
    // Every address of the page is one that the page has.
    let page = ramen_group::errors_page();
    for reason in Reason::ALL {
        let anchor = reason.as_str().to_lowercase();
        assert!(page.contains(&format!("<a id=\"{anchor}\">")), "{anchor}");
    }
}

fn pod(name: &str, zone: &str, status: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"ramen.dev/zone": zone}},
        "spec": {"containers": [], "nodeName": "n1"},
        "status": status,
    }))
    .unwrap()
}

#[test]
fn a_pod_says_why_it_is_not_ready_and_its_revision_only_where_it_is_certain() {
    let group = group(&json!({
        "revision": {"serving": "main@sha1:01"},
        "zones": [
            {"name": "eu", "replicas": 1, "ready": 1, "updated": 1},
            {"name": "us", "replicas": 2, "ready": 2, "updated": 1},
        ],
    }));
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
        {"name": "w", "image": "", "imageID": "", "ready": true, "restartCount": 2},
    ]});
    let waiting = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}], "containerStatuses": [
        {"name": "w", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
    ]});
    let unscheduled = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
    ]});
    let pods = [
        pod("d", "us", &unscheduled),
        pod("c", "us", &waiting),
        pod("b", "us", &ready),
        pod("a", "eu", &ready),
    ];
    let detail = Detail::of(&group, &pods, &[], Vec::new());
    let seen: Vec<_> = detail
        .pods
        .iter()
        .map(|pod| {
            (
                &*pod.name,
                pod.ready,
                pod.revision.as_deref(),
                pod.restarts,
                &*pod.message,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a", true, Some("main@sha1:01"), 2, ""),
            // One of the two pods of this zone still serves something else.
            ("b", true, None, 2, ""),
            ("c", false, None, 0, "ImagePullBackOff: no such image"),
            ("d", false, None, 0, "Unschedulable: 0/3 nodes"),
        ]
    );
}

#[test]
fn the_newest_events_are_shown_the_newest_last() {
    let events: Vec<Event> = (0..15)
        .map(|n| {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": format!("R{n}"), "type": "Normal",
                "eventTime": format!("2026-01-01T00:00:{:02}.000000Z", (n * 7) % 15),
            }))
            .unwrap()
        })
        .collect();
    let shown = newest(in_order(&events));
    assert_eq!(shown.len(), EVENTS);
    assert!(shown.is_sorted_by_key(|view| view.at));
    assert_eq!(shown.last().unwrap().reason, "R2", "7 * 2 is second 14");
}

#[test]
fn who_asked_is_told_as_the_object_has_it() {
    let group = group(&json!({"lastRequestedAt": "run 7"}));
    let asked = Detail::of(&group, &[], &[], Vec::new()).asked;
    assert_eq!(asked.requested, asked.acted_on);
    assert_eq!(asked.hinted.as_deref(), Some("2026-01-02T03:04:05Z"));
}

#[test]
fn the_last_hook_is_known_from_its_event_where_no_replica_has_marked_the_group() {
    let event = |reason: &str, at: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {}, "involvedObject": {}, "reason": reason, "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": {"count": 3, "lastObservedTime": at},
        }))
        .unwrap()
    };
    let mut all = vec![
        event("HookReceived", "2026-01-03T00:00:07.250000Z"),
        event("HookReceived", "2026-01-03T00:00:01.000000Z"),
    ];
    // Not crowded out by others that came later.
    all.extend((0..EVENTS).map(|_| event("Deployed", "2026-01-03T01:00:00.000000Z")));
    let hinted = |group: &McpGroup, events: &[Event]| {
        Detail::of(group, &[], events, Vec::new()).asked.hinted
    };
    let marked = group(&json!({}));
    let mut unmarked = marked.clone();
    unmarked.metadata.annotations = None;
    let newest = Some("2026-01-03T00:00:07Z".to_owned());
    assert_eq!(hinted(&unmarked, &all), newest);
    assert_eq!(hinted(&marked, &all), newest);
    assert_eq!(hinted(&unmarked, &[]), None);
    // A mark that is newer than what the cluster remembers of events.
    let early = [event("HookReceived", "2026-01-01T00:00:00.000000Z")];
    assert_eq!(
        hinted(&marked, &early).as_deref(),
        Some("2026-01-02T03:04:05Z")
    );
}
