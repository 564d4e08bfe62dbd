//! Against an API server that keeps the objects that it is given.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::json;

use super::*;

/// What the API server has and heard.
#[derive(Default)]
struct Kept {
    objects: BTreeMap<String, Value>,
    asked: Vec<(String, String, Value)>,
    /// Answers instead of what would be, for so many requests with this method.
    instead: Vec<(Method, u16, &'static str)>,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<Kept>>);

const GROUP: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups/calc";

impl Server {
    fn with(group: Value) -> Self {
        let server = Self::default();
        server
            .0
            .lock()
            .unwrap()
            .objects
            .insert(GROUP.to_owned(), group);
        server
    }

    fn cluster(&self, namespaces: &[&str]) -> Cluster {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
        Cluster::new(
            Client::new(service, "default"),
            namespaces,
            "gateway-1".to_owned(),
        )
    }

    async fn answer(&self, request: Request<Body>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut inner = self.0.lock().unwrap();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default();
        inner.asked.push((
            parts.method.to_string(),
            format!("{path}?{query}"),
            body.clone(),
        ));
        let instead = inner
            .instead
            .iter()
            .position(|(method, ..)| *method == parts.method);
        if let Some(at) = instead {
            let (_, code, message) = inner.instead.remove(at);
            return failure(code, message);
        }
        match parts.method {
            Method::PATCH => {
                let object = inner.objects.get_mut(&path).unwrap();
                merge(object, &body);
                answer(object)
            }
            Method::POST => answer(&body),
            _ => match inner.objects.get(&path) {
                Some(object) => answer(object),
                None => failure(404, "not found"),
            },
        }
    }

    /// The patch that was sent last.
    fn patch(&self) -> Value {
        let inner = self.0.lock().unwrap();
        let mut sent = inner.asked.iter().rev();
        sent.find(|(method, ..)| method == "PATCH")
            .unwrap()
            .2
            .clone()
    }

    fn sent(&self, wanted: &str) -> Vec<Value> {
        let inner = self.0.lock().unwrap();
        let sent = inner.asked.iter().filter(|(method, ..)| method == wanted);
        sent.map(|(.., body)| body.clone()).collect()
    }

    fn instead(&self, method: Method, code: u16, message: &'static str) {
        let mut inner = self.0.lock().unwrap();
        inner.instead.push((method, code, message));
    }
}

fn answer(object: &Value) -> Response<Full<Bytes>> {
    Response::new(Full::new(object.to_string().into()))
}

fn failure(code: u16, message: &str) -> Response<Full<Bytes>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "X",
    });
    Response::builder()
        .status(code)
        .body(Full::new(status.to_string().into()))
        .unwrap()
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

const OLD: &str = "1111111111111111111111111111111111111111";

#[expect(
    clippy::needless_pass_by_value,
    reason = "reads better where it is called"
)]
fn group(reference: Value, more: &Value) -> Value {
    let mut group = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {
            "name": "calc", "namespace": "team-a", "uid": "u-1", "resourceVersion": "7", "generation": 3,
        },
        "spec": {
            "source": { "url": "https://git.example/team/tools", "ref": reference },
            "network": { "allowedCIDRs": ["10.0.0.0/8"] },
        },
        "status": {
            "observedGeneration": 3,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Serving", "message": "serves in 2 pods",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "revision": { "serving": "main@sha1:2222222222222222222222222222222222222222", "previous": format!("main@sha1:{OLD}") },
            "tools": 4, "replicas": "2/2", "errorsTotal": 1,
            "errors": [{ "package": "tools/div", "reason": "ImportFailed", "message": "ModuleNotFoundError: x" }],
        },
    });
    merge(&mut group, more);
    group
}

fn on_main() -> Value {
    group(json!({ "branch": "main" }), &json!({}))
}

fn name() -> GroupName {
    GroupName {
        namespace: "team-a".into(),
        name: "calc".into(),
    }
}

fn who() -> Who {
    Who {
        caller: "alice/key:00112233".into(),
        session: Some("s-1".into()),
    }
}

fn deploy(reference: &str) -> Change {
    Change::Deploy {
        reference: reference.to_owned(),
    }
}

async fn change(server: &Server, change: Change) -> Result<Value, OpError> {
    server.cluster(&[]).change(&name(), change, who()).await
}

