//! The tools that a server advertises: listed, kept, and remembered for the next start.

use std::sync::{Arc, PoisonError};

use ramen_mcp::names::method;

use super::Inner;
use crate::cache::Entry;
use crate::error::ClientError;
use crate::list::Tool;
use crate::transport::http::mirror;

impl Inner {
    /// Lists the tools, keeps the list, and writes it to the cache. Whether it is another one.
    pub(super) async fn refresh_tools(self: &Arc<Self>) -> Result<bool, ClientError> {
        let declared = self.agreement().capabilities.tools.is_some();
        let mut tools: Vec<Tool> = match self.pages(method::TOOLS_LIST, "tools").await {
            Ok(pages) => pages.read(&self.name, |tool: &Tool| &tool.name),
            // A server of resources alone need not know the method.
            Err(ClientError::Rpc(error))
                if !declared && error.code == ramen_mcp::code::METHOD_NOT_FOUND =>
            {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        tools.retain(|tool| self.config.allows(&tool.name));
        if self.over_http && self.agreement().version.is_modern() {
            tools.retain(|tool| match mirror::check(&tool.input_schema) {
                Ok(()) => true,
                Err(why) => {
                    tracing::warn!(
                        server = self.name,
                        tool = tool.name,
                        why,
                        "a tool is left out"
                    );
                    false
                }
            });
        }
        let tools: Arc<[Tool]> = tools.into();
        let changed = {
            let mut known = self.tools.write().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *known, Arc::clone(&tools));
            before != tools
        };
        self.remember(&tools).await;
        Ok(changed)
    }

    async fn remember(&self, tools: &[Tool]) {
        let Some(cache) = self.cache.clone() else {
            return;
        };
        let (version, server, offers) = {
            let agreement = self.agreement();
            let offers = agreement.capabilities.names();
            (agreement.version, agreement.server.clone(), offers)
        };
        let fingerprint = self.fingerprint.clone();
        let mut entry = Entry::now(fingerprint, version.as_str(), server, tools.to_vec());
        entry.offers = Some(offers);
        let name = self.name.clone();
        let written = tokio::task::spawn_blocking(move || cache.put(&name, entry)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(server = self.name, %error, "the list of tools is not remembered");
        }
    }
}
