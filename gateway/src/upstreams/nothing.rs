//! A server that has nothing: what a group says for itself while none of its workers answers.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use ramen_mcp::catalog::{PromptText, ResourceTarget};
use ramen_mcp::model::{Implementation, Prompt, Resource, Tool};
use ramen_mcp::{ArgumentFault, Catalog, Options, Server};

use crate::gateway;

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let options = Options {
        // The workers may be back the next moment.
        list_ttl_ms: 0,
        ..Options::default()
    };
    Server::new(Arc::new(Nothing(gateway::implementation())), options)
});

pub(super) fn server() -> &'static Server {
    &SERVER
}

struct Nothing(Implementation);

impl Catalog for Nothing {
    fn server_info(&self) -> &Implementation {
        &self.0
    }

    fn tools(&self) -> &[Tool] {
        &[]
    }

    fn resources(&self) -> &[Resource] {
        &[]
    }

    fn prompts(&self) -> &[Prompt] {
        &[]
    }

    fn check_arguments(&self, _: usize, _: &str) -> Result<Option<Bytes>, ArgumentFault> {
        Err(ArgumentFault::whole("there is no tool"))
    }

    fn resolve_resource(&self, _: &str) -> Option<ResourceTarget> {
        None
    }

    fn render_prompt(&self, _: usize, _: &[(String, String)]) -> Result<PromptText, ArgumentFault> {
        Err(ArgumentFault::whole("there is no prompt"))
    }
}
