//! What worker pods on paper say that they serve: what stands in the `ConfigMap` that they would read, found by the key
//! that the operator asks them with.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use ramen_group::{DesiredState, LayerRef};
use ramen_proto::v1::admin_server::{Admin, AdminServer};
use ramen_proto::v1::{
    self as proto, ReloadRequest, ReloadResponse, StatusRequest, StatusResponse,
};
use tokio::{net::TcpListener, task::JoinSet};
use tonic::{Request, Response, Status, metadata::MetadataMap, transport::server::TcpIncoming};

use crate::GRPC;

/// How the Secrets end that hold those keys.
const SUFFIX: &str = "-admin-key";
/// How long a key is looked for that the watch has not shown yet, and how often.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// The keys of groups, and the way to what their pods are to serve.
pub struct Served {
    client: Client,
    secrets: reflector::Store<Secret>,
    _watch: JoinSet<()>,
}

impl Served {
    /// Of the groups of a namespace, or of all of them.
    pub fn watch(client: &Client, namespace: Option<&str>) -> Self {
        let api = namespace.map_or_else(
            || Api::<Secret>::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        );
        let ours = "app.kubernetes.io/managed-by=ramen-operator";
        let events = watcher(api, watcher::Config::default().labels(ours)).default_backoff();
        let (secrets, writer) = reflector::store();
        let seen = reflector::reflector(writer, events);
        let mut watch = JoinSet::new();
        watch.spawn(seen.for_each(|_| std::future::ready(())));
        Self {
            client: client.clone(),
            secrets,
            _watch: watch,
        }
    }

    /// What a pod says of itself that is asked so.
    ///
    /// # Errors
    /// When no group has that key, or nothing is to be served.
    pub async fn status(&self, asked: &MetadataMap) -> Result<StatusResponse, Status> {
        let key = asked.get("x-ramen-admin-key");
        let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
        let find = tokio::time::timeout(PATIENCE, self.secret(key)).await;
        let secret = find.map_err(|_| Status::unauthenticated("no group has this key"))?;
        let namespace = secret.namespace().unwrap_or_default();
        let name = secret.name_any().replace(SUFFIX, "-desired");
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &namespace);
        let away = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
        let map = maps.get(&name).await.map_err(|error| away(&error))?;
        let text = map.data.unwrap_or_default().remove("desired.json");
        let desired = serde_json::from_str(&text.unwrap_or_default());
        let desired: DesiredState = desired.map_err(|error| away(&error))?;
        Ok(StatusResponse {
            revision: desired.revision.clone(),
            health: "SERVING".to_owned(),
            serving: Some(message(desired)),
            ..StatusResponse::default()
        })
    }

    async fn secret(&self, key: &str) -> Arc<Secret> {
        let mut looks = tokio::time::interval(PAUSE);
        loop {
            looks.tick().await;
            let found = self.secrets.state().into_iter().find(|secret| {
                let data = secret.data.as_ref();
                let own = data.and_then(|data| data.get("key"));
                secret.name_any().ends_with(SUFFIX)
                    && own.is_some_and(|own| own.0 == key.as_bytes())
            });
            if let Some(found) = found {
                return found;
            }
        }
    }
}

fn message(desired: DesiredState) -> proto::DesiredState {
    let layer = |layer: LayerRef| proto::Layer {
        key: layer.key,
        digest: layer.digest,
        size: layer.size,
    };
    proto::DesiredState {
        revision: desired.revision,
        code: Some(layer(desired.code)),
        deps: desired.deps.map(layer),
        python: desired.python,
        exclude: desired.exclude,
    }
}

/// A pod that nothing can be loaded into.
struct Pod(Arc<Served>);

#[tonic::async_trait]
impl Admin for Pod {
    async fn reload(
        &self,
        _request: Request<ReloadRequest>,
    ) -> Result<Response<ReloadResponse>, Status> {
        Err(Status::unavailable("this pod is on paper"))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        let status = self.0.status(request.metadata()).await;
        status.map(Response::new)
    }
}

/// Answers the operator at a pod's address until the set is dropped. Nobody does where this process has no such address, or
/// where another pod of it answers there already: that says the same.
pub(super) async fn answer(served: &Arc<Served>, address: Ipv4Addr) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Ok(listener) = TcpListener::bind((address, GRPC)).await {
        let admin = AdminServer::new(Pod(Arc::clone(served)));
        tasks.spawn(async move {
            let served = tonic::transport::Server::builder()
                .add_service(admin)
                .serve_with_incoming(TcpIncoming::from(listener))
                .await;
            if let Err(error) = served {
                eprintln!("the player: a pod on paper ended: {error}");
            }
        });
    }
    tasks
}
