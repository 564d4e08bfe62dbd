//! Which server reads a resource.

use ramen_mcp::names::method;
use ramen_mcp::{Era, McpError, code};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Members};
use super::forward::{Asked, read};
use super::places::At;
use super::{Audience, Hub, lock};

#[derive(Deserialize)]
struct Located {
    uri: String,
}

/// Whether a resource may come from a template: it begins like it.
pub fn may_come_from(template: &str, uri: &str) -> bool {
    let fixed = template.split('{').next().unwrap_or_default();
    !fixed.is_empty() && uri.starts_with(fixed)
}

impl Hub {
    pub(super) async fn read(&self, asked: &Asked) -> Result<Members, McpError> {
        let Located { uri } = read(&asked.params)?;
        let params = answer::single("uri", &uri);
        let listed = |hub: &Self| lock(&hub.inner.resources).get(&uri).cloned();
        if listed(self).is_none() {
            self.settled().await;
            let _place = asked.place(At::Lists).await;
            let _ = self.resources().await;
        }
        if let Some(server) = listed(self) {
            return self.readable(asked, &server, &params).await;
        }
        // None lists it; one may know it all the same, from a template.
        for server in self.may_read(&uri) {
            if let Ok(found) = self.readable(asked, &server, &params).await {
                return Ok(found);
            }
        }
        let code = match asked.era {
            Era::Modern => code::INVALID_PARAMS,
            Era::Legacy(_) => code::RESOURCE_NOT_FOUND,
        };
        Err(McpError::new(code, "resource not found").with_data(&json!({ "uri": uri })))
    }

    /// The servers that may know a resource which none of them listed. What callers of a shared hub look for is told only
    /// to those with a template that it may come from.
    fn may_read(&self, uri: &str) -> Vec<String> {
        match self.inner.audience {
            Audience::Owner => self.readers(),
            Audience::Callers => self.with_template_of(uri),
        }
    }

    fn with_template_of(&self, uri: &str) -> Vec<String> {
        let fits = |template: &Members| {
            let template = template.get("uriTemplate");
            let template: Option<String> = template.and_then(|template| template.to().ok());
            template.is_some_and(|template| may_come_from(&template, uri))
        };
        let servers = self.kept(method::TEMPLATES_LIST).into_iter();
        let servers = servers.filter(|listed| listed.items.iter().any(fits));
        servers.map(|listed| listed.server).collect()
    }

    /// Whether one of the servers of a shared hub lists this resource, or has a template that it may come from.
    pub fn may_know(&self, uri: &str) -> bool {
        let lists = |item: &Members| {
            let listed = item
                .get("uri")
                .and_then(|listed| listed.to::<String>().ok());
            listed.is_some_and(|listed| listed == uri)
        };
        let resources = self.kept(method::RESOURCES_LIST);
        resources
            .iter()
            .any(|listed| listed.items.iter().any(lists))
            || !self.with_template_of(uri).is_empty()
    }

    async fn readable(
        &self,
        asked: &Asked,
        server: &str,
        params: &Members,
    ) -> Result<Members, McpError> {
        let read = method::RESOURCES_READ;
        let mut result = self.pass(asked, server, read, params).await?;
        answer::uncached(&mut result);
        Ok(result)
    }
}
