//! Every name that is part of the worker's interface. `docs/reference/env.md` is generated from the
//! comments here.

/// Address and port of the gRPC services (`127.0.0.1:50051`).
pub const LISTEN: &str = "RAMEN_LISTEN";
/// Address and port of `/metrics`, or `off` (`127.0.0.1:9090`).
pub const METRICS_LISTEN: &str = "RAMEN_METRICS_LISTEN";
/// Name of the group that is served (`group`). Names the secrets that belong to it.
pub const GROUP: &str = "RAMEN_GROUP";
/// Zone of this worker; shown in logs, never interpreted.
pub const ZONE: &str = "RAMEN_ZONE";
/// Folder of key files: each regular file holds keys, one a line, `#` begins a comment line. Names
/// that begin with `.` are skipped. Read again when something changes; no keys: nobody gets in.
pub const KEYS_DIR: &str = "RAMEN_KEYS_DIR";
/// One more key file, of the same form.
pub const KEYS_FILE: &str = "RAMEN_KEYS_FILE";
/// File with the keys of gateways, of the same form. They open `ramen.v1.Mcp` from any address: a gateway has judged
/// its caller's key and address itself.
pub const GATEWAY_KEY_FILE: &str = "RAMEN_GATEWAY_KEY_FILE";
/// File with the keys of `ramen.v1.Admin`. Unset: every Admin call is refused.
pub const ADMIN_KEY_FILE: &str = "RAMEN_ADMIN_KEY_FILE";
/// Ranges that may call `ramen.v1.Admin`, separated by commas. Unset: loopback; empty: nobody.
pub const ADMIN_ALLOWED_CIDRS: &str = "RAMEN_ADMIN_ALLOWED_CIDRS";
/// Ranges that may call `ramen.v1.Mcp`, separated by commas. Unset: loopback; empty: nobody.
pub const ALLOWED_CIDRS: &str = "RAMEN_ALLOWED_CIDRS";
/// How many proxies stand before the worker (0). With `n` the caller's address is the `n`-th entry
/// of `x-forwarded-for` from the right; without that header it is the peer's.
pub const TRUST_PROXY: &str = "RAMEN_TRUST_PROXY";
/// Ranges of the proxies whose `x-forwarded-for` is believed. Unset: any peer's, when
/// `RAMEN_TRUST_PROXY` is not 0.
pub const PROXY_CIDRS: &str = "RAMEN_PROXY_CIDRS";
/// Calls at once in the whole process (256); one more is refused at once with `RESOURCE_EXHAUSTED`.
pub const MAX_INFLIGHT: &str = "RAMEN_MAX_INFLIGHT";
/// Connections at once (1024); further ones wait to be accepted.
pub const MAX_CONNECTIONS: &str = "RAMEN_MAX_CONNECTIONS";
/// Names of variables, separated by commas, that the group's code gets too, with the values they have here
/// (`HTTPS_PROXY,API_BASE`). They win over `mcp/env.yaml`. Of this environment the code sees nothing else but `PATH`,
/// `LANG`, `TZ` and its secrets.
pub const HOST_ENV: &str = "RAMEN_HOST_ENV";
/// Longest time of one call in seconds (120), whatever the caller asks for.
pub const CALL_TIMEOUT_SECS: &str = "RAMEN_CALL_TIMEOUT_SECS";
/// Host processes per revision. Unset: one per core, at least two.
pub const HOSTS: &str = "RAMEN_HOSTS";
/// Calls at once in one host process (8).
pub const HOST_THREADS: &str = "RAMEN_HOST_THREADS";
/// Memory in MiB that all processes of the group may hold together: those of `serve` that run its code, with what they
/// start, and those of `deploy` that import and try it (0: no bound). Over it the one that holds the most is ended and
/// replaced; the calls in it are lost, the others go on. Unset: 85 % of the container's limit (`memory.max`, or
/// `memory.high` where that is less), or of the machine's memory where that is less, minus 64 MiB, but at least half of it.
/// Nothing sets it on a cluster: the zone's memory limit is what counts there.
pub const HOSTS_MEMORY_MIB: &str = "RAMEN_HOSTS_MEMORY_MIB";
/// Resident memory in MiB at which a host process is replaced (0: no limit). Calls in it may finish,
/// unless it grows by half as much again: then it is ended at once.
pub const HOST_RSS_LIMIT_MIB: &str = "RAMEN_HOST_RSS_LIMIT_MIB";
/// Calls after which a host process is replaced (0: no limit).
pub const HOST_MAX_CALLS: &str = "RAMEN_HOST_MAX_CALLS";
/// Longest import of one package in seconds (30), in `serve` and in `deploy`. Nothing sets it on a cluster.
pub const IMPORT_TIMEOUT_SECS: &str = "RAMEN_IMPORT_TIMEOUT_SECS";
/// Folder of the artifact store that holds the layers, or the address of the operator's artifact
/// endpoint (`http://ramen-artifacts.ramen:8081`), from which they are fetched by digest.
pub const STORE: &str = "RAMEN_STORE";
/// File with the token for the artifact endpoint; read anew for each request.
pub const STORE_TOKEN_FILE: &str = "RAMEN_STORE_TOKEN_FILE";
/// A bucket from which layers are read before the endpoint is asked (`s3://BUCKET/PREFIX`, `gs://…`, `az://…`),
/// with the variables of the provider's own tools: a pod then starts without the operator.
pub const STORE_BUCKET: &str = "RAMEN_STORE_BUCKET";
/// Folder for unpacked layers and the hosts' home folders. Must be named when `RAMEN_STORE` is an
/// address.
pub const CACHE_DIR: &str = "RAMEN_CACHE_DIR";
/// File that says what to serve (JSON, the shape of `ramen.v1.DesiredState`); watched.
pub const DESIRED: &str = "RAMEN_DESIRED";
/// Folder of the `ramen-host-3.x` programs. Unset: where `ramen-worker` lies.
pub const HOST_DIR: &str = "RAMEN_HOST_DIR";
/// The `uv` program that `deploy` installs with. Unset: `uv` on `PATH`.
pub const UV: &str = "RAMEN_UV";
/// PEM file with the certificate chain. With `RAMEN_TLS_KEY` the port speaks TLS, else h2c.
pub const TLS_CERT: &str = "RAMEN_TLS_CERT";
/// PEM file with the private key.
pub const TLS_KEY: &str = "RAMEN_TLS_KEY";
/// `1` offers gRPC reflection, behind the gate (0).
pub const REFLECTION: &str = "RAMEN_REFLECTION";
/// What is logged, such as `info` or `info,ramen_worker=debug` (`info`).
pub const LOG: &str = "RAMEN_LOG";
/// Seconds that calls in flight get after SIGTERM (25).
pub const DRAIN_SECS: &str = "RAMEN_DRAIN_SECS";
/// File that is written once the ports are open: `{"grpc":"127.0.0.1:1234","metrics":"…","pid":1}`.
pub const ADDRESS_FILE: &str = "RAMEN_ADDRESS_FILE";
/// `RAMEN_SECRET_<GROUP>__<NAME>`: the value of `{{$group.NAME}}`, upper case, `-` and `.` as `_`. One
/// line break at the end is dropped. Handed to the hosts, masked in errors and logs.
pub const SECRET_PREFIX: &str = "RAMEN_SECRET_";
/// Collector for traces (OTLP over gRPC). Unset: none are sent.
pub const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Process id of the program that started this one: when it ends, this one ends as on SIGTERM.
pub const PARENT_PID: &str = "RAMEN_PARENT_PID";

/// Metadata with the admin key.
pub const ADMIN_KEY_HEADER: &str = "x-ramen-admin-key";
/// The gRPC service of MCP.
pub const MCP_SERVICE: &str = "ramen.v1.Mcp";
/// The gRPC service of administration.
pub const ADMIN_SERVICE: &str = "ramen.v1.Admin";

/// Largest JSON-RPC message, both ways.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// From a gateway: the request came over HTTP, and this is its protocol version.
pub const PROTOCOL_VERSION_HEADER: &str = "mcp-protocol-version";
/// From a gateway: the client's header copies of arguments.
pub const PARAM_PREFIX: &str = "mcp-param-";
