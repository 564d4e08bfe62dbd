//! The platform's operations on a cluster. It reads `McpGroup`s and their Events, and whatever it
//! changes it changes in an `McpGroup`: the operator does the rest. It never sees a Secret.

mod trouble;
mod view;
mod write;

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Client};
use ramen_crds::{KIND, McpGroup};
use serde_json::Value;

use self::trouble::OrAnswer as _;
use super::error::OpError;
use super::platform::{Change, Platform, Who};
use crate::groups::GroupName;

/// Hang guard of one request.
const PATIENCE: Duration = Duration::from_secs(15);
/// Groups of one page of a list.
const PAGE: u32 = 500;
/// Events that are asked for: more than a group has in the hour that they are kept.
const EVENTS: u32 = 500;

/// Objects that one of them must not hide the others of.
type Guarded = DeserializeGuard<McpGroup>;

/// The groups of a cluster, or of some of its namespaces.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespaces: Vec<String>,
    identity: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Of these namespaces; none: of all. `identity` names this replica in events.
    pub fn new(client: Client, namespaces: Vec<String>, identity: String) -> Self {
        Self {
            client,
            namespaces,
            identity,
        }
    }

    /// The groups of a namespace that is served.
    fn api<K>(&self, namespace: &str) -> Result<Api<K>, OpError>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        if !self.namespaces.is_empty() && !self.namespaces.iter().any(|own| own == namespace) {
            return Err(OpError::NotFound(
                format!("the namespace {namespace} is not served here").into(),
            ));
        }
        Ok(Api::namespaced(self.client.clone(), namespace))
    }

    async fn get(&self, name: &GroupName) -> Result<McpGroup, OpError> {
        let api = self.api::<Guarded>(&name.namespace)?;
        let group = api.get(&name.name).or_answer("read", name).await?;
        group.0.map_err(|invalid| {
            let why = format!("the McpGroup {name} cannot be read: {}", invalid.error);
            OpError::Invalid(why.into())
        })
    }

    async fn list(&self) -> Result<Vec<Value>, OpError> {
        let apis: Vec<Api<Guarded>> = if self.namespaces.is_empty() {
            vec![Api::all(self.client.clone())]
        } else {
            let each = self.namespaces.iter();
            each.map(|namespace| Api::namespaced(self.client.clone(), namespace))
                .collect()
        };
        let mut groups = Vec::new();
        for api in apis {
            let mut params = ListParams::default().limit(PAGE);
            loop {
                let page = api.list(&params).or_answer("list", &"McpGroups").await;
                let page = page.map_err(|error| match error {
                    OpError::NotFound(_) => OpError::Unavailable(
                        "the kind McpGroup is not defined in this cluster, or not served now"
                            .into(),
                    ),
                    error => error,
                })?;
                groups.extend(page.items.iter().map(view::brief));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        groups.sort_by(|a, b| a["group"].as_str().cmp(&b["group"].as_str()));
        Ok(groups)
    }

    async fn happened(&self, name: &GroupName) -> Result<Vec<Value>, OpError> {
        // Only the events of a group that is there.
        self.get(name).await?;
        let about = format!(
            "involvedObject.kind={KIND},involvedObject.name={}",
            name.name
        );
        let params = ListParams::default().fields(&about).limit(EVENTS);
        let events = self.api::<Event>(&name.namespace)?;
        let events = events.list(&params).or_answer("list the events of", name);
        Ok(view::events(&events.await?.items))
    }
}

impl Platform for Cluster {
    fn groups(&self) -> BoxFuture<'_, Result<Vec<Value>, OpError>> {
        Box::pin(self.list())
    }

    fn group<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Value, OpError>> {
        Box::pin(async move { Ok(view::full(&self.get(name).await?)) })
    }

    fn errors<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        Box::pin(async move {
            let group = self.get(name).await?;
            let errors = group.status.unwrap_or_default().errors;
            let errors = errors.iter().map(serde_json::to_value);
            errors
                .collect::<Result<_, _>>()
                .map_err(|error| OpError::Internal(error.to_string().into()))
        })
    }

    fn events<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        Box::pin(self.happened(name))
    }

    fn change<'a>(
        &'a self,
        name: &'a GroupName,
        change: Change,
        who: Who,
    ) -> BoxFuture<'a, Result<Value, OpError>> {
        Box::pin(async move { self.write(name, &change, &who).await })
    }
}
