//! The Secrets that gateways read, all in one namespace: which ones are there, and that none outlives its group.
//! `group/build/gateway.rs` says what is in one.

use futures::{StreamExt as _, future};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PartialObjectMeta, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource as _};
use ramen_crds::gateway;
use tokio::task::JoinSet;

use crate::group::{Context, GroupKey};
use crate::names;
use crate::watches::{Filling, PAGE};

/// How often the Secrets are looked at, whatever was seen. What a watch missed is found then.
const SWEEP: std::time::Duration = std::time::Duration::from_mins(5);

/// Watches them, and wakes the group whose Secret somebody changed.
pub(crate) fn start(
    client: &Client,
    namespace: &str,
    ctx: &std::sync::Arc<Context>,
    filling: Filling<PartialObjectMeta<Secret>>,
    tasks: &mut JoinSet<()>,
) {
    let api = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), namespace);
    let config = watcher::Config::default()
        .page_size(PAGE)
        .labels(&gateway::secrets());
    let events = watch(api, config).default_backoff().modify(|secret| {
        secret.metadata.managed_fields = None;
        secret.metadata.annotations = None;
    });
    let ctx = std::sync::Arc::clone(ctx);
    let events = filling.fill(events, |old, new| old.metadata != new.metadata);
    tasks.spawn(events.for_each(move |event| {
        match event {
            Ok(Event::Apply(secret) | Event::Delete(secret)) => {
                if let Some(key) = group_of(secret.meta()) {
                    ctx.wake.wake(&key);
                }
                ctx.gateways.notify_one();
            }
            Ok(Event::InitDone) => ctx.gateways.notify_one(),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the watch of gateways' Secrets broke off; it goes on");
            }
        }
        future::ready(())
    }));
}

/// Whose it is.
fn group_of(meta: &ObjectMeta) -> Option<GroupKey> {
    let labels = meta.labels.as_ref()?;
    let namespace = labels.get(gateway::LABEL_NAMESPACE)?;
    Some(GroupKey::new(namespace, labels.get(names::LABEL_GROUP)?))
}

/// Removes the Secrets of groups that are gone, for ever. Only whoever holds the lease runs this.
///
/// Another operator may serve the same gateways: with namespaces to look after, only groups of those are judged.
pub(crate) async fn sweep(ctx: &Context, namespaces: &[String]) {
    loop {
        for secret in ctx.caches.gateways.all() {
            let meta = &secret.metadata;
            let Some(key) = group_of(meta) else { continue };
            let judged = namespaces.is_empty() || namespaces.contains(&key.namespace);
            let group = ObjectRef::new(&key.name).within(&key.namespace);
            if judged && ctx.caches.groups.get(&group).is_none() {
                remove(ctx, meta).await;
            }
        }
        tokio::select! {
            () = ctx.gateways.notified() => {}
            () = tokio::time::sleep(SWEEP) => {}
        }
    }
}

async fn remove(ctx: &Context, meta: &ObjectMeta) {
    let (Some(name), Some(namespace)) = (&meta.name, &meta.namespace) else {
        return;
    };
    let api = Api::<Secret>::namespaced(ctx.client.clone(), namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            ..Preconditions::default()
        }),
        ..DeleteParams::background()
    };
    match api.delete(name, &params).await {
        Ok(_) => {
            ctx.metrics.wrote("Secret", "delete");
            tracing::info!(
                name,
                namespace,
                "removed the gateways' Secret of a group that is gone"
            );
        }
        // Gone already, or another one of that name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => {
            tracing::warn!(name, namespace, %error, "cannot remove the gateways' Secret of a group that is gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::testing::{Server, api, context};

    fn secret(namespace: &str, group: &str) -> PartialObjectMeta<Secret> {
        serde_json::from_value(json!({ "metadata": {
            "name": gateway::secret_name(namespace, group), "namespace": "gateways", "uid": "s-1",
            "labels": { "ramen.dev/namespace": namespace, "ramen.dev/group": group },
        }}))
        .unwrap()
    }

    #[tokio::test]
    async fn what_outlived_its_group_is_removed_and_what_belongs_to_another_operator_is_not() {
        let (client, mut server) = api();
        let (ctx, mut writers, _folder) = context(client);
        for (namespace, group) in [("team-a", "calc"), ("team-a", "gone"), ("team-b", "gone")] {
            writers
                .gateways()
                .apply_watcher_event(&Event::Apply(secret(namespace, group)));
        }
        let group = crate::group::test_group(json!({}));
        writers
            .groups()
            .apply_watcher_event(&Event::Apply(kube::core::DeserializeGuard(Ok(group))));
        let namespaces = ["team-a".to_owned()];
        let sweeping = sweep(&ctx, &namespaces);
        let told = async {
            let asked = server.answer(|asked| Server::accepted(asked, "9")).await;
            server.silent().await;
            asked
        };
        let asked = tokio::select! {
            () = sweeping => unreachable!(),
            asked = told => asked,
        };
        assert_eq!(asked.short(), "DELETE secrets/ramen-gateway.team-a.gone");
        assert_eq!(asked.body["preconditions"]["uid"], "s-1");
        // The cache shows that it is gone, then whoever forgets a group asks for the next look.
        writers
            .gateways()
            .apply_watcher_event(&Event::Delete(secret("team-a", "gone")));
        ctx.gateways.notify_one();
        let _ = tokio::time::timeout(Duration::from_millis(50), sweep(&ctx, &namespaces)).await;
        server.silent().await;
    }
}
