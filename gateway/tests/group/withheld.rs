//! What a worker says and the gateway does not pass on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::StatusCode;
use ramen_gateway::GroupSpec;
use ramen_group::access::RuleText;
use ramen_group::{AccessRules, CidrSet};
use serde_json::json;

use crate::logs::Log;
use crate::support::{Events, KEY, Running, call, eventually, spec};
use crate::worker::Worker;

#[tokio::test]
async fn net10_a_key_revoked_while_the_tool_runs_gets_no_result() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let waiting = gateway.call("wait");
    let revoke = async {
        eventually("the call runs", || worker.began() == 1).await;
        gateway
            .groups
            .set(&spec("demo", "rmk_new", &[worker.address]));
        worker.state.go.notify_one();
    };
    let (got, ()) = tokio::join!(waiting, revoke);
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
    assert!(!String::from_utf8_lossy(&got.body).contains("result data"));
}

/// The group with ranges in which nobody of these tests is.
fn elsewhere(worker: &Worker) -> GroupSpec {
    let mut narrowed = spec("demo", KEY, &[worker.address]);
    narrowed.ranges = CidrSet::parse_list("10.0.0.0/8").unwrap();
    narrowed
}

#[tokio::test]
async fn sec_ranges_that_narrow_while_the_tool_runs_withhold_its_result() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let waiting = gateway.call("wait");
    let narrow = async {
        eventually("the call runs", || worker.began() == 1).await;
        gateway.groups.set(&elsewhere(&worker));
        worker.state.go.notify_one();
    };
    let (got, ()) = tokio::join!(waiting, narrow);
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    assert!(!String::from_utf8_lossy(&got.body).contains("result data"));
}

#[tokio::test]
async fn sec_ranges_that_narrow_end_a_call_in_mid_stream() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut asked = call("wait");
    asked["params"]["_meta"] = json!({"progressToken": "p"});
    let mut events = Events::of(gateway.open(gateway.post(&asked)).await);
    for _ in 0..2 {
        let progress = events.next().await.unwrap();
        assert_eq!(progress["method"], "notifications/progress");
    }
    eventually("the call runs", || worker.began() == 1).await;
    gateway.groups.set(&elsewhere(&worker));
    worker.state.go.notify_one();
    let last = events.next().await.unwrap();
    let error = &last["error"]["message"];
    assert_eq!(*error, "this address may not call any more", "{last}");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn sec_ranges_that_narrow_end_a_subscription() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let (mut events, _) = gateway.listen().await;
    gateway.groups.set(&elsewhere(&worker));
    assert!(events.next().await.unwrap()["result"].is_object());
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_group_removed_while_the_tool_runs_gives_no_result() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let waiting = gateway.call("wait");
    let remove = async {
        eventually("the call runs", || worker.began() == 1).await;
        gateway.groups.replace(&[]);
        worker.state.go.notify_one();
    };
    let (got, ()) = tokio::join!(waiting, remove);
    assert_eq!(got.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_answer_to_another_request_or_none_at_all_is_502_with_a_ref() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for tool in ["foreign", "junk"] {
        let got = gateway.call(tool).await;
        assert_eq!(got.status, StatusCode::BAD_GATEWAY, "{tool}");
        let body = got.json();
        assert_eq!(
            (&body["id"], body["error"]["data"]["ref"].is_string()),
            (&json!(1), true)
        );
        assert!(!body.to_string().contains("of another"));
    }
}

#[tokio::test]
async fn a_list_that_is_held_to_rules_is_whole_or_an_error() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut limited = spec("demo", KEY, &[worker.address]);
    let rule = RuleText {
        keys: vec!["*".into()],
        tools: vec!["echo".into(), "webecho".into()],
        ..RuleText::default()
    };
    limited.access = Some(Arc::new(AccessRules::new(vec![rule]).unwrap()));
    gateway.groups.set(&limited);
    let list = || gateway.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let got = gateway.send(list()).await.json();
    let tools = got["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools.map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["echo", "webecho"], "of both pages");
    worker.state.endless.store(true, Ordering::SeqCst);
    let got = gateway.send(list()).await;
    assert_eq!(got.status, StatusCode::BAD_GATEWAY);
    assert!(got.json()["error"]["data"]["ref"].is_string());
}

#[tokio::test]
async fn each_way_a_worker_refuses_has_an_answer_of_its_own() {
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    for (tool, status, grpc) in [
        ("full", 200, json!("RESOURCE_EXHAUSTED")),
        ("starting", 503, json!("UNAVAILABLE")),
        // It may have run: nobody is told to send it again.
        ("crashes", 200, json!("UNAVAILABLE")),
        ("refuses", 502, json!(null)),
    ] {
        let got = gateway.call(tool).await;
        let body = got.json();
        assert_eq!(
            (got.status.as_u16(), &body["error"]["data"]["grpc"]),
            (status, &grpc),
            "{body}"
        );
        assert_eq!(
            (&body["id"], &body["error"]["code"]),
            (&json!(1), &json!(-32603))
        );
    }
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    let (log, _logging) = Log::begin();
    let worker = Worker::start().await;
    let gateway = Running::start(&[worker.address]).await;
    let mut wrong = gateway.post(&call("echo"));
    wrong
        .headers_mut()
        .insert("authorization", "Bearer rmk_wrong_secret".parse().unwrap());
    gateway.send(wrong).await;
    let mut secret = call("echo");
    secret["params"]["arguments"] = json!({"password": "hunter2"});
    gateway.send(gateway.post(&secret)).await;
    for tool in ["foreign", "junk", "full", "refuses"] {
        gateway.call(tool).await;
    }
    let text = log.text();
    assert!(text.contains("cannot be passed on"), "the log is read");
    for secret in [KEY, "rmk_of_the_gateway", "rmk_wrong_secret", "hunter2"] {
        // The client of the test speaks HTTP in this process too, and logs nothing of ours.
        let ours = text.lines().filter(|line| line.contains("ramen_gateway"));
        assert!(
            !ours.clone().any(|line| line.contains(secret)),
            "{secret} is in the log"
        );
    }
}
