//! The environment names that the `ramen` command reads.

/// Worker or load balancer of `bridge`, `call`, `ls`, `read` and `prompt`.
pub const BRIDGE_TARGET: &str = "RAMEN_BRIDGE_TARGET";
/// MCP key of `bridge`, `call`, `ls`, `read` and `prompt`.
pub const BRIDGE_KEY: &str = "RAMEN_BRIDGE_KEY";
/// MCP key, when `RAMEN_BRIDGE_KEY` is not set.
pub const MCP_KEY: &str = "RAMEN_MCP_KEY";
/// File with the MCP key.
pub const BRIDGE_KEY_FILE: &str = "RAMEN_BRIDGE_KEY_FILE";
/// `ramen-group` metadata.
pub const BRIDGE_GROUP: &str = "RAMEN_BRIDGE_GROUP";
/// `ramen-zone` metadata.
pub const BRIDGE_ZONE: &str = "RAMEN_BRIDGE_ZONE";
/// `1` or `true`: speak TLS.
pub const BRIDGE_TLS: &str = "RAMEN_BRIDGE_TLS";
/// PEM bundle to trust.
pub const BRIDGE_CA: &str = "RAMEN_BRIDGE_CA";
/// Seconds until a call is given up.
pub const BRIDGE_TIMEOUT: &str = "RAMEN_BRIDGE_TIMEOUT";
/// Console of a sign-in at other bridges: passed over for a worker with a key, else refused.
pub const BRIDGE_OAUTH: &str = "RAMEN_BRIDGE_OAUTH";
/// Client id of the sign-in at a server of `ramen bridge URL`; passed over for a worker.
pub const BRIDGE_CLIENT_ID: &str = "RAMEN_BRIDGE_CLIENT_ID";
/// File that keeps the token of that sign-in; passed over for a worker.
pub const BRIDGE_TOKEN_FILE: &str = "RAMEN_BRIDGE_TOKEN_FILE";
/// `1`: keep the token in the keychain, as other bridges can: passed over for a worker, else refused.
pub const BRIDGE_KEYCHAIN: &str = "RAMEN_BRIDGE_KEYCHAIN";
/// Seconds after which other bridges drop a token that was not used; without effect for a worker, else refused.
pub const BRIDGE_IDLE_TIMEOUT: &str = "RAMEN_BRIDGE_IDLE_TIMEOUT";
/// State directory of `ramen up`.
pub const STATE_DIR: &str = "RAMEN_STATE_DIR";
/// Base of the state directory when `RAMEN_STATE_DIR` is not set.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Base of the folder with `ramen/mcp.json`, the global list of MCP servers.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Base of the folder with `ramen/mcp-cache.json`, what MCP servers advertised last.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Ranges that the upstreams of `ramen up` may be in although they are not public.
pub const UPSTREAM_ALLOWED_CIDRS: &str = "RAMEN_UPSTREAM_ALLOWED_CIDRS";
/// Home folder, where the bases above are when they are not set.
pub const HOME: &str = "HOME";
/// The `ramen-worker` program; else the one beside `ramen`, else the one on PATH.
pub const WORKER: &str = "RAMEN_WORKER";
/// Log filter of the command itself.
pub const LOG: &str = "RAMEN_LOG";
/// PEM bundle of trusted certificates, as OpenSSL reads it.
pub const SSL_CERT_FILE: &str = "SSL_CERT_FILE";
/// Set: no colours.
pub const NO_COLOR: &str = "NO_COLOR";
