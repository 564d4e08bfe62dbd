//! As much of a Kubernetes API server as the gateway asks: lists and watches of groups, their keys and their endpoints.

use std::path::Path;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ramen_crds::{gateway, labels};
use ramen_redact::KeyDigest;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;

use crate::servers::gateway::Group;

/// The namespace of the gateway.
pub(crate) const OWN: &str = "ramen-system";

/// A running API server.
pub(crate) struct ApiServer {
    address: String,
    /// Events of endpoints, one a line.
    changes: broadcast::Sender<Bytes>,
    serving: JoinHandle<()>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ApiServer {
    /// Serves these groups, all with one key of callers.
    pub(crate) async fn start(groups: &[Group], key: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let changes = broadcast::Sender::new(1024);
        let all = |object: fn(&Group, &str) -> Value| {
            let items: Vec<Value> = groups.iter().map(|group| object(group, key)).collect();
            Bytes::from(json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string())
        };
        let (asked, secrets) = (all(asked), all(secret));
        let slices = all(|group, _| slice(group));
        let told = changes.clone();
        let app = Router::new().fallback(move |uri: Uri| {
            let list = match uri.path() {
                path if path.ends_with("/mcpgroups") => Some(asked.clone()),
                path if path.ends_with("/secrets") => Some(secrets.clone()),
                path if path.ends_with("/endpointslices") => Some(slices.clone()),
                _ => None,
            };
            let ours = uri.path().ends_with("/endpointslices");
            let watches = uri.query().unwrap_or_default().contains("watch=");
            let events = told.subscribe();
            async move {
                match list {
                    None => axum::http::StatusCode::NOT_FOUND.into_response(),
                    Some(list) if !watches => of(Body::from(list)),
                    // Nothing else changes.
                    Some(_) => of(Body::from_stream(
                        BroadcastStream::new(events).filter(move |_| ours),
                    )),
                }
            }
        });
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self {
            address,
            changes,
            serving,
        })
    }

    /// Writes the file with which a client finds this server.
    pub(crate) fn kubeconfig(&self, file: &Path) -> anyhow::Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "bench", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        });
        std::fs::write(file, config.to_string()).context("cannot write the kubeconfig")
    }

    /// The workers of a group are these from now on.
    pub(crate) fn move_to(&self, group: &Group) {
        let event = json!({"type": "MODIFIED", "object": slice(group)});
        // Nobody watches: nobody is told.
        let _ = self.changes.send(Bytes::from(format!("{event}\n")));
    }
}

fn of(body: Body) -> Response {
    ([("content-type", "application/json")], body).into_response()
}

fn uid(group: &Group) -> String {
    format!("uid-of-{}", group.name)
}

fn asked(group: &Group, _: &str) -> Value {
    json!({
        "apiVersion": "ramen.dev/v1alpha1", "kind": "McpGroup",
        "metadata": {"name": group.name, "namespace": "default", "uid": uid(group), "resourceVersion": "1"},
        "spec": {"network": {"allowedCIDRs": ["127.0.0.0/8"]}},
    })
}

fn secret(group: &Group, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": gateway::secret_name("default", &group.name), "namespace": OWN, "resourceVersion": "1",
            "labels": {gateway::LABEL_NAMESPACE: "default", labels::LABEL_GROUP: group.name, gateway::LABEL_UID: uid(group)},
        },
        "data": {
            gateway::CALLERS: STANDARD.encode(KeyDigest::of(key).to_hex()),
            gateway::WORKER_KEY: STANDARD.encode(&group.worker_key),
        },
    })
}

fn slice(group: &Group) -> Value {
    let ends = group
        .workers
        .iter()
        .filter_map(|worker| worker.rsplit_once(':'));
    let port = ends
        .clone()
        .next()
        .and_then(|(_, port)| port.parse::<u16>().ok());
    let endpoints: Vec<Value> = ends
        .map(|(address, _)| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{}-default", group.name), "namespace": "default", "resourceVersion": "2",
            "labels": {labels::LABEL_GROUP: group.name, labels::LABEL_ZONE: "default"},
        },
        "ports": [{"name": gateway::PORT, "port": port}],
        "endpoints": endpoints,
    })
}
