//! `ramen status` against an API server that says what a test wants it to say.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod api;

use std::collections::VecDeque;
use std::sync::mpsc::channel;

use ramen_source::testing::FreePort;
use serde_json::{Value, json};

use api::{
    Answer, Api, DEMO, EVENTS, GROUPS, PODS, Ran, WATCH, Watching, group, list, once, ramen,
    refusal,
};

#[test]
fn the_exit_code_says_whether_all_groups_are_ready() {
    let (good, bad) = (
        group("good", "True", "serves", "1"),
        group("bad", "False", "the Secret `keys` is missing", "2"),
    );
    let api = Api::start(vec![(
        GROUPS,
        once(list("McpGroupList", std::slice::from_ref(&good))),
    )]);
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("NAME   READY   REASON"), "{ran:?}");
    assert!(ran.out.contains("main@0123456789"), "{ran:?}");

    let api = Api::start(vec![(GROUPS, once(list("McpGroupList", &[good, bad])))]);
    let ran = api.run(&["-o", "json"]);
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["groups"][0]["name"], "bad");
    assert_eq!(json["groups"][0]["message"], "the Secret `keys` is missing");
    assert_eq!(json["groups"][1]["ready"], true);
}

#[test]
fn namespaces_and_contexts_are_chosen_as_kubectl_does() {
    let nothing = || once(list("McpGroupList", &[]));
    let api = Api::start(vec![
        ("/apis/ramen.dev/v1alpha1/mcpgroups?", nothing()),
        ("/apis/ramen.dev/v1alpha1/namespaces/", nothing()),
    ]);
    for (args, path) in [
        (&["-A"][..], "/apis/ramen.dev/v1alpha1/mcpgroups?"),
        (
            &["-n", "b"],
            "/apis/ramen.dev/v1alpha1/namespaces/b/mcpgroups?",
        ),
        (
            &["--context", "there"],
            "/apis/ramen.dev/v1alpha1/namespaces/default/mcpgroups?",
        ),
        (&[], GROUPS),
    ] {
        let ran = api.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.out.is_empty() && ran.err.contains("no groups in"),
            "{ran:?}"
        );
        assert_eq!(api.asked.lock().unwrap().last().unwrap(), path);
    }
    let ran = api.run(&["--context", "nowhere"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("it has here, there"), "{ran:?}");
}