#[tokio::test]
async fn a_group_is_shown_in_brief_in_full_and_with_its_errors() {
    let server = Server::with(on_main());
    let cluster = server.cluster(&["team-a"]);
    let list = json!({ "kind": "McpGroupList", "apiVersion": "ramen.dev/v1alpha1", "metadata": {}, "items": [
        on_main(),
        { "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "metadata": { "name": "bad", "namespace": "team-a" }, "spec": {} },
    ]});
    let path = GROUP.rsplit_once('/').unwrap().0.to_owned();
    server.0.lock().unwrap().objects.insert(path, list);
    let groups = cluster.groups().await.unwrap();
    assert_eq!(groups[0]["group"], "team-a/bad");
    assert_eq!(groups[0]["ready"], false);
    assert!(
        groups[0]["message"]
            .as_str()
            .unwrap()
            .contains("no McpGroup")
    );
    let brief = json!({
        "group": "team-a/calc", "ready": true, "reason": "Serving", "message": "serves in 2 pods",
        "revision": "main@sha1:2222222222222222222222222222222222222222", "tools": 4, "errors": 1,
        "replicas": "2/2", "suspended": false,
    });
    assert_eq!(groups[1], brief);
    let full = cluster.group(&name()).await.unwrap();
    assert_eq!(full["source"]["ref"]["branch"], "main");
    assert_eq!(full["revisions"]["previous"], format!("main@sha1:{OLD}"));
    let errors = cluster.errors(&name()).await.unwrap();
    assert_eq!(errors[0]["reason"], "ImportFailed");
}

#[tokio::test]
async fn every_answer_is_what_its_operation_says() {
    use crate::operations::platform::{described, result};

    let full = json!({ "status": {
        "packages": [{ "kind": "tool", "name": "div", "ok": true }],
        "zones": [{ "name": "east", "replicas": 2, "ready": 2, "updated": 1 }],
        "lastDeploy": { "revision": "main@sha1:2", "outcome": "ok", "timings": { "fetchMs": 1 } },
    }});
    let full = group(json!({ "branch": "main" }), &full);
    // As one that no operator has looked at yet.
    let bare = json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": { "name": "calc", "namespace": "team-a" }, "spec": on_main()["spec"],
    });
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "team-a" },
        "involvedObject": {}, "reason": "Deployed", "message": "m", "type": "Normal",
    });
    let operations = described();
    let fits = |id: &str, answer: &Value| {
        let schema = operations.iter().find(|one| one.id == id).unwrap();
        let schema = &schema.result;
        let judged = ramen_group::OutputSchema::parse(&schema.to_string()).unwrap();
        if let Err(fault) = judged.check(&answer.to_string()) {
            panic!("{id}: {fault} in {answer}");
        }
        let untold = result::untold(schema, answer, id);
        assert!(untold.is_empty(), "{untold:?}");
    };
    for object in [full, bare] {
        let server = Server::with(object.clone());
        let (groups, events) = (
            GROUP.rsplit_once('/').unwrap().0,
            "/api/v1/namespaces/team-a/events",
        );
        let bad =
            json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "bad" }, "spec": {} });
        for (path, items) in [
            (groups, [object, bad]),
            (events, [event.clone(), event.clone()]),
        ] {
            let list =
                json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
            server
                .0
                .lock()
                .unwrap()
                .objects
                .insert(path.to_owned(), list);
        }
        let cluster = server.cluster(&["team-a"]);
        let group = cluster.group(&name()).await.unwrap();
        fits("groups.get", &group);
        let groups = cluster.groups().await.unwrap();
        fits("groups.list", &json!({ "groups": groups }));
        let errors = cluster.errors(&name()).await.unwrap();
        fits("groups.errors", &json!({ "errors": errors }));
        let events = cluster.events(&name()).await.unwrap();
        fits("groups.events", &json!({ "events": events }));
        for (id, asked) in [
            ("groups.deploy", deploy("v1")),
            ("groups.suspend", Change::Suspend),
            ("groups.resume", Change::Resume),
            ("keys.rotate", Change::RotateKeys),
        ] {
            fits(id, &change(&server, asked).await.unwrap());
        }
    }
    let fixed = json!({ "groups": [{ "group": "a/b", "ready": true, "what": 1 }] });
    let schema = operations
        .iter()
        .find(|one| one.id == "groups.list")
        .unwrap();
    let untold = result::untold(&schema.result, &fixed, "");
    assert_eq!(untold, [".groups.what"], "what is not told is found");
}

#[tokio::test]
async fn events_are_shown_newest_first() {
    let server = Server::with(on_main());
    let event = |reason: &str, at: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": reason, "namespace": "team-a" },
            "involvedObject": {}, "reason": reason, "message": "m", "type": "Normal",
            "eventTime": at, "reportingComponent": "ramen-operator",
        })
    };
    let list = json!({ "kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": [
        event("Old", "2026-01-01T00:00:00.000000Z"), event("New", "2026-01-02T00:00:00.000000Z"),
    ]});
    let path = "/api/v1/namespaces/team-a/events".to_owned();
    server.0.lock().unwrap().objects.insert(path, list);
    let events = server.cluster(&[]).events(&name()).await.unwrap();
    assert_eq!(events[0]["reason"], "New");
    assert_eq!(events[1]["unixMs"], 1_767_225_600_000_i64);
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn a_deploy_changes_the_ref_and_says_who_asked() {
    for (word, field) in [("v1.2", "name"), ("refs/heads/x", "name"), (OLD, "commit")] {
        let server = Server::with(on_main());
        let told = change(&server, deploy(word)).await.unwrap();
        assert_eq!(
            told["source"],
            json!({ field: word }),
            "nothing else is followed"
        );
        assert_eq!(told["changedBy"], "alice/key:00112233");
        let patch = server.patch();
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations["ramen.dev/changed-by"], "alice/key:00112233");
        assert!(annotations["ramen.dev/changed-at"].is_string());
        assert!(annotations["ramen.dev/requested-at"].is_string());
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let events = server.sent("POST");
        let note = format!("alice/key:00112233 asked to deploy {word} (session s-1)");
        assert_eq!(events[0]["note"], note);
        assert_eq!(events[0]["regarding"]["uid"], "u-1");
    }
    // What is followed already is looked at again.
    let server = Server::with(on_main());
    change(&server, deploy("main")).await.unwrap();
    assert_eq!(server.patch()["spec"]["source"]["ref"], json!({}));
}

