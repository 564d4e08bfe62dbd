//! Whole runs against an API server that keeps what it is sent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PartialObjectMeta;
use kube::runtime::controller::Config;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::validate::tests::group as validated_group;
use super::*;
use crate::testing::{Asked, Server, api, context};
use crate::watches::Writers;

/// The objects of the API server, by path.
#[derive(Default)]
struct Kept {
    objects: RefCell<BTreeMap<String, Value>>,
    version: std::cell::Cell<u32>,
}

impl Kept {
    fn answer(&self, asked: &Asked) -> (u16, Value) {
        let mut objects = self.objects.borrow_mut();
        let path = asked.path.trim_end_matches("/status").to_owned();
        match asked.verb.as_str() {
            "PATCH" => {
                self.version.set(self.version.get() + 1);
                let (status, mut object) = Server::accepted(asked, &self.version.get().to_string());
                if asked.path.ends_with("/status") {
                    object["metadata"]["namespace"] = "team-a".into();
                }
                objects.insert(path, object.clone());
                (status, object)
            }
            "DELETE" => {
                objects.remove(&path);
                (
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                )
            }
            "POST" => (201, asked.body.clone()),
            _ => objects
                .get(&path)
                .map_or_else(Server::missing, |object| (200, object.clone())),
        }
    }

    /// Shows the watches what is there.
    fn show(&self, writers: &mut Writers) {
        for (path, object) in &*self.objects.borrow() {
            writers.show(path, object.clone());
        }
    }
}

/// A group that asks no repository: what is told depends on the API server alone.
fn sample(mut extra: Value) -> McpGroup {
    extra["source"] = json!({"url": "https://git.example/team/tools", "suspend": true});
    validated_group(extra)
}

struct Scene {
    ctx: Arc<Context>,
    server: Server,
    writers: Writers,
    kept: Rc<Kept>,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let (client, server) = api();
        let (ctx, writers, folder) = context(client);
        Self {
            ctx,
            server,
            writers,
            kept: Rc::default(),
            _folder: folder,
        }
    }

    async fn run(&mut self, group: &McpGroup) -> (Result<Action, Error>, Vec<Asked>) {
        let kept = Rc::clone(&self.kept);
        self.run_with(group, |asked| kept.answer(asked)).await
    }

    async fn run_with(
        &mut self,
        group: &McpGroup,
        reply: impl FnMut(&Asked) -> (u16, Value),
    ) -> (Result<Action, Error>, Vec<Asked>) {
        let guarded = Arc::new(kube::core::DeserializeGuard(Ok(group.clone())));
        let run = Box::pin(reconcile(guarded, Arc::clone(&self.ctx)));
        self.server.serve(run, reply).await
    }

    /// Runs it and shows the watches what was removed; gives what that was.
    async fn removes(&mut self, group: &McpGroup) -> Vec<String> {
        let before = self.kept.objects.borrow().clone();
        let (ended, asked) = self.run(group).await;
        ended.unwrap();
        let removed = asked.iter().filter(|asked| asked.verb == "DELETE");
        let hide = |asked: &Asked| {
            self.writers.hide(&asked.path, before[&asked.path].clone());
            asked.short()
        };
        removed.map(hide).collect()
    }

    fn told(&self) -> Value {
        let objects = self.kept.objects.borrow();
        objects[GROUP]["status"].clone()
    }
}

const GROUP: &str = "/apis/ramen.dev/v1alpha1/namespaces/team-a/mcpgroups/calc";

fn condition<'s>(status: &'s Value, kind: &str) -> &'s Value {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == kind).unwrap()
}

fn status_error(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": message,
    });
    (code, status)
}

fn writes(asked: &[Asked]) -> Vec<String> {
    let writes = asked.iter().filter(|asked| asked.verb != "GET");
    writes.map(Asked::short).collect()
}

