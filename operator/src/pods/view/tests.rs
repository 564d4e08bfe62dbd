use serde_json::{Value, json};

use super::super::tests::pod;
use super::*;

fn trouble_of(status: &Value) -> Option<Trouble> {
    PodView::of(&pod("p", &json!({}), status))
        .trouble
        .map(|trouble| *trouble)
}

fn container(state: &Value, last: &Value) -> Value {
    json!({
        "phase": "Running",
        "containerStatuses": [{"restartCount": 2, "state": state, "lastState": last}],
    })
}

fn waiting(reason: &str) -> Value {
    container(
        &json!({"waiting": {"reason": reason, "message": "pull access denied"}}),
        &json!({}),
    )
}

#[test]
fn each_trouble_of_a_pod_has_a_reason_and_says_what_to_do() {
    let terminated =
        |reason: &str, code: i32| json!({"terminated": {"reason": reason, "exitCode": code}});
    let crash = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    let unplaced = json!({
        "phase": "Pending",
        "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory.",
        }],
    });
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"});
    let over = "Pod ephemeral local storage usage exceeds the total limit of containers 256Mi. ";
    let filled = json!({"phase": "Failed", "reason": "Evicted", "message": over});
    let cases = [
        (
            waiting("ImagePullBackOff"),
            "ImagePullBackOff",
            "check worker.image",
            TroubleKind::Waits,
        ),
        (
            waiting("ErrImageNeverPull"),
            "ErrImageNeverPull",
            "check worker.image",
            TroubleKind::Stuck,
        ),
        (
            waiting("CreateContainerConfigError"),
            "CreateContainerConfigError",
            "pull access denied",
            TroubleKind::Waits,
        ),
        (
            container(&crash, &terminated("OOMKilled", 137)),
            "OOMKilled",
            "raise the memory limit",
            TroubleKind::Died,
        ),
        (
            container(&crash, &terminated("Error", 3)),
            "CrashLoopBackOff",
            "exit code 3",
            TroubleKind::Died,
        ),
        (
            container(&crash, &json!({})),
            "CrashLoopBackOff",
            "look at its log",
            TroubleKind::Died,
        ),
        (
            container(&terminated("Error", 137), &json!({})),
            "Killed",
            "SIGKILL",
            TroubleKind::Died,
        ),
        (
            unplaced,
            "Unschedulable",
            "Insufficient memory.; add nodes",
            TroubleKind::Unplaced,
        ),
        (evicted, "Evicted", "low on disk", TroubleKind::Ended),
        (
            filled,
            "Evicted",
            "raise the limit of ephemeral-storage in zones[].resources",
            TroubleKind::Ended,
        ),
    ];
    for (status, reason, words, kind) in cases {
        let trouble = trouble_of(&status).unwrap();
        assert_eq!((trouble.reason.as_str(), trouble.kind), (reason, kind));
        assert!(trouble.message.contains(words), "{}", trouble.message);
    }
}

#[test]
fn a_pod_on_its_way_or_well_has_no_trouble() {
    let running = container(
        &json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        &json!({
            "terminated": {"reason": "OOMKilled", "exitCode": 137},
        }),
    );
    let ended_well = container(
        &json!({"terminated": {"reason": "Completed", "exitCode": 0}}),
        &json!({}),
    );
    for status in [waiting("ContainerCreating"), running, ended_well, json!({})] {
        assert_eq!(trouble_of(&status), None, "{status}");
    }
}

#[test]
fn what_a_container_printed_is_in_no_message() {
    let said = json!({"terminated": {"reason": "Error", "exitCode": 1, "message": "TOKEN=s3cret"}});
    let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let trouble = trouble_of(&container(&crash, &said)).unwrap();
    assert!(!trouble.message.contains("s3cret"), "{}", trouble.message);
}

#[test]
fn a_pod_that_leaves_is_not_asked_and_not_ready() {
    let status = json!({
        "phase": "Running", "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    let mut leaving = pod("p", &json!({"ramen.dev/zone": "a"}), &status);
    let view = PodView::of(&leaving);
    assert!(view.ready && view.address.is_some() && view.zone.as_deref() == Some("a"));
    leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
    let view = PodView::of(&leaving);
    assert!(view.leaving && !view.ready && view.address.is_none());
}

#[test]
fn ops06_refusals_of_the_api_server_have_a_reason_and_say_what_to_do() {
    for (message, reason, words) in [
        (
            "pods \"calc-a\" is forbidden: exceeded quota: all, requested: pods=1, used: pods=0, limited: pods=0",
            "QuotaExceeded",
            "raise the ResourceQuota",
        ),
        (
            "pods \"calc-a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
            "PodSecurityRefused",
            "Pod Security level",
        ),
        (
            "pods \"calc-a\" is forbidden: no PriorityClass with name high was found",
            "PodRefused",
            "worker.priorityClassName",
        ),
        (
            "admission webhook \"policy\" denied the request",
            "PodRefused",
            "denied the request",
        ),
    ] {
        let (found, told) = refusal(message);
        assert_eq!(found, reason);
        assert!(told.contains(words), "{told}");
    }
    assert!(refusal(&"x".repeat(9000)).1.len() < 500);
}

#[test]
fn how_often_its_container_ended_and_when_last_is_known() {
    let last = json!({"terminated": {
        "reason": "Error", "exitCode": 1, "finishedAt": "2026-01-01T00:00:10Z",
    }});
    let running = json!({"running": {}});
    let ended = |last: &Value| {
        let view = PodView::of(&pod("p", &json!({}), &container(&running, last)));
        (view.restarts, view.ended)
    };
    assert_eq!(ended(&last), (2, Some(1_767_225_610)));
    assert_eq!(ended(&json!({})), (2, None));
}
