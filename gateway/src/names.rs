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
/// Where groups come from: `file` (the default), or `kube`, the API server of the cluster.
pub const DISCOVERY: &str = "RAMEN_GATEWAY_DISCOVERY";
/// With `kube`: namespaces whose groups are served, separated by commas. Unset: all.
pub const NAMESPACES: &str = "RAMEN_GATEWAY_NAMESPACES";
/// With `kube`: the gateways' own namespace, where the operator leaves the keys of groups. Unset: that of the service
/// account.
pub const NAMESPACE: &str = "RAMEN_GATEWAY_NAMESPACE";
/// With `file`: the file that names the groups, their keys and workers. Read again when it, or a key file, changes.
pub const CONFIG: &str = "RAMEN_GATEWAY_CONFIG";
/// Hosts that are served, separated by commas; unset: loopback names on a loopback address, any on others.
pub const ALLOWED_HOSTS: &str = "RAMEN_ALLOWED_HOSTS";
/// Origins whose web pages may call groups and read the answers (CORS), separated by commas; unset: the gateway's own.
pub const ALLOWED_ORIGINS: &str = "RAMEN_ALLOWED_ORIGINS";
/// File that says whose tokens count (OIDC); without it only keys do. Read again when it changes.
pub const OIDC_CONFIG: &str = "RAMEN_OIDC_CONFIG";
/// How many proxies stand before the gateway.
pub const TRUST_PROXY: &str = "RAMEN_TRUST_PROXY";
/// Ranges of those proxies.
pub const PROXY_CIDRS: &str = "RAMEN_PROXY_CIDRS";
/// Connections at once.
pub const MAX_CONNECTIONS: &str = "RAMEN_MAX_CONNECTIONS";
/// Longest time of one call.
pub const CALL_TIMEOUT_SECS: &str = "RAMEN_CALL_TIMEOUT_SECS";
/// Requests per second of one caller; `0`, the default: no limit.
pub const CALLER_RATE: &str = "RAMEN_CALLER_RATE";
/// Requests at once of one caller.
pub const CALLER_INFLIGHT: &str = "RAMEN_CALLER_INFLIGHT";
/// Listen streams at once of one caller.
pub const CALLER_STREAMS: &str = "RAMEN_CALLER_STREAMS";
/// Certificate chain (PEM) of the listener; with `RAMEN_TLS_KEY`: HTTPS. Read again when it changes.
pub const TLS_CERT: &str = "RAMEN_TLS_CERT";
/// Key (PEM) of the certificate.
pub const TLS_KEY: &str = "RAMEN_TLS_KEY";
/// Address and port of `/metrics`; unset: no metrics are served.
pub const METRICS_LISTEN: &str = "RAMEN_METRICS_LISTEN";
/// Folder of the platform's operators: each file `<name>.read`, `<name>.write` or `<name>.keys` holds the keys of one, one a
/// line, each `<name>.yaml` rules for tokens and for those of `.keys`. Read again when it changes. Unset: the platform's
/// operations are not served (`ramen up` serves them to the key in its state directory).
pub const OPERATORS_DIR: &str = "RAMEN_OPERATORS_DIR";
/// Ranges that operators may call from, separated by commas; unset: this machine.
pub const OPERATORS_CIDRS: &str = "RAMEN_OPERATORS_CIDRS";
/// Log filter.
pub const LOG: &str = "RAMEN_LOG";
/// File that says where the gateway listens.
pub const ADDRESS_FILE: &str = "RAMEN_ADDRESS_FILE";
/// Ranges that upstreams may be in although they are not public, separated by commas.
pub const UPSTREAM_ALLOWED_CIDRS: &str = "RAMEN_UPSTREAM_ALLOWED_CIDRS";
/// `true`: upstreams may be programs, which the gateway starts.
pub const UPSTREAM_COMMANDS: &str = "RAMEN_UPSTREAM_COMMANDS";
/// Seconds that requests may go on after SIGTERM.
pub const DRAIN_SECS: &str = "RAMEN_DRAIN_SECS";
