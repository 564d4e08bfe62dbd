//! What a discovery knows of an upstream.

use std::time::Duration;

use ramen_client::ServerConfig;
use ramen_client::config::Transport;

/// Another MCP server of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSpec {
    /// Its name, and what the names of its tools begin with: small letters, digits and `-`, no `_`.
    pub name: String,
    /// How it is reached; or why that cannot be known, such as a Secret that is not there. No secret is in that text.
    pub server: Result<ServerConfig, String>,
}

impl UpstreamSpec {
    /// An upstream that is reached so, with this long for one request, and of which these tools are offered (`*` at the
    /// end of one stands for any rest; all when empty).
    pub fn new(
        name: impl Into<String>,
        transport: Result<Transport, String>,
        timeout: Duration,
        allowed_tools: &[String],
    ) -> Self {
        let server = transport.map(|transport| {
            let mut server = ServerConfig::over(transport);
            server.timeout = Some(timeout);
            server.allowed_tools = allowed_tools.to_vec();
            server
        });
        Self {
            name: name.into(),
            server,
        }
    }
}