#[tokio::test]
async fn a_first_run_makes_the_children_and_says_what_it_waits_for_and_the_next_writes_nothing() {
    let mut scene = Scene::new();
    let mut group = sample(
        json!({"zones": [{"name": "a", "autoscaling": {"minReplicas": 2, "maxReplicas": 4}}]}),
    );
    let (ended, asked) = scene.run(&group).await;
    ended.unwrap();
    let made = writes(&asked);
    for child in [
        "PATCH serviceaccounts/calc-worker",
        "PATCH secrets/calc-mcp-keys",
        "PATCH secrets/calc-admin-key",
        "PATCH configmaps/calc-rollout",
        "PATCH services/calc-a",
        "PATCH networkpolicies/calc-a",
        "PATCH poddisruptionbudgets/calc-a",
        "PATCH horizontalpodautoscalers/calc-a",
    ] {
        assert!(made.contains(&child.to_owned()), "{child} of {made:?}");
    }
    // Nothing to serve yet: no pods that only wait.
    assert!(
        !made.iter().any(|made| made.contains("deployments/")),
        "{made:?}"
    );
    for asked in asked
        .iter()
        .filter(|asked| asked.verb == "PATCH" && !asked.path.contains("mcpgroups"))
    {
        let meta = &asked.body["metadata"];
        assert_eq!(meta["ownerReferences"][0]["uid"], "u-1", "{}", asked.path);
        assert_eq!(
            meta["labels"]["app.kubernetes.io/managed-by"],
            "ramen-operator"
        );
        assert!(
            asked
                .query
                .contains("fieldManager=ramen-operator%2Fmcpgroup"),
            "{}",
            asked.query
        );
    }
    let status = scene.told();
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(condition(&status, "Ready")["status"], "False");
    assert_eq!(condition(&status, "Stalled")["reason"], "Suspended");
    let key =
        scene.kept.objects.borrow()["/api/v1/namespaces/team-a/secrets/calc-mcp-keys"].clone();
    assert!(
        !status
            .to_string()
            .contains(key["data"]["key"].as_str().unwrap())
    );
    // As the watches show it.
    scene.kept.show(&mut scene.writers);
    group.status = serde_json::from_value(status).unwrap();
    let (ended, asked) = scene.run(&group).await;
    ended.unwrap();
    assert_eq!(writes(&asked), Vec::<String>::new());
}

#[tokio::test]
async fn a_secret_that_is_missing_is_waited_for_and_the_group_goes_on_when_it_comes() {
    let mut scene = Scene::new();
    let group = sample(json!({"secrets": [{"name": "weather"}]}));
    let (ended, asked) = scene.run(&group).await;
    assert_eq!(ended.unwrap(), Action::await_change());
    assert!(
        writes(&asked)
            .iter()
            .all(|made| made.contains("status") || made.contains("events")),
        "{asked:?}"
    );
    let stalled = condition(&scene.told(), "Stalled").clone();
    assert_eq!(stalled["reason"], "SecretMissing");
    assert!(stalled["message"].as_str().unwrap().contains("weather"));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "weather", "namespace": "team-a", "uid": "s", "resourceVersion": "5"},
        "data": {"TOKEN": "czNjcmV0"},
    });
    let path = "/api/v1/namespaces/team-a/secrets/weather".to_owned();
    scene.kept.objects.borrow_mut().insert(path, secret);
    let (ended, asked) = scene.run(&group).await;
    ended.unwrap();
    assert!(writes(&asked).contains(&"PATCH services/calc-default".to_owned()));
    assert!(!scene.told().to_string().contains("SecretMissing"));
    // Its value is in nothing that was sent.
    for asked in &asked {
        let body = asked.body.to_string();
        assert!(
            !body.contains("s3cret") && !body.contains("czNjcmV0"),
            "{}",
            asked.path
        );
    }
}

