use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::testing::{Server, api, context};

fn account(group: &str) -> ServiceAccount {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": format!("{group}-worker"), "namespace": "team-a",
            "ownerReferences": [{
                "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": group,
                "uid": "u-1", "controller": true,
            }],
        },
        "automountServiceAccountToken": false,
    }))
    .unwrap()
}

fn meta<K: Resource>(name: &str, owner: &str, version: &str) -> PartialObjectMeta<K> {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "team-a", "uid": "uid", "resourceVersion": version,
            "ownerReferences": [{
                "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": "calc",
                "uid": owner, "controller": true,
            }],
        },
    }))
    .unwrap()
}

fn writer<'a>(ctx: &'a Context, key: &'a GroupKey, applied: &'a mut AppliedMap) -> Writer<'a> {
    Writer {
        client: &ctx.client,
        caches: &ctx.caches,
        metrics: &ctx.metrics,
        key,
        uid: "u-1",
        applied,
        produced: BTreeSet::new(),
    }
}

#[tokio::test]
async fn ops03_a_child_is_written_once_and_again_only_when_somebody_changed_it() {
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    let child = account("calc");
    let first = async {
        let asked = server.answer(|_| Server::missing()).await;
        assert_eq!(asked.verb, "GET");
        let asked = server.answer(|asked| Server::accepted(asked, "7")).await;
        assert_eq!(asked.verb, "PATCH");
        assert_eq!(
            asked.path,
            "/api/v1/namespaces/team-a/serviceaccounts/calc-worker"
        );
        assert!(asked.query.contains("force=true"), "{}", asked.query);
        assert!(
            asked
                .query
                .contains("fieldManager=ramen-operator%2Fmcpgroup"),
            "{}",
            asked.query
        );
        assert_eq!(asked.body["automountServiceAccountToken"], false);
        assert_eq!(
            asked.body["metadata"]["ownerReferences"][0]["controller"],
            true
        );
    };
    let (wrote, ()) = tokio::join!(
        async { writer(&ctx, &key, &mut applied).write(&child).await },
        first
    );
    wrote.unwrap();
    // The watch has seen it, or something older: nothing is sent.
    for version in ["7", "6"] {
        writers
            .accounts()
            .apply_watcher_event(&Event::Apply(meta("calc-worker", "u-1", version)));
        writer(&ctx, &key, &mut applied)
            .write(&child)
            .await
            .unwrap();
        server.silent().await;
    }
    // Somebody changed it.
    writers
        .accounts()
        .apply_watcher_event(&Event::Apply(meta("calc-worker", "u-1", "9")));
    let (wrote, asked) = tokio::join!(
        async { writer(&ctx, &key, &mut applied).write(&child).await },
        server.answer(|asked| Server::accepted(asked, "10"))
    );
    wrote.unwrap();
    assert_eq!(asked.verb, "PATCH");
}

#[tokio::test]
async fn a_foreign_object_of_that_name_is_left_alone() {
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    writers
        .accounts()
        .apply_watcher_event(&Event::Apply(meta("calc-worker", "somebody", "3")));
    let error = writer(&ctx, &key, &mut applied)
        .write(&account("calc"))
        .await
        .unwrap_err();
    assert_eq!(error.category(), "ForeignObject");
    assert!(
        error
            .to_string()
            .contains("ServiceAccount team-a/calc-worker")
    );
    server.silent().await;
}

#[tokio::test]
async fn what_is_left_over_is_removed_and_only_if_it_is_that_very_object() {
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    for name in ["calc-rollout", "calc-old"] {
        writers
            .maps()
            .apply_watcher_event(&Event::Apply(meta(name, "u-1", "3")));
    }
    writers
        .maps()
        .apply_watcher_event(&Event::Apply(meta("not-ours", "somebody", "3")));
    let mut writer = writer(&ctx, &key, &mut applied);
    writer
        .produced
        .insert(("ConfigMap", "calc-rollout".to_owned()));
    let (swept, asked) = tokio::join!(
        writer.sweep::<ConfigMap>(),
        server.answer(|_| (
            200,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        ))
    );
    swept.unwrap();
    assert_eq!(asked.verb, "DELETE");
    assert_eq!(asked.path, "/api/v1/namespaces/team-a/configmaps/calc-old");
    assert_eq!(asked.body["preconditions"]["uid"], "uid");
    server.silent().await;
}

#[tokio::test]
async fn a_refusal_is_told_in_the_servers_own_words() {
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    writers
        .accounts()
        .apply_watcher_event(&Event::Apply(meta("calc-worker", "u-1", "3")));
    let refused = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "serviceaccounts \"calc-worker\" is forbidden: exceeded quota: all",
    });
    let child = account("calc");
    let mut writer = writer(&ctx, &key, &mut applied);
    let (wrote, _) = tokio::join!(writer.write(&child), server.answer(|_| (403, refused)));
    let error = wrote.unwrap_err();
    assert_eq!(error.category(), "QuotaExceeded");
    assert!(
        error
            .to_string()
            .starts_with("cannot apply ServiceAccount team-a/calc-worker: ")
    );
    assert!(error.to_string().contains("exceeded quota"));
}