#[test]
fn one_group_is_told_with_its_pods_events_errors_and_fixes() {
    let mut demo = group("demo", "True", "serves", "1");
    demo["status"]["errors"] = json!([{"package": "tools/x", "reason": "CallableMissing", "message": "x.py does not define f"}]);
    demo["status"]["zones"] = json!([{"name": "default", "replicas": 1, "ready": 1, "updated": 1}]);
    let pod = json!({
        "metadata": {"name": "demo-default-abc", "labels": {"ramen.dev/zone": "default"}},
        "spec": {"containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "type": "Normal", "reason": "Serving",
        "message": "all pods serve", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let api = Api::start(vec![
        (DEMO, once(demo)),
        (PODS, once(list("PodList", &[pod]))),
        (EVENTS, once(list("EventList", &[event]))),
    ]);
    let ran = api.run(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [
        "team-a/demo  ready",
        "demo-default-abc",
        "main@0123456789",
        "CallableMissing: x.py does not define f",
        "fix: Define the function",
        "all pods serve",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let asked = api.asked.lock().unwrap().join("\n");
    for part in [
        "labelSelector=ramen.dev%2Fgroup%3Ddemo%2Capp.kubernetes.io%2Fcomponent%3Dworker",
        "fieldSelector=involvedObject.kind%3DMcpGroup%2CinvolvedObject.name%3Ddemo",
    ] {
        assert!(asked.contains(part), "{asked}");
    }
    let yaml = api.run(&["demo", "-o", "yaml"]).out;
    assert!(
        yaml.contains("reason: CallableMissing") && yaml.contains("fix: Define"),
        "{yaml}"
    );
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_is_shown() {
    let api = Api::start(vec![
        (DEMO, once(group("demo", "True", "serves", "1"))),
        (
            PODS,
            refusal(403, "pods is forbidden: User \"u\" cannot list", None),
        ),
        (EVENTS, once(list("EventList", &[]))),
    ]);
    let ran = api.run(&["demo"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("not read: pods: pods is forbidden"),
        "{ran:?}"
    );
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    for (answers, args, code, says) in [
        (
            (
                GROUPS,
                refusal(
                    404,
                    "the server could not find the requested resource",
                    None,
                ),
            ),
            &[][..],
            6,
            "install the chart ramen-crds",
        ),
        (
            (
                DEMO,
                refusal(404, "mcpgroups \"demo\" not found", Some("demo")),
            ),
            &["demo"],
            2,
            "there is no group \"demo\"",
        ),
        (
            (
                GROUPS,
                refusal(403, "mcpgroups.ramen.dev is forbidden", None),
            ),
            &[],
            6,
            "ask for `get`, `list` and `watch`",
        ),
        (
            (GROUPS, refusal(401, "Unauthorized", None)),
            &[],
            6,
            "log in again",
        ),
        (
            (
                GROUPS,
                refusal(403, "mcpgroups.ramen.dev is forbidden", None),
            ),
            &["--watch"],
            6,
            "is forbidden",
        ),
    ] {
        let api = Api::start(vec![answers]);
        let ran = api.run(args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.out.is_empty() && ran.err.contains(says), "{ran:?}");
    }

    let ran = Ran::of(&ramen(&[]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("there is no kubeconfig"), "{ran:?}");

    let api = Api::start(Vec::new());
    let file = api.kubeconfig.path().join("config");
    std::fs::write(&file, "contexts: [").unwrap();
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no good YAML"), "{ran:?}");
}

#[test]
fn a_server_that_is_away_is_named() {
    let api = Api::start(Vec::new());
    let nobody = FreePort::nobody().unwrap();
    let file = api.kubeconfig.path().join("config");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&api.address, &nobody.to_string())).unwrap();
    let ran = api.run(&[]);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(
        ran.err.contains(&nobody.to_string()) && ran.err.contains("refused"),
        "{ran:?}"
    );
}

#[test]
fn a_watch_shows_each_change_once_and_goes_on_after_a_break() {
    let (first, events) = channel();
    let (second, more) = channel();
    let demo = |ready: &str, message: &str, version: &str| group("demo", ready, message, version);
    let api = Api::start(vec![
        (
            GROUPS,
            VecDeque::from([
                Answer::Json(200, list("McpGroupList", &[demo("False", "starting", "1")])),
                // What happened meanwhile is seen by listing again.
                Answer::Json(
                    200,
                    list(
                        "McpGroupList",
                        &[demo("True", "", "3"), group("other", "True", "", "4")],
                    ),
                ),
            ]),
        ),
        (
            WATCH,
            VecDeque::from([Answer::Watch(events), Answer::Watch(more)]),
        ),
    ]);
    let watching = Watching::start(&api, &["--watch", "-o", "json"]);
    let next = || serde_json::from_str::<Value>(&watching.line()).unwrap();
    assert_eq!(next()["message"], "starting");
    let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
    first
        .send(event("MODIFIED", demo("False", "starting", "2")))
        .unwrap();
    first
        .send(event("MODIFIED", demo("False", "deploying", "2")))
        .unwrap();
    assert_eq!(
        next()["message"],
        "deploying",
        "the same state again is no line"
    );
    let expired = json!({"apiVersion": "v1", "kind": "Status", "code": 410, "message": "too old", "status": "Failure"});
    first.send(event("ERROR", expired)).unwrap();
    drop(first);
    assert_eq!(next()["ready"], true);
    assert_eq!(next()["name"], "other");
    second
        .send(event("DELETED", group("other", "True", "", "5")))
        .unwrap();
    second
        .send(event("MODIFIED", demo("False", "broken", "6")))
        .unwrap();
    assert_eq!(next()["message"], "broken");
    assert_eq!(watching.interrupt(), Some(7));
}

#[test]
fn a_watch_of_one_group_shows_it_again_when_a_pod_changes() {
    let (_groups, no_groups) = channel();
    let (pods, pod_events) = channel();
    let pod = |ready: &str| {
        json!({
            "metadata": {"name": "p", "namespace": "team-a", "resourceVersion": "9"},
            "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    let pod_lists = |ready: &str| Answer::Json(200, list("PodList", &[pod(ready)]));
    let api = Api::start(vec![
        (DEMO, once(group("demo", "True", "", "1"))),
        (
            GROUPS,
            once(list("McpGroupList", &[group("demo", "True", "", "1")])),
        ),
        (
            "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups?&watch=true",
            VecDeque::from([Answer::Watch(no_groups)]),
        ),
        (PODS, VecDeque::from([pod_lists("True")])),
        (
            "/api/v1/namespaces/team-a/pods?&watch=true",
            VecDeque::from([Answer::Watch(pod_events)]),
        ),
        (EVENTS, once(list("EventList", &[]))),
    ]);
    let watching = Watching::start(&api, &["demo", "--watch", "-o", "json"]);
    let next = || serde_json::from_str::<Value>(&watching.line()).unwrap();
    let first = next();
    assert_eq!(first["pods"][0]["ready"], true);
    // From here on the pod is not ready, whoever asks.
    api.change(PODS, pod_lists("False"));
    pods.send(json!({"type": "MODIFIED", "object": pod("False")}))
        .unwrap();
    assert_eq!(next()["pods"][0]["ready"], false);
    assert_eq!(watching.interrupt(), Some(0));
}