/// A Secret of a person.
fn weather(version: &str) -> (String, Value) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "weather", "namespace": "team-a", "uid": "s", "resourceVersion": version},
        "data": {"TOKEN": "czNjcmV0"},
    });
    let path = "/api/v1/namespaces/team-a/secrets/weather";
    (path.to_owned(), secret)
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_is_not_asked_for_again_and_again() {
    let mut scene = Scene::new();
    let group = sample(json!({"secrets": [{"name": "weather"}]}));
    let (path, secret) = weather("5");
    let objects = &scene.kept.objects;
    objects.borrow_mut().insert(path.clone(), secret.clone());
    scene.run(&group).await.0.unwrap();
    scene.kept.show(&mut scene.writers);
    // A look is due when the Secret goes.
    let state = scene.ctx.state(&GroupKey::new("team-a", "calc"));
    let late = tokio::time::Instant::now();
    super::rollout::tests::look_at(state.lock().await.rollout.as_mut().unwrap(), late);
    scene.kept.objects.borrow_mut().remove(&path);
    scene.writers.hide(&path, secret);
    let guarded = kube::core::DeserializeGuard(Ok(group));
    for event in [Event::Init, Event::InitApply(guarded), Event::InitDone] {
        scene.writers.groups().apply_watcher_event(&event);
    }

    let woken = ObjectRef::new("calc").within("team-a");
    let queue = stream::iter([Ok::<_, std::convert::Infallible>(woken)]);
    let queue = queue.chain(stream::pending());
    let runs = crate::run::controller_stream(&scene.ctx, queue, Config::default());
    let minute = Box::pin(tokio::time::timeout(
        Duration::from_mins(1),
        runs.for_each(async |()| {}),
    ));
    let kept = Rc::clone(&scene.kept);
    let (_, asked) = scene.server.serve(minute, |asked| kept.answer(asked)).await;
    assert_eq!(
        condition(&scene.told(), "Stalled")["reason"],
        "SecretMissing"
    );
    let reads = asked.iter().filter(|asked| asked.path == path).count();
    assert!(reads <= 2, "{reads} reads in a minute");
    // Whatever else leaves a time in the past behind: runs are a second apart.
    let mut state = state.lock().await;
    assert_eq!(state.next_run(), None);
    state.invalid = None;
    assert_eq!(state.next_run(), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_refused_write_is_in_the_status_and_the_pauses_after_it_grow() {
    let mut scene = Scene::new();
    let group = sample(json!({}));
    let quota =
        "services \"calc-default\" is forbidden: exceeded quota: all, requested: services=1";
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let kept = Rc::clone(&scene.kept);
        let (ended, _) = scene
            .run_with(&group, |asked| {
                if asked.verb == "PATCH" && asked.path.contains("/services/") {
                    return status_error(403, "Forbidden", quota);
                }
                kept.answer(asked)
            })
            .await;
        let error = ended.unwrap_err();
        assert_eq!(error.category(), "QuotaExceeded");
        let ready = condition(&scene.told(), "Ready").clone();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("False"), &json!("QuotaExceeded"))
        );
        assert!(
            ready["message"]
                .as_str()
                .unwrap()
                .contains("requested: services=1")
        );
        let guarded = Arc::new(kube::core::DeserializeGuard(Ok(group.clone())));
        pauses.push(on_error(guarded, &error, Arc::clone(&scene.ctx)));
        // The pause is over.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::time::resume();
    }
    assert_ne!(pauses[0], pauses[2]);
    // Room again: the next run goes through, and pauses start from the shortest.
    let (ended, _) = scene.run(&group).await;
    ended.unwrap();
    let pause = scene.ctx.pause(&GroupKey::new("team-a", "calc"));
    assert!(pause <= Duration::from_secs(1), "{pause:?}");
}

