//! Names of the protocol: methods, notifications, `_meta` keys.

/// Requests and notifications by the name they have on the wire.
pub mod method {
    /// Legacy handshake.
    pub const INITIALIZE: &str = "initialize";
    /// Legacy liveness check, either way.
    pub const PING: &str = "ping";
    /// Modern: what the server is and can.
    pub const DISCOVER: &str = "server/discover";
    /// List the tools.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Call a tool.
    pub const TOOLS_CALL: &str = "tools/call";
    /// List the resources.
    pub const RESOURCES_LIST: &str = "resources/list";
    /// List the resource templates.
    pub const TEMPLATES_LIST: &str = "resources/templates/list";
    /// Read a resource.
    pub const RESOURCES_READ: &str = "resources/read";
    /// List the prompts.
    pub const PROMPTS_LIST: &str = "prompts/list";
    /// Render a prompt.
    pub const PROMPTS_GET: &str = "prompts/get";
    /// Complete an argument.
    pub const COMPLETE: &str = "completion/complete";
    /// Legacy: how much the client wants to hear.
    pub const SET_LEVEL: &str = "logging/setLevel";
    /// Modern: a stream of change notifications.
    pub const LISTEN: &str = "subscriptions/listen";
    /// Legacy: the client finished the handshake.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// Either side gives up on a request.
    pub const CANCELLED: &str = "notifications/cancelled";
    /// Progress of a request.
    pub const PROGRESS: &str = "notifications/progress";
    /// A log message.
    pub const LOG_MESSAGE: &str = "notifications/message";
    /// First message on a listen stream.
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    /// The tool list changed.
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    /// The prompt list changed.
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    /// The resource list changed.
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
}

/// Keys of `_meta`.
pub mod meta_key {
    /// The revision a modern request is written in; its presence makes a request modern.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who the client is.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// From which level on the client wants log messages.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who the server is, on every modern result.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Which listen request a message belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// Opaque token that progress notifications carry back.
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace state.
    pub const TRACESTATE: &str = "tracestate";
    /// W3C baggage.
    pub const BAGGAGE: &str = "baggage";
}
