//! What becomes of a group that is not acted on, and of what it serves meanwhile.

use futures::{StreamExt as _, stream};
use kube::runtime::controller::Config;
use kube::runtime::reflector::ObjectRef;

use super::*;

/// The `ConfigMap` of a group whose first revision serves.
fn memory() -> (String, Value) {
    use crate::group::rollout::tests::serve;
    use crate::group::validate::tests::{operator, referenced, validated};
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
    crate::group::rollout::tests::look_at(state.lock().await.rollout.as_mut().unwrap(), late);
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
    // What went wrong is told once; the pods are not warned of.
    let warnings = asked.iter().filter(|asked| asked.body["type"] == "Warning");
    let warnings: Vec<_> = warnings
        .map(|asked| (&asked.body["action"], &asked.body["reason"]))
        .collect();
    assert_eq!(warnings, [(&json!("Reconciling"), &json!("Forbidden"))]);
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
async fn what_is_counted_of_a_group_ends_with_it_also_when_it_goes_during_a_run() {
    let (client, _server) = api();
    let (ctx, _writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let state = ctx.state(&key);
    let mut run = state.lock().await;
    run.counted.count(&ctx.metrics, "progressing", false);
    ctx.forget(&key);
    run.counted.count(&ctx.metrics, "ready", true);
    assert_eq!(ctx.metrics.standing("ready"), (1, 1));
    // One that was removed and made again is counted once.
    run.begin("another");
    assert_eq!(ctx.metrics.standing("ready"), (1, 1));
    // What the run notes at its end goes with the next look at all groups.
    ctx.keeps(&key, Vec::new());
    drop(run);
    drop(state);
    assert_eq!(ctx.metrics.standing("ready"), (0, 0));
    assert_eq!(ctx.metrics.standing("progressing"), (0, 0));
    ctx.retain(&|_| false);
    assert!(!ctx.knows_layers(&key));
}