#[tokio::test]
async fn ops14_conflicts_and_a_busy_server_are_errors_that_pass() {
    for (code, reason) in [
        (409, "Conflict"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
    ] {
        let mut scene = Scene::new();
        let group = sample(json!({}));
        let kept = Rc::clone(&scene.kept);
        let (ended, _) = scene
            .run_with(&group, |asked| {
                if asked.path.ends_with("/configmaps/calc-rollout") && asked.verb == "PATCH" {
                    return status_error(code, reason, "not now");
                }
                kept.answer(asked)
            })
            .await;
        assert_eq!(ended.unwrap_err().category(), "ApiError", "{code}");
        assert_eq!(
            condition(&scene.told(), "Reconciling")["reason"],
            "ApiError"
        );
        let (ended, _) = scene.run(&group).await;
        ended.unwrap();
        assert_eq!(condition(&scene.told(), "Ready")["reason"], "Suspended");
    }
}

#[tokio::test]
async fn a_namespace_that_goes_away_is_no_error_and_nothing_is_told() {
    let mut scene = Scene::new();
    let group = sample(json!({}));
    let gone = "object is forbidden: unable to create new content in namespace team-a because it is being terminated";
    let (ended, asked) = scene
        .run_with(&group, |asked| match asked.verb.as_str() {
            "PATCH" => status_error(403, "Forbidden", gone),
            _ => Server::missing(),
        })
        .await;
    assert_eq!(ended.unwrap(), Action::await_change());
    assert!(
        !asked.iter().any(|asked| asked.path.ends_with("/status")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_group_that_is_being_removed_and_an_object_that_is_none_are_left_alone() {
    let mut scene = Scene::new();
    let mut group = sample(json!({}));
    group.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let (ended, asked) = scene.run(&group).await;
    assert_eq!((ended.unwrap(), asked.len()), (Action::await_change(), 0));
    let none: Guarded = serde_json::from_value(json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {"name": "odd", "namespace": "team-a"}, "spec": {"source": 7},
    }))
    .unwrap();
    // All that is looked for is what is remembered of it: its pods go on, and their layers stay.
    let none = Arc::new(none);
    for reads in [2, 0] {
        let run = Box::pin(reconcile(Arc::clone(&none), Arc::clone(&scene.ctx)));
        let (ended, asked) = scene.server.serve(run, |_| Server::missing()).await;
        assert_eq!(ended.unwrap(), Action::await_change());
        assert_eq!(writes(&asked), Vec::<String>::new());
        assert_eq!(asked.len(), reads, "{asked:?}");
    }
}

/// The `ConfigMap` of a group whose first revision serves.
fn memory() -> (String, Value) {
    use super::rollout::tests::serve;
    use super::validate::tests::{operator, referenced, validated};
    let group = validated(json!({}), referenced());
    let mut rollout = Rollout::load(&group.key, &Remembered::default()).unwrap();
    rollout.advance(&group, &operator(), false, tokio::time::Instant::now());
    serve(&mut rollout, &group, "1", "t1");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "calc-rollout", "namespace": "team-a", "uid": "m", "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": "calc",
                "uid": "u-1", "controller": true,
            }],
        },
        "data": {"memory.json": rollout.wanted().unwrap().remembered},
    });
    let path = "/api/v1/namespaces/team-a/configmaps/calc-rollout";
    (path.to_owned(), map)
}

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/team-a/deployments/calc-default";

impl Scene {
    /// With a group whose first revision serves, in so many pods.
    async fn serving(group: &McpGroup, ready: u32) -> Self {
        let mut scene = Self::new();
        let (path, map) = memory();
        scene.kept.objects.borrow_mut().insert(path, map);
        scene.run(group).await.0.unwrap();
        scene.pods(ready);
        scene.run(group).await.0.unwrap();
        scene
    }

    /// So many of its pods are ready, and the watches have seen all there is.
    fn pods(&mut self, ready: u32) {
        let status = json!({"replicas": 1, "readyReplicas": ready, "updatedReplicas": 1});
        let mut objects = self.kept.objects.borrow_mut();
        objects.get_mut(DEPLOYMENT).unwrap()["status"] = status;
        drop(objects);
        self.kept.show(&mut self.writers);
    }

    /// Somebody removes an object.
    fn remove(&mut self, path: &str) {
        let object = self.kept.objects.borrow_mut().remove(path).unwrap();
        self.writers.hide(path, object);
    }
}

/// A group of one pod.
fn single(mut extra: Value) -> McpGroup {
    extra["zones"] = json!([{"name": "default", "replicas": 1}]);
    sample(extra)
}

#[tokio::test]
async fn an_error_of_the_api_server_says_nothing_against_pods_that_serve() {
    let group = single(json!({}));
    let mut scene = Scene::serving(&group, 1).await;
    assert_eq!(condition(&scene.told(), "Ready")["status"], "True");
    let service = "/api/v1/namespaces/team-a/services/calc-default";
    scene.remove(service);
    let kept = Rc::clone(&scene.kept);
    let (ended, asked) = scene
        .run_with(&group, |asked| {
            if asked.verb == "PATCH" && asked.path == service {
                return status_error(403, "Forbidden", "services is forbidden");
            }
            kept.answer(asked)
        })
        .await;
    assert_eq!(ended.unwrap_err().category(), "Forbidden");
    let told = scene.told();
    assert_eq!(condition(&told, "Ready")["status"], "True");
    assert_eq!(condition(&told, "WorkersAvailable")["status"], "True");
    let reconciling = condition(&told, "Reconciling");
    assert_eq!(reconciling["reason"], "Forbidden");
    let message = reconciling["message"].as_str().unwrap();
    assert!(message.contains("services is forbidden"), "{message}");
    let warns = |asked: &&Asked| asked.body["type"] == "Warning";
    assert_eq!(asked.iter().find(warns).map(Asked::short), None);
    // Where pods do not answer it is as it was.
    scene.pods(0);
    let kept = Rc::clone(&scene.kept);
    let (ended, _) = scene
        .run_with(&group, |asked| {
            if asked.verb == "PATCH" && asked.path == service {
                return status_error(403, "Forbidden", "services is forbidden");
            }
            kept.answer(asked)
        })
        .await;
    ended.unwrap_err();
    let ready = condition(&scene.told(), "Ready").clone();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("Forbidden"))
    );
}

