//! The lists of many servers in one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use ramen_mcp::Era;
use ramen_mcp::model::Json;
use ramen_mcp::names::method;
use serde_json::json;

use super::answer::{self, Members};
use super::{Hub, Origin, lock, mark, names};
use crate::manager::{State, Status};

/// Servers that are asked at once.
const PARALLEL: usize = 8;
/// How long one of them may take before a list is answered without it.
const SLOW: Duration = Duration::from_secs(10);

/// What one server lists.
pub(super) struct Listed {
    pub(super) server: String,
    down: bool,
    pub(super) items: Vec<Members>,
}

impl Hub {
    /// The entries of a list, and the member of its result that holds them; `None` for what is no list.
    pub async fn entries(&self, name: &str, era: Era) -> Option<(&'static str, Vec<Members>)> {
        let member = match name {
            method::TOOLS_LIST => "tools",
            method::PROMPTS_LIST => "prompts",
            method::RESOURCES_LIST => "resources",
            method::TEMPLATES_LIST => "resourceTemplates",
            _ => return None,
        };
        self.listable().await;
        let items = match name {
            method::TOOLS_LIST => self.tools(era),
            method::PROMPTS_LIST => self.prompts().await,
            method::RESOURCES_LIST => self.resources().await,
            _ => self.templates().await,
        };
        Some((member, items))
    }

    /// The schema of the arguments of the tool that has this name here, when it is listed.
    pub fn input_schema(&self, tool: &str) -> Option<Json> {
        self.names().schema(tool).cloned()
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
                mark::mark_down(&mut tool, &origin.server);
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

    /// One list of every server that offers such a thing, in the order of their names. A server that fails is left out, and
    /// so is one that is too slow; of what it has then it is told when it is connected.
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
            let (hub, name) = (self.clone(), server.clone());
            // A task of its own: what is too slow for this list is still connected for the next one.
            let items = tokio::spawn(async move {
                let client = hub.inner.manager.client(&name).await?;
                client.list_raw(method, key).await
            });
            let error = match tokio::time::timeout(SLOW, items).await {
                Ok(Ok(Ok(items))) => return Some((server, items)),
                Ok(Ok(Err(error))) => error.chain(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no list within {} s", SLOW.as_secs()),
            };
            tracing::warn!(server, method, error, "a server is left out of a list");
            None
        });
        // One that is slow holds up no other that waits to be asked.
        let asked = stream::iter(asked).buffer_unordered(PARALLEL);
        let all: Vec<Option<(String, Vec<Json>)>> = asked.collect().await;
        let mut all: Vec<_> = all.into_iter().flatten().collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter()
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
                    mark::mark_down(item, &listed.server);
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
    pub(super) fn readers(&self) -> Vec<String> {
        let connected = self.inner.manager.clients();
        let mut readers = self.offering("resources");
        readers.retain(|server| connected.contains_key(server));
        readers
    }
}

fn read(items: &[Json]) -> Vec<Members> {
    items.iter().filter_map(|item| item.to().ok()).collect()
}