#[tokio::test]
async fn a_ref_that_nothing_can_be_called_is_refused_before_anything_is_sent() {
    let server = Server::with(on_main());
    let error = change(&server, deploy("a..b")).await.unwrap_err();
    assert_eq!(error.code(), "invalid");
    assert_eq!(server.sent("PATCH"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_roll_back_pins_the_revision_that_served_before() {
    let server = Server::with(on_main());
    let told = change(&server, Change::Rollback).await.unwrap();
    assert_eq!(told["source"], json!({ "commit": OLD }));
    let alone = json!({ "status": { "revision": { "previous": null } } });
    let server = Server::with(group(json!({}), &alone));
    let error = change(&server, Change::Rollback).await.unwrap_err();
    assert_eq!(error.code(), "conflict");
}

#[tokio::test]
async fn what_a_suspended_group_would_not_look_at_is_a_conflict() {
    let asleep = group(
        json!({}),
        &json!({ "spec": { "source": { "suspend": true } } }),
    );
    for asked in [deploy("main"), Change::Rollback] {
        let server = Server::with(asleep.clone());
        let error = change(&server, asked).await.unwrap_err();
        assert_eq!(error.code(), "conflict");
        assert!(error.to_string().contains("resume"), "{error}");
    }
    let server = Server::with(asleep);
    let told = change(&server, Change::Resume).await.unwrap();
    assert_eq!(told["suspended"], false);
    let told = change(&server, Change::Suspend).await.unwrap();
    assert_eq!(told["suspended"], true);
}

#[tokio::test]
async fn a_new_key_is_asked_of_the_operator_unless_the_keys_are_the_groups_own() {
    let server = Server::with(on_main());
    change(&server, Change::RotateKeys).await.unwrap();
    let annotations = &server.patch()["metadata"]["annotations"];
    assert!(annotations["ramen.dev/rotate-keys-at"].is_string());
    let own = json!({ "spec": { "keys": { "secretRef": { "name": "ours" } } } });
    let server = Server::with(group(json!({}), &own));
    let error = change(&server, Change::RotateKeys).await.unwrap_err();
    assert_eq!(error.code(), "conflict");
    assert!(error.to_string().contains("ours"));
}

#[tokio::test]
async fn who_changes_a_group_at_the_same_time_is_not_overwritten() {
    let server = Server::with(on_main());
    server.instead(Method::PATCH, 409, "the object has been modified");
    change(&server, Change::Rollback).await.unwrap();
    assert_eq!(server.sent("PATCH").len(), 2, "read and decided again");
    let server = Server::with(on_main());
    for _ in 0..5 {
        server.instead(Method::PATCH, 409, "the object has been modified");
    }
    let error = change(&server, Change::Rollback).await.unwrap_err();
    assert_eq!(error.code(), "conflict");
}

#[tokio::test]
async fn what_the_api_server_says_is_told_in_the_terms_of_the_operations() {
    for (code, message, wanted) in [
        (403, "User cannot patch mcpgroups", "forbidden"),
        (422, "spec.source.ref: only one can be followed", "invalid"),
        (400, "admission webhook denied it", "invalid"),
        (429, "slow down", "unavailable"),
        (500, "etcd: secret detail", "unavailable"),
        (401, "Unauthorized", "internal"),
    ] {
        let server = Server::with(on_main());
        server.instead(Method::PATCH, code, message);
        let error = change(&server, Change::Suspend).await.unwrap_err();
        assert_eq!(error.code(), wanted, "{code}");
        let envelope = String::from_utf8(error.envelope("x").to_vec()).unwrap();
        let told = envelope.contains(message);
        assert_eq!(
            told,
            matches!(wanted, "forbidden" | "invalid"),
            "{envelope}"
        );
        assert_eq!(
            server.sent("POST"),
            Vec::<Value>::new(),
            "no event of no change"
        );
    }
    let nowhere = Server::default();
    let error = nowhere.cluster(&[]).group(&name()).await.unwrap_err();
    assert_eq!(
        error,
        OpError::NotFound("there is no group team-a/calc".into())
    );
    let elsewhere = Server::with(on_main()).cluster(&["team-b"]);
    assert_eq!(
        elsewhere.group(&name()).await.unwrap_err().code(),
        "not_found"
    );
}

#[tokio::test]
async fn a_change_without_an_event_is_still_made() {
    let server = Server::with(on_main());
    server.instead(Method::POST, 403, "events are forbidden");
    assert!(change(&server, Change::Suspend).await.is_ok());
}