#[tokio::test]
async fn an_operator_that_cannot_read_what_it_remembers_leaves_told_what_was_told() {
    let mut group = single(json!({}));
    let scene = Scene::serving(&group, 1).await;
    let told = scene.told();
    group.status = serde_json::from_value(told.clone()).unwrap();
    // Another process.
    let mut again = Scene::new();
    again.kept = Rc::clone(&scene.kept);
    let kept = Rc::clone(&scene.kept);
    let (ended, _) = again
        .run_with(&group, |asked| match asked.verb.as_str() {
            "GET" => status_error(500, "InternalError", "not now"),
            _ => kept.answer(asked),
        })
        .await;
    assert_eq!(ended.unwrap_err().category(), "ApiError");
    let after = again.told();
    for kind in ["Ready", "SourceFetched", "Deployed", "WorkersAvailable"] {
        assert_eq!(condition(&after, kind), condition(&told, kind));
    }
    assert_eq!(condition(&after, "Reconciling")["reason"], "ApiError");
    assert_eq!(after["zones"], told["zones"]);
}

#[tokio::test]
async fn an_invalid_group_keeps_its_children_and_tells_how_its_pods_are() {
    let mut group = single(json!({"secrets": [{"name": "weather"}]}));
    let (path, secret) = weather("5");
    let mut scene = Scene::new();
    let (memory_path, map) = memory();
    for (path, object) in [(path.clone(), secret), (memory_path, map)] {
        scene.kept.objects.borrow_mut().insert(path, object);
    }
    scene.run(&group).await.0.unwrap();
    scene.pods(1);
    scene.run(&group).await.0.unwrap();
    assert_eq!(scene.told()["zones"][0]["ready"], 1);
    let keys = "/api/v1/namespaces/team-a/secrets/calc-mcp-keys";
    let leaked = scene.kept.objects.borrow()[keys]["data"]["key"].clone();

    scene.remove(&path);
    scene.remove("/api/v1/namespaces/team-a/services/calc-default");
    scene.remove(keys);
    scene.pods(0);
    let (ended, asked) = scene.run(&group).await;
    assert_eq!(ended.unwrap(), Action::await_change());
    let told = scene.told();
    assert_eq!(condition(&told, "Stalled")["reason"], "SecretMissing");
    assert_eq!(told["errors"][0]["reason"], "SecretMissing");
    assert_eq!(told["zones"][0]["ready"], 0);
    assert_eq!(condition(&told, "WorkersAvailable")["status"], "False");
    let made = writes(&asked);
    assert!(
        made.contains(&"PATCH services/calc-default".to_owned()),
        "{made:?}"
    );
    // A key that was thrown away does not come back.
    assert_ne!(scene.kept.objects.borrow()[keys]["data"]["key"], leaked);
    scene.kept.show(&mut scene.writers);
    group.status = serde_json::from_value(told).unwrap();
    let (_, asked) = scene.run(&group).await;
    assert_eq!(writes(&asked), Vec::<String>::new());

    // An operator that never saw it valid tells how its pods are, and writes no child.
    let mut again = Scene::new();
    again.kept = Rc::clone(&scene.kept);
    again.pods(1);
    let (ended, asked) = again.run(&group).await;
    assert_eq!(ended.unwrap(), Action::await_change());
    assert_eq!(again.told()["zones"][0]["ready"], 1);
    let children = |write: &&String| !write.contains("status") && !write.contains("events");
    assert_eq!(writes(&asked).iter().find(children), None);
}

