//! The lists of many servers in one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use ramen_mcp::Era;
use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use serde_json::json;

use super::answer::{self, Members};
use super::names::name;
use super::{Hub, Origin, lock};
use crate::client::Client;
use crate::manager::State;

/// Servers that are asked at once.
const PARALLEL: usize = 8;

impl Hub {
    /// `tools/list`. No server is asked or started for it.
    pub(super) fn list_tools(&self, era: Era) -> Members {
        let names = self.names();
        let tools: Vec<Members> = names
            .tools()
            .filter_map(|(name, tool)| answer::tool(&tool.definition, name, era))
            .collect();
        list("tools", &tools)
    }

    /// `prompts/list`, under the names that they have here.
    pub(super) async fn list_prompts(&self) -> Members {
        let mut taken = HashSet::new();
        let (mut known, mut prompts) = (HashMap::new(), Vec::new());
        for (server, items) in self.gather(method::PROMPTS_LIST, "prompts").await {
            for mut item in items {
                let Some(original) = item.get("name").and_then(|name| name.to::<String>().ok())
                else {
                    continue;
                };
                let naming = self.inner.naming;
                let Some(here) = name(naming, &server, &original, &mut taken) else {
                    continue;
                };
                item.insert("name".to_owned(), Json::from(&json!(here)));
                let origin = Origin {
                    server: server.clone(),
                    name: original,
                };
                known.insert(here, origin);
                prompts.push(item);
            }
        }
        *lock(&self.inner.prompts) = known;
        list("prompts", &prompts)
    }

    /// `resources/list`. What identifies a resource is its URI, which stays; of two with one URI the first counts.
    pub(super) async fn list_resources(&self) -> Members {
        let (mut known, mut resources) = (HashMap::new(), Vec::new());
        for (server, items) in self.gather(method::RESOURCES_LIST, "resources").await {
            for item in items {
                let Some(uri) = item.get("uri").and_then(|uri| uri.to::<String>().ok()) else {
                    continue;
                };
                if let std::collections::hash_map::Entry::Vacant(place) = known.entry(uri) {
                    place.insert(server.clone());
                    resources.push(item);
                }
            }
        }
        *lock(&self.inner.resources) = known;
        list("resources", &resources)
    }

    /// `resources/templates/list`.
    pub(super) async fn list_templates(&self) -> Members {
        let all = self
            .gather(method::TEMPLATES_LIST, "resourceTemplates")
            .await;
        let templates: Vec<_> = all.into_iter().flat_map(|(_, items)| items).collect();
        list("resourceTemplates", &templates)
    }

    /// One list of every server that offers such a thing, in the order of their names. A server that fails is left out.
    async fn gather(&self, method: &'static str, key: &'static str) -> Vec<(String, Vec<Members>)> {
        let kind = if method == method::PROMPTS_LIST {
            "prompts"
        } else {
            "resources"
        };
        let asked = self.offering(kind).into_iter().map(|server| async move {
            let items = async {
                let client = self.inner.manager.client(&server).await?;
                client.list_raw(method, key).await
            };
            match items.await {
                Ok(items) => Some((server, items)),
                Err(error) => {
                    let error = error.chain();
                    tracing::warn!(server, method, error, "a server is left out of a list");
                    None
                }
            }
        });
        let all: Vec<_> = stream::iter(asked).buffered(PARALLEL).collect().await;
        let read = |items: Vec<Json>| items.iter().filter_map(|item| item.to().ok()).collect();
        all.into_iter()
            .flatten()
            .map(|(server, items)| (server, read(items)))
            .collect()
    }

    /// The servers that offer `prompts` or `resources`, as far as is known. One that was never connected may.
    pub(super) fn offering(&self, kind: &str) -> Vec<String> {
        let status = self.inner.manager.status();
        let offers = |offers: &Option<Arc<[String]>>| {
            offers
                .as_ref()
                .is_none_or(|offers| offers.iter().any(|offer| offer == kind))
        };
        status
            .into_iter()
            .filter(|server| !matches!(server.state, State::Down { .. }) && offers(&server.offers))
            .map(|server| server.name)
            .collect()
    }

    /// The servers that are connected, for a resource that none of them listed.
    pub(super) async fn readers(&self) -> Vec<(String, Arc<Client>)> {
        let mut readers = Vec::new();
        for server in self.offering("resources") {
            if let Ok(client) = self.inner.manager.client(&server).await {
                readers.push((server, client));
            }
        }
        readers
    }
}

fn list(member: &str, items: &[Members]) -> Members {
    let mut list = answer::single(member, &items);
    answer::uncached(&mut list);
    list
}