fn scaled(replicas: Option<i32>) -> k8s_openapi::api::apps::v1::Deployment {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "calc-default", "namespace": "team-a"},
        "spec": {"replicas": replicas, "selector": {}, "template": {}},
    }))
    .unwrap()
}

fn live(manager: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "calc-default", "namespace": "team-a", "uid": "uid", "resourceVersion": "3",
            "ownerReferences": [{
                "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": "calc",
                "uid": "u-1", "controller": true,
            }],
            "managedFields": [{
                "manager": manager, "operation": "Apply", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}},
            }],
        },
        "spec": {"replicas": 3, "selector": {}, "template": {}},
    })
}

#[tokio::test]
async fn pods_stay_when_their_number_is_left_to_an_autoscaler() {
    let others = "kube-controller-manager";
    // An autoscaler leaves a Deployment of no pods alone: the number goes back to its default.
    for (manager, pods, handed) in [
        (names::MANAGER, 3, true),
        (names::MANAGER, 0, false),
        (others, 3, false),
    ] {
        let live = |manager: &str| {
            let mut live = live(manager);
            live["spec"]["replicas"] = json!(pods);
            live
        };
        let (client, mut server) = api();
        let (ctx, mut writers, _folder) = context(client);
        let key = GroupKey::new("team-a", "calc");
        let mut applied = AppliedMap::new();
        let seen = serde_json::from_value(live(manager)).unwrap();
        writers
            .deployments()
            .apply_watcher_event(&Event::Apply(seen));
        let child = scaled(None);
        let mut writer = writer(&ctx, &key, &mut applied);
        let script = async {
            let asked = server.answer(|_| (200, live(manager))).await;
            assert_eq!(asked.verb, "GET");
            if handed {
                let asked = server.answer(|_| (200, live(manager))).await;
                assert_eq!(asked.verb, "PATCH");
                assert!(
                    asked.query.contains("ramen-operator%2Fhandover"),
                    "{}",
                    asked.query
                );
                assert_eq!(asked.body["spec"], json!({"replicas": 3}));
            }
            let asked = server.answer(|_| (200, live(manager))).await;
            assert!(
                asked.query.contains("ramen-operator%2Fmcpgroup"),
                "{}",
                asked.query
            );
            assert_eq!(asked.body["spec"].get("replicas"), None);
        };
        let (wrote, ()) = tokio::join!(writer.write(&child), script);
        wrote.unwrap();
        server.silent().await;
    }
}

#[tokio::test]
async fn a_number_that_is_ours_is_written_at_once() {
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    let seen = serde_json::from_value(live(names::MANAGER)).unwrap();
    writers
        .deployments()
        .apply_watcher_event(&Event::Apply(seen));
    let child = scaled(Some(2));
    let mut writer = writer(&ctx, &key, &mut applied);
    let (wrote, asked) = tokio::join!(
        writer.write(&child),
        server.answer(|_| (200, live(names::MANAGER)))
    );
    wrote.unwrap();
    assert_eq!(
        (asked.verb.as_str(), &asked.body["spec"]["replicas"]),
        ("PATCH", &json!(2))
    );
}

#[tokio::test]
async fn ops03_the_status_of_an_autoscaler_makes_nobody_write() {
    let hpa = |version: &str,
               max: i32,
               cpu: i32|
     -> k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler {
        serde_json::from_value(json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": "calc-default", "namespace": "team-a", "uid": "uid", "resourceVersion": version,
                "ownerReferences": [{
                    "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup", "name": "calc",
                    "uid": "u-1", "controller": true,
                }],
            },
            "spec": {"maxReplicas": max, "scaleTargetRef": {"kind": "Deployment", "name": "calc-default"}},
            "status": {"desiredReplicas": cpu},
        }))
        .unwrap()
    };
    let (client, mut server) = api();
    let (ctx, mut writers, _folder) = context(client);
    let key = GroupKey::new("team-a", "calc");
    let mut applied = AppliedMap::new();
    let child = hpa("", 5, 0);
    let (wrote, ()) = tokio::join!(
        async { writer(&ctx, &key, &mut applied).write(&child).await },
        async {
            server.answer(|_| Server::missing()).await;
            server
                .answer(|_| (200, serde_json::to_value(hpa("7", 5, 1)).unwrap()))
                .await;
        }
    );
    wrote.unwrap();
    // As the watch keeps it.
    let mut kept = hpa("12", 5, 4);
    kept.stamp();
    writers.hpas().apply_watcher_event(&Event::Apply(kept));
    writer(&ctx, &key, &mut applied)
        .write(&child)
        .await
        .unwrap();
    server.silent().await;
    // Somebody changed what counts.
    let mut kept = hpa("13", 50, 4);
    kept.stamp();
    writers.hpas().apply_watcher_event(&Event::Apply(kept));
    let (wrote, asked) = tokio::join!(
        async { writer(&ctx, &key, &mut applied).write(&child).await },
        server.answer(|_| (200, serde_json::to_value(hpa("14", 5, 4)).unwrap()))
    );
    wrote.unwrap();
    assert_eq!(asked.verb, "PATCH");
}