#[tokio::test]
async fn a_group_that_is_not_run_keeps_its_layers_and_holds_up_nobody_elses_sweep() {
    for case in ["SecretMissing", "ForeignObject", "Forbidden"] {
        let mut scene = Scene::new();
        let (path, map) = memory();
        scene.kept.objects.borrow_mut().insert(path, map);
        let group = match case {
            "SecretMissing" => sample(json!({"secrets": [{"name": "weather"}]})),
            _ => sample(json!({})),
        };
        let guarded = kube::core::DeserializeGuard(Ok(group.clone()));
        scene
            .writers
            .groups()
            .apply_watcher_event(&Event::Apply(guarded));
        assert!(scene.ctx.layers().is_err(), "nothing is known yet");
        let kept = Rc::clone(&scene.kept);
        let (ended, _) = scene
            .run_with(&group, |asked| {
                let keys = asked.path.ends_with("/secrets/calc-mcp-keys");
                match case {
                    "ForeignObject" if keys && asked.verb == "GET" => {
                        let meta = json!({"name": "calc-mcp-keys", "resourceVersion": "2"});
                        (
                            200,
                            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta}),
                        )
                    }
                    "Forbidden" if asked.path.contains("/secrets/") => {
                        status_error(403, "Forbidden", "secrets is forbidden")
                    }
                    _ => kept.answer(asked),
                }
            })
            .await;
        match ended {
            Ok(_) => assert_eq!(condition(&scene.told(), "Stalled")["reason"], case),
            Err(error) => assert_eq!(error.category(), case),
        }
        let layers = scene.ctx.layers().unwrap();
        let mut keys: Vec<&str> = layers.iter().map(|layer| layer.key.as_str()).collect();
        keys.dedup();
        assert_eq!(keys, ["t1"], "{case}");
    }
}

#[tokio::test]
async fn keys_of_a_person_are_not_taken_over() {
    let mut scene = Scene::new();
    let group = sample(json!({}));
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "calc-mcp-keys", "namespace": "team-a", "uid": "x", "resourceVersion": "2"},
        "data": {"key": "dGhlaXJz"},
    });
    let path = "/api/v1/namespaces/team-a/secrets/calc-mcp-keys".to_owned();
    scene
        .kept
        .objects
        .borrow_mut()
        .insert(path.clone(), theirs.clone());
    let (ended, asked) = scene.run(&group).await;
    assert_eq!(ended.unwrap_err().category(), "ForeignObject");
    assert!(!writes(&asked).contains(&"PATCH secrets/calc-mcp-keys".to_owned()));
    assert_eq!(scene.kept.objects.borrow()[&path], theirs);
    let stalled = condition(&scene.told(), "Stalled").clone();
    assert!(
        stalled["message"]
            .as_str()
            .unwrap()
            .contains("Secret team-a/calc-mcp-keys")
    );
}

#[tokio::test]
async fn a_child_that_somebody_removed_is_made_again() {
    let mut scene = Scene::new();
    let group = sample(json!({}));
    scene.run(&group).await.0.unwrap();
    scene.kept.show(&mut scene.writers);
    let path = "/api/v1/namespaces/team-a/services/calc-default";
    let object = scene.kept.objects.borrow_mut().remove(path).unwrap();
    scene.writers.hide(path, object);
    let (ended, asked) = scene.run(&group).await;
    ended.unwrap();
    assert!(
        writes(&asked).contains(&"PATCH services/calc-default".to_owned()),
        "{asked:?}"
    );
}

#[tokio::test]
async fn keys_that_were_made_once_stay_and_a_zone_that_is_gone_takes_its_children_along() {
    let mut scene = Scene::new();
    let two = sample(json!({"zones": [{"name": "a"}, {"name": "b"}]}));
    scene.run(&two).await.0.unwrap();
    let keys = "/api/v1/namespaces/team-a/secrets/calc-mcp-keys";
    let before = scene.kept.objects.borrow()[keys]["data"].clone();
    scene.kept.show(&mut scene.writers);
    let one = sample(json!({"zones": [{"name": "a"}]}));
    let (ended, asked) = scene.run(&one).await;
    ended.unwrap();
    let removed: Vec<String> = writes(&asked)
        .into_iter()
        .filter(|write| write.starts_with("DELETE"))
        .collect();
    assert_eq!(
        removed,
        ["DELETE services/calc-b", "DELETE networkpolicies/calc-b"]
    );
    assert_eq!(scene.kept.objects.borrow()[keys]["data"], before);
}

