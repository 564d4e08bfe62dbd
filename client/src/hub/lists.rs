//! The lists of many servers in one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use ramen_mcp::Era;
use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use serde_json::json;

use super::answer::{self, Members};
use super::{Hub, Origin, lock, mark, names};
use crate::client::Client;
use crate::manager::{State, Status};

/// Servers that are asked at once.
const PARALLEL: usize = 8;

/// What one server lists.
pub(super) struct Listed {
    pub(super) server: String,
    down: bool,
    pub(super) items: Vec<Members>,
}

impl Hub {
    /// The entries of a list, and the member of its result that holds them; `None` for what is no list.
    pub async fn entries(&self, name: &str, era: Era) -> Option<(&'static str, Vec<Members>)> {
        Some(match name {
            method::TOOLS_LIST => ("tools", self.tools(era)),
            method::PROMPTS_LIST => ("prompts", self.prompts().await),
            method::RESOURCES_LIST => ("resources", self.resources().await),
            method::TEMPLATES_LIST => ("resourceTemplates", self.templates().await),
            _ => return None,
        })
    }

    /// The result of a list.
    pub(super) async fn list(&self, name: &str, era: Era) -> Option<Members> {
        let (member, items) = self.entries(name, era).await?;
        let mut list = answer::single(member, &items);
        answer::uncached(&mut list);
        Some(list)
    }

    /// No server is asked or started for it.
    fn tools(&self, era: Era) -> Vec<Members> {
        let down = self.down();
        let names = self.names();
        let tool = |(name, origin, tool): (&str, &Origin, &crate::Tool)| {
            let mut tool = answer::tool(&tool.definition, name, era)?;
            if down.contains(&origin.server) {
                mark::down(&mut tool, &origin.server);
            }
            Some(tool)
        };
        names.tools().filter_map(tool).collect()
    }

    /// Under the names that they have here.
    pub(super) async fn prompts(&self) -> Vec<Members> {
        let mut taken = HashSet::new();
        let (mut known, mut prompts) = (HashMap::new(), Vec::new());
        for Listed { server, items, .. } in self.gather(method::PROMPTS_LIST, "prompts").await {
            let read = |item: Members| {
                let name = item.get("name")?.to::<String>().ok()?;
                Some((item, name))
            };
            let items: Vec<_> = items.into_iter().filter_map(read).collect();
            let things: Vec<_> = items.iter().map(|(_, name)| name.as_str()).collect();
            let names = names::all(self.inner.naming, &server, &things, &mut taken);
            for ((mut item, original), here) in items.into_iter().zip(names) {
                let Some(here) = here else { continue };
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
        prompts
    }

    /// What identifies a resource is its URI, which stays; of two with one URI the first counts.
    pub(super) async fn resources(&self) -> Vec<Members> {
        let (mut known, mut resources) = (HashMap::new(), Vec::new());
        for Listed { server, items, .. } in self.gather(method::RESOURCES_LIST, "resources").await {
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
        resources
    }

    async fn templates(&self) -> Vec<Members> {
        let all = self
            .gather(method::TEMPLATES_LIST, "resourceTemplates")
            .await;
        all.into_iter().flat_map(|listed| listed.items).collect()
    }

    /// One list of every server that offers such a thing, in the order of their names. A server that fails is left out.
    async fn gather(&self, method: &'static str, key: &'static str) -> Vec<Listed> {
        if self.inner.manager.keeps_lists() {
            return self.kept(method);
        }
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
        all.into_iter()
            .flatten()
            .map(|(server, items)| Listed {
                server,
                down: false,
                items: read(&items),
            })
            .collect()
    }

    /// The same as last known. No server is asked for it.
    pub(super) fn kept(&self, method: &str) -> Vec<Listed> {
        let mut servers = self.inner.manager.status();
        servers.retain(|server| self.lists(server));
        let listed = servers.into_iter().map(|server| {
            let lists = &server.lists;
            let mut listed = Listed {
                down: matches!(server.state, State::Down { .. }),
                items: read(match method {
                    method::PROMPTS_LIST => &lists.prompts,
                    method::RESOURCES_LIST => &lists.resources,
                    _ => &lists.templates,
                }),
                server: server.name,
            };
            if listed.down {
                for item in &mut listed.items {
                    mark::down(item, &listed.server);
                }
            }
            listed
        });
        listed.collect()
    }

    /// The servers that are down.
    fn down(&self) -> HashSet<String> {
        let status = self.inner.manager.status().into_iter();
        let down = status.filter(|server| matches!(server.state, State::Down { .. }));
        down.map(|server| server.name).collect()
    }

    /// The servers that offer `prompts` or `resources`, as far as is known. One that was never connected may.
    pub(super) fn offering(&self, kind: &str) -> Vec<String> {
        let offers = |server: &Status| {
            let offers: &Option<Arc<[String]>> = &server.offers;
            offers
                .as_ref()
                .is_none_or(|offers| offers.iter().any(|offer| offer == kind))
        };
        let status = self.inner.manager.status();
        status
            .into_iter()
            .filter(|server| !matches!(server.state, State::Down { .. }) && offers(server))
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

fn read(items: &[Json]) -> Vec<Members> {
    items.iter().filter_map(|item| item.to().ok()).collect()
}
