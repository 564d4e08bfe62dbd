//! Names of headers, paths and limits that are part of the contract.

/// Largest message, either way.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// Which group, where the path does not say: `namespace/name`, or the name alone when one group has it.
pub const GROUP_HEADER: &str = "ramen-group";
/// Which zone of the group.
pub const ZONE_HEADER: &str = "ramen-zone";
/// To workers: who calls, for their audit log.
pub const CALLER_HEADER: &str = "ramen-caller";
/// Header copies of MCP.
pub const PROTOCOL_VERSION_HEADER: &str = "mcp-protocol-version";
/// The method of the body.
pub const METHOD_HEADER: &str = "mcp-method";
/// The name or URI of the body.
pub const NAME_HEADER: &str = "mcp-name";
/// Header copies of arguments begin with this.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Address and port of the gateway.
pub const LISTEN: &str = "RAMEN_GATEWAY_LISTEN";
/// The file that names groups and workers.
pub const CONFIG: &str = "RAMEN_GATEWAY_CONFIG";
/// Ranges that may call at all; the groups narrow it down.
pub const ALLOWED_HOSTS: &str = "RAMEN_ALLOWED_HOSTS";
/// Origins that browsers may call from.
pub const ALLOWED_ORIGINS: &str = "RAMEN_ALLOWED_ORIGINS";
/// How many proxies stand before the gateway.
pub const TRUST_PROXY: &str = "RAMEN_TRUST_PROXY";
/// Ranges of those proxies.
pub const PROXY_CIDRS: &str = "RAMEN_PROXY_CIDRS";
/// Connections at once.
pub const MAX_CONNECTIONS: &str = "RAMEN_MAX_CONNECTIONS";
/// Longest time of one call.
pub const CALL_TIMEOUT_SECS: &str = "RAMEN_CALL_TIMEOUT_SECS";
/// Requests per second of one caller.
pub const CALLER_RATE: &str = "RAMEN_CALLER_RATE";
/// Requests at once of one caller.
pub const CALLER_INFLIGHT: &str = "RAMEN_CALLER_INFLIGHT";
/// Listen streams at once of one caller.
pub const CALLER_STREAMS: &str = "RAMEN_CALLER_STREAMS";
/// Certificate chain of the listener.
pub const TLS_CERT: &str = "RAMEN_TLS_CERT";
/// Its key.
pub const TLS_KEY: &str = "RAMEN_TLS_KEY";
/// Log filter.
pub const LOG: &str = "RAMEN_LOG";
/// File that says where the gateway listens.
pub const ADDRESS_FILE: &str = "RAMEN_ADDRESS_FILE";
/// Seconds that requests may go on after SIGTERM.
pub const DRAIN_SECS: &str = "RAMEN_DRAIN_SECS";