#[tokio::test]
async fn sec_what_guards_the_pods_of_a_zone_outlives_them() {
    let mut scene = Scene::new();
    let two = sample(json!({"zones": [{"name": "a"}, {"name": "b"}]}));
    scene.run(&two).await.0.unwrap();
    // As if something had been deployed.
    let policy = "/apis/networking.k8s.io/v1/namespaces/team-a/networkpolicies/calc-b";
    let deployment = "/apis/apps/v1/namespaces/team-a/deployments/calc-b";
    {
        let mut objects = scene.kept.objects.borrow_mut();
        let mut object = objects[policy].clone();
        object["apiVersion"] = json!("apps/v1");
        object["kind"] = json!("Deployment");
        object["spec"] = json!({"selector": {}, "template": {}});
        objects.insert(deployment.to_owned(), object);
    }
    scene.kept.show(&mut scene.writers);
    let running = json!({"phase": "Running"});
    let pods = scene.ctx.pods.clone();
    pods.show_pod(&json!({"ramen.dev/zone": "b"}), "calc-b-1", &running);

    let one = sample(json!({"zones": [{"name": "a"}]}));
    assert_eq!(
        scene.removes(&one).await,
        ["DELETE deployments/calc-b", "DELETE services/calc-b"]
    );
    // The Deployment is gone; the pod has calls to end.
    assert_eq!(scene.removes(&one).await, Vec::<String>::new());
    pods.hide_pod("calc-b-1");
    assert_eq!(scene.removes(&one).await, ["DELETE networkpolicies/calc-b"]);
}

#[tokio::test]
async fn a_key_is_thrown_away_once_for_each_new_value_of_the_annotation() {
    let mut scene = Scene::new();
    let mut group = sample(json!({}));
    let path = "/api/v1/namespaces/team-a/secrets/calc-mcp-keys";
    let data = |scene: &Scene| scene.kept.objects.borrow()[path]["data"].clone();
    scene.run(&group).await.0.unwrap();
    scene.kept.show(&mut scene.writers);
    let first = data(&scene);
    let ask = |group: &mut McpGroup, at: &str| {
        let annotation = ("ramen.dev/rotate-keys-at".to_owned(), at.to_owned());
        group.metadata.annotations = Some(BTreeMap::from([annotation]));
    };
    ask(&mut group, "1");
    scene.run(&group).await.0.unwrap();
    let second = data(&scene);
    assert_ne!(first["key"], second["key"]);
    assert_eq!(
        first["gateway"], second["gateway"],
        "that one is not asked for"
    );
    // Before the watch has seen the new Secret, and after.
    for shown in [false, true] {
        if shown {
            scene.kept.show(&mut scene.writers);
        }
        scene.run(&group).await.0.unwrap();
        assert_eq!(data(&scene), second, "shown: {shown}");
    }
    ask(&mut group, "2");
    scene.run(&group).await.0.unwrap();
    assert_ne!(data(&scene)["key"], second["key"]);
    assert!(
        !scene
            .told()
            .to_string()
            .contains(second["key"].as_str().unwrap())
    );
}

/// The metadata of a Secret as the watch shows it.
fn seen(name: &str, version: &str) -> PartialObjectMeta<Secret> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "team-a", "uid": "s", "resourceVersion": version},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_secret_is_read_again_only_when_the_watch_shows_another_version() {
    let mut scene = Scene::new();
    let group = sample(json!({"secrets": [{"name": "weather"}]}));
    let path = "/api/v1/namespaces/team-a/secrets/weather";
    for (version, reads) in [("5", 1), ("5", 0), ("6", 1)] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "weather", "namespace": "team-a", "uid": "s", "resourceVersion": version},
            "data": {"TOKEN": "czNjcmV0"},
        });
        scene
            .kept
            .objects
            .borrow_mut()
            .insert(path.to_owned(), secret);
        scene
            .writers
            .secrets()
            .apply_watcher_event(&Event::Apply(seen("weather", version)));
        let (ended, asked) = scene.run(&group).await;
        ended.unwrap();
        let read = asked
            .iter()
            .filter(|asked| asked.verb == "GET" && asked.path == path);
        assert_eq!(read.count(), reads, "{version}");
    }
}
