//! Groups of a cluster, from its API server: who may call (the `McpGroup` and, for keys, the Secret that the operator
//! leaves in the gateways' namespace) and where the workers are (`EndpointSlice`s). The only module that knows Kubernetes.
//!
//! One watch of each kind and namespace, in pages, of which only what is needed is kept. While the API server cannot be
//! reached, what was known last is served.

mod follow;
mod known;
mod objects;

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, NotUsed, Object};
use kube::{Api, Client};
use ramen_crds::gateway;

use self::follow::{Change, follow};
use self::known::Known;
use crate::groups::Groups;

/// Where a pod finds its own namespace.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Until the API server answers.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no discovery.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoveryError {
    /// Neither a pod's own files nor a kubeconfig.
    #[error("there is no way to reach an API server")]
    NoServer(#[source] Box<kube::Error>),
    /// Outside of a pod it has to be said.
    #[error(
        "outside of a pod, {} names the namespace of the gateways",
        crate::names::NAMESPACE
    )]
    NoNamespace,
}

/// Where to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Namespaces of groups; none: all.
    pub namespaces: Vec<String>,
    /// The gateways' own namespace, with the Secrets of groups; else that of the service account.
    pub own: Option<String>,
}

/// A discovery that has not begun.
pub struct Discovery {
    client: Client,
    namespaces: Vec<String>,
    own: String,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("namespaces", &self.namespaces)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl Discovery {
    /// Finds the API server, as a pod or by a kubeconfig. Nothing is asked yet.
    pub async fn new(places: Places) -> Result<Self, DiscoveryError> {
        let failed = |error| DiscoveryError::NoServer(Box::new(error));
        let mut config = kube::Config::infer()
            .await
            .map_err(|error| failed(kube::Error::InferConfig(error)))?;
        config.connect_timeout = Some(CONNECT);
        let client = Client::try_from(config).map_err(failed)?;
        let own = match places.own {
            Some(own) => own,
            None => std::fs::read_to_string(OWN_NAMESPACE)
                .map(|text| text.trim().to_owned())
                .map_err(|_| DiscoveryError::NoNamespace)?,
        };
        Ok(Self {
            client,
            namespaces: places.namespaces,
            own,
        })
    }

    /// A client of the API server, for others who need one.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Keeps the groups as the cluster has them, for ever. They are complete when everything was listed once.
    pub async fn run(self, groups: Groups) {
        groups.set_complete(false);
        let mut known = Known::default();
        let mut streams = stream::select_all(self.streams(&mut known));
        while let Some(change) = streams.next().await {
            for name in known.take(change) {
                match known.spec(&name) {
                    Some(spec) => groups.set(&spec),
                    None => groups.remove(&name),
                }
            }
            if !groups.is_complete() && known.is_complete() {
                tracing::info!(groups = known.len(), "all groups are known");
                groups.set_complete(true);
            }
        }
    }

    fn streams(&self, known: &mut Known) -> Vec<BoxStream<'static, Change>> {
        let kind = GroupVersionKind::gvk(
            ramen_crds::API_GROUP,
            ramen_crds::API_VERSION,
            ramen_crds::KIND,
        );
        let kind = ApiResource::from_gvk(&kind);
        let client = || self.client.clone();
        let mut streams = Vec::new();
        let scopes: Vec<Option<&str>> = match self.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().map(|name| Some(name.as_str())).collect(),
        };
        for scope in scopes {
            type Group = Object<serde_json::Value, NotUsed>;
            let asked: Api<Group> = match scope {
                Some(namespace) => Api::namespaced_with(client(), namespace, &kind),
                None => Api::all_with(client(), &kind),
            };
            let part = known.asked.part();
            streams.push(follow(asked, "", part, objects::asked, Change::Asked));
            let slices: Api<EndpointSlice> = match scope {
                Some(namespace) => Api::namespaced(client(), namespace),
                None => Api::all(client()),
            };
            let part = known.slices.part();
            streams.push(follow(
                slices,
                &gateway::endpoints(),
                part,
                objects::slice,
                Change::Slices,
            ));
        }
        let secrets: Api<Secret> = Api::namespaced(client(), &self.own);
        let part = known.credentials.part();
        streams.push(follow(
            secrets,
            &gateway::secrets(),
            part,
            objects::credentials,
            Change::Credentials,
        ));
        streams
    }
}
