//! Configuration of `serve`: flags and environment, read once, into values that are right.
//!
//! The only module that reads the environment. All faults are told in one message.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ramen_group::{CidrSet, SecretTable};

use crate::gate::{AddressRule, KeyFiles};
use crate::names;
use crate::remote::StoreAt;

/// A variable of our own environment that hosts inherit.
pub(crate) fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Names of variables of our own environment that the group's code gets too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostEnv(Vec<String>);

impl FromStr for HostEnv {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        let names = names.map(|name| match ramen_group::variable_refusal(name) {
            Some(why) => Err(format!("`{name}` {why}")),
            None => Ok(name.to_owned()),
        });
        names.collect::<Result<_, _>>().map(Self)
    }
}

impl HostEnv {
    /// With their values; one that is not set is left out.
    pub(crate) fn read(&self, value: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
        let named = self.0.iter();
        named
            .filter_map(|name| Some((name.clone(), value(name)?)))
            .collect()
    }
}

/// MiB for all processes of the group together, in `serve` and in `deploy`.
pub(crate) const HOSTS_MEMORY: RangeInclusive<u64> = 0..=1 << 30;
/// Seconds of one import, in `serve` and in `deploy`.
pub(crate) const IMPORT: RangeInclusive<u64> = 1..=86_400;

/// The passwords in these variables: the code gets them, and what it says of them is masked.
pub(crate) fn passwords_in(vars: &[(String, String)]) -> Vec<String> {
    let found = vars.iter().flat_map(|(name, value)| {
        // Of the address of a proxy the scheme may be missing.
        if name.to_ascii_lowercase().ends_with("_proxy") && !value.contains("://") {
            ramen_redact::passwords(&format!("http://{value}"))
        } else {
            ramen_redact::passwords(value)
        }
    });
    found.collect()
}

/// Whether traces are to be sent.
pub(crate) fn traces_wanted() -> bool {
    inherited(names::OTLP_ENDPOINT).is_some()
}

/// The secrets of a group, from the environment.
pub(crate) fn secrets_of(group: &str) -> SecretTable {
    let vars = std::env::vars_os().filter_map(|(name, value)| {
        let name = name
            .into_string()
            .ok()
            .filter(|name| name.starts_with(names::SECRET_PREFIX))?;
        let value = value.into_string();
        if value.is_err() {
            tracing::warn!(name, "a secret is not UTF-8 and is left out");
        }
        Some((name, value.ok()?))
    });
    SecretTable::from_env(group, vars)
}

/// Arguments of `ramen-worker serve`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeArgs {
    /// Address and port of the gRPC services
    #[arg(long, env = names::LISTEN, default_value = "127.0.0.1:50051", value_name = "ADDR")]
    pub listen: String,
    /// Address and port of /metrics, or `off`
    #[arg(long, env = names::METRICS_LISTEN, default_value = "127.0.0.1:9090", value_name = "ADDR")]
    pub metrics_listen: String,
    /// Name of the group
    #[arg(long, env = names::GROUP, default_value = "group", value_name = "NAME")]
    pub group: String,
    /// Zone of this worker, for logs
    #[arg(long, env = names::ZONE, value_name = "NAME")]
    pub zone: Option<String>,
    /// Folder of key files; without keys every call is refused
    #[arg(long, env = names::KEYS_DIR, value_name = "DIR")]
    pub keys_dir: Option<PathBuf>,
    /// One more key file
    #[arg(long, env = names::KEYS_FILE, value_name = "FILE")]
    pub keys_file: Option<PathBuf>,
    /// File with the keys of gateways, which may call from anywhere
    #[arg(long, env = names::GATEWAY_KEY_FILE, value_name = "FILE")]
    pub gateway_key_file: Option<PathBuf>,
    /// File with the keys of the Admin service; without it Admin is refused
    #[arg(long, env = names::ADMIN_KEY_FILE, value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,
    /// Ranges that may use Admin; unset: loopback, empty: nobody
    #[arg(long, env = names::ADMIN_ALLOWED_CIDRS, value_name = "CIDRS")]
    pub admin_allowed_cidrs: Option<String>,
    /// Ranges that may call; unset: loopback, empty: nobody
    #[arg(long, env = names::ALLOWED_CIDRS, value_name = "CIDRS")]
    pub allowed_cidrs: Option<String>,
    /// How many proxies stand before the worker
    #[arg(long, env = names::TRUST_PROXY, default_value = "0", value_name = "HOPS")]
    pub trust_proxy: String,
    /// Ranges of those proxies; unset: any
    #[arg(long, env = names::PROXY_CIDRS, value_name = "CIDRS")]
    pub proxy_cidrs: Option<String>,
    /// Calls at once in the whole process
    #[arg(long, env = names::MAX_INFLIGHT, default_value = "256", value_name = "N")]
    pub max_inflight: String,
    /// Connections at once
    #[arg(long, env = names::MAX_CONNECTIONS, default_value = "1024", value_name = "N")]
    pub max_connections: String,
    /// Longest time of one call
    #[arg(long, env = names::CALL_TIMEOUT_SECS, default_value = "120", value_name = "SECS")]
    pub call_timeout_secs: String,
    /// Host processes; unset: one per core, at least two
    #[arg(long, env = names::HOSTS, value_name = "N")]
    pub hosts: Option<String>,
    /// Calls at once in one host process
    #[arg(long, env = names::HOST_THREADS, default_value = "8", value_name = "N")]
    pub host_threads: String,
    /// Memory of all host processes together; unset: what the container or the machine has, less
    /// a reserve; 0: no bound
    #[arg(long, env = names::HOSTS_MEMORY_MIB, value_name = "MIB")]
    pub hosts_memory_mib: Option<String>,
    /// Resident memory at which a host is replaced; 0: never
    #[arg(long, env = names::HOST_RSS_LIMIT_MIB, default_value = "0", value_name = "MIB")]
    pub host_rss_limit_mib: String,
    /// Calls after which a host is replaced; 0: never
    #[arg(long, env = names::HOST_MAX_CALLS, default_value = "0", value_name = "N")]
    pub host_max_calls: String,
    /// Longest import of one package
    #[arg(long, env = names::IMPORT_TIMEOUT_SECS, default_value = "30", value_name = "SECS")]
    pub import_timeout_secs: String,
    /// Variables of this process that the code gets too, by their names
    #[arg(long, env = names::HOST_ENV, default_value = "", hide_default_value = true, value_name = "NAMES")]
    pub host_env: String,
    /// Folder of the artifact store, or the address of the artifact endpoint
    #[arg(long, env = names::STORE, value_name = "DIR|URL")]
    pub store: Option<PathBuf>,
    /// File with the token for the artifact endpoint
    #[arg(long, env = names::STORE_TOKEN_FILE, value_name = "FILE")]
    pub store_token_file: Option<PathBuf>,
    /// Bucket from which layers are read before the endpoint is asked: s3://…, gs://…, az://…
    #[arg(long, env = names::STORE_BUCKET, value_name = "BUCKET")]
    pub store_bucket: Option<String>,
    /// Folder for unpacked layers and home folders; unset: `unpacked` in the store
    #[arg(long, env = names::CACHE_DIR, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// File that says what to serve; watched
    #[arg(long, env = names::DESIRED, value_name = "FILE")]
    pub desired: Option<PathBuf>,
    /// Folder of the `ramen-host-3.x` programs; unset: where this program lies
    #[arg(long, env = names::HOST_DIR, value_name = "DIR")]
    pub host_dir: Option<PathBuf>,
    /// Certificate chain (PEM)
    #[arg(long, env = names::TLS_CERT, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM)
    #[arg(long, env = names::TLS_KEY, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// `1` offers gRPC reflection
    #[arg(long, env = names::REFLECTION, default_value = "0", value_name = "0|1")]
    pub reflection: String,
    /// What is logged
    #[arg(long, env = names::LOG, default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// Seconds that calls in flight get after SIGTERM
    #[arg(long, env = names::DRAIN_SECS, default_value = "25", value_name = "SECS")]
    pub drain_secs: String,
    /// File that is written once the ports are open
    #[arg(long, env = names::ADDRESS_FILE, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

/// What `serve` runs with.
pub struct Config {
    /// gRPC address.
    pub listen: SocketAddr,
    /// Metrics address; `None`: off.
    pub metrics_listen: Option<SocketAddr>,
    /// The group's name.
    pub group: String,
    /// The zone, for logs.
    pub zone: Option<String>,
    /// Callers' keys.
    pub keys: KeyFiles,
    /// Administrators' keys.
    pub admin_keys: KeyFiles,
    /// Keys of gateways.
    pub gateway_keys: KeyFiles,
    /// Who may administer.
    pub admin_ranges: CidrSet,
    /// Who may call.
    pub ranges: CidrSet,
    /// How the caller's address is found.
    pub address: AddressRule,
    /// Calls at once.
    pub max_inflight: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// Longest call.
    pub call_timeout: Duration,
    /// Host processes.
    pub hosts: usize,
    /// Calls at once in each.
    pub host_threads: usize,
    /// Memory of all hosts together; `None`: as much as there is, 0: no bound.
    pub hosts_memory_mib: Option<u64>,
    /// Resident bytes at which a host is replaced.
    pub host_max_rss: u64,
    /// Calls after which a host is replaced.
    pub host_max_calls: u64,
    /// Longest import of one package.
    pub import_timeout: Duration,
    /// What the code gets of our own environment.
    pub host_env: Vec<(String, String)>,
    /// The artifact store.
    pub(crate) store: StoreAt,
    /// Unpacked layers.
    pub cache_dir: PathBuf,
    /// The desired-state file.
    pub desired: Option<PathBuf>,
    /// The host programs.
    pub host_dir: PathBuf,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether reflection is offered.
    pub reflection: bool,
    /// The log filter.
    pub log: String,
    /// How long a stop may take.
    pub drain: Duration,
    /// Where the addresses are written.
    pub address_file: Option<PathBuf>,
    /// The group's secrets.
    pub secrets: SecretTable,
}

/// All that is wrong with the configuration.
#[derive(Debug)]
pub struct ConfigFaults(Vec<String>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration is wrong:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for ConfigFaults {}

struct Reader(Vec<String>);

impl Reader {
    fn parse<T: FromStr + Default>(&mut self, name: &str, text: &str, wanted: &str) -> T {
        text.trim().parse().unwrap_or_else(|_| {
            self.0.push(format!("{name}: `{text}` is not {wanted}"));
            T::default()
        })
    }

    fn number(&mut self, name: &str, text: &str, min: u64, max: u64) -> u64 {
        let wanted = format!("a number from {min} to {max}");
        let number: u64 = self.parse(name, text, &wanted);
        let told = |fault: &String| fault.split(':').next() == Some(name);
        if !(min..=max).contains(&number) && !self.0.iter().any(told) {
            self.0.push(format!("{name}: `{text}` is not {wanted}"));
        }
        number
    }

    fn within(&mut self, name: &str, text: &str, range: RangeInclusive<u64>) -> u64 {
        let (min, max) = range.into_inner();
        self.number(name, text, min, max)
    }

    fn count(&mut self, name: &str, text: &str, min: u64, max: u64) -> usize {
        usize::try_from(self.number(name, text, min, max)).unwrap_or(usize::MAX)
    }

    fn address(&mut self, name: &str, text: &str) -> SocketAddr {
        text.trim().parse().unwrap_or_else(|_| {
            self.0.push(format!(
                "{name}: `{text}` is not an address and port like 127.0.0.1:50051"
            ));
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }

    fn ranges(&mut self, name: &str, text: Option<&str>) -> CidrSet {
        let text = text.unwrap_or("127.0.0.0/8,::1");
        CidrSet::parse_list(text).unwrap_or_else(|faults| {
            self.0
                .extend(faults.iter().map(|fault| format!("{name}: {fault}")));
            CidrSet::default()
        })
    }
}

impl Config {
    /// Checks the arguments and reads the secrets.
    #[expect(
        clippy::too_many_lines,
        reason = "one line for each flag, and none may be forgotten"
    )]
    pub fn read(args: ServeArgs) -> Result<Self, ConfigFaults> {
        let mut reader = Reader(Vec::new());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ServeArgs {
            listen,
            metrics_listen,
            group,
            zone,
            keys_dir,
            keys_file,
            gateway_key_file,
            admin_key_file,
            admin_allowed_cidrs,
            allowed_cidrs,
            trust_proxy,
            proxy_cidrs,
            max_inflight,
            max_connections,
            call_timeout_secs,
            hosts,
            host_threads,
            hosts_memory_mib,
            host_rss_limit_mib,
            host_max_calls,
            import_timeout_secs,
            host_env,
            store,
            store_token_file,
            store_bucket,
            cache_dir,
            desired,
            host_dir,
            tls_cert,
            tls_key,
            reflection,
            log,
            drain_secs,
            address_file,
        } = args;
        if store.is_none() {
            reader.0.push(format!(
                "{}: the folder of the artifact store must be named",
                names::STORE
            ));
        }
        let tls = match (tls_cert, tls_key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let (cert, key) = (names::TLS_CERT, names::TLS_KEY);
                reader
                    .0
                    .push(format!("{cert} and {key}: one without the other"));
                None
            }
        };
        if log.parse::<tracing_subscriber::EnvFilter>().is_err() {
            reader
                .0
                .push(format!("{}: `{log}` is not a log filter", names::LOG));
        }
        let reflection = match reflection.trim() {
            "1" | "true" => true,
            "0" | "false" | "" => false,
            other => {
                reader.0.push(format!(
                    "{}: `{other}` is neither 0 nor 1",
                    names::REFLECTION
                ));
                false
            }
        };
        let host_env = host_env.parse::<HostEnv>().unwrap_or_else(|fault| {
            reader.0.push(format!("{}: {fault}", names::HOST_ENV));
            HostEnv::default()
        });
        let host_dir = host_dir.or_else(own_folder).unwrap_or_default();
        let store = store.unwrap_or_default();
        let store = StoreAt::read(&store, store_token_file.as_deref()).unwrap_or_else(|fault| {
            reader.0.push(fault);
            StoreAt::Folder(store)
        });
        let store = store
            .with_bucket(store_bucket.as_deref())
            .unwrap_or_else(|refused| {
                let (store, fault) = *refused;
                reader.0.push(fault);
                store
            });
        if matches!(store, StoreAt::Endpoint { .. }) && cache_dir.is_none() {
            reader.0.push(format!(
                "{}: the folder for unpacked layers must be named, since {} is an address",
                names::CACHE_DIR,
                names::STORE
            ));
        }
        let config = Self {
            listen: reader.address(names::LISTEN, &listen),
            metrics_listen: (metrics_listen.trim() != "off")
                .then(|| reader.address(names::METRICS_LISTEN, &metrics_listen)),
            secrets: secrets_of(&group),
            group,
            zone,
            keys: KeyFiles {
                dir: keys_dir,
                file: keys_file,
            },
            admin_keys: KeyFiles {
                dir: None,
                file: admin_key_file,
            },
            gateway_keys: KeyFiles {
                dir: None,
                file: gateway_key_file,
            },
            admin_ranges: reader.ranges(names::ADMIN_ALLOWED_CIDRS, admin_allowed_cidrs.as_deref()),
            ranges: reader.ranges(names::ALLOWED_CIDRS, allowed_cidrs.as_deref()),
            address: AddressRule {
                hops: reader.count(names::TRUST_PROXY, &trust_proxy, 0, 20),
                proxies: proxy_cidrs.map(|text| reader.ranges(names::PROXY_CIDRS, Some(&text))),
            },
            max_inflight: reader.count(names::MAX_INFLIGHT, &max_inflight, 1, 1_000_000),
            max_connections: reader.count(names::MAX_CONNECTIONS, &max_connections, 1, 1_000_000),
            call_timeout: Duration::from_secs(reader.number(
                names::CALL_TIMEOUT_SECS,
                &call_timeout_secs,
                1,
                86_400,
            )),
            hosts: hosts.map_or(cores.max(2), |text| {
                reader.count(names::HOSTS, &text, 1, 1024)
            }),
            host_threads: reader.count(names::HOST_THREADS, &host_threads, 1, 512),
            hosts_memory_mib: hosts_memory_mib
                .map(|text| reader.within(names::HOSTS_MEMORY_MIB, &text, HOSTS_MEMORY)),
            host_max_rss: 1024
                * 1024
                * reader.number(names::HOST_RSS_LIMIT_MIB, &host_rss_limit_mib, 0, 1 << 30),
            host_max_calls: reader.number(names::HOST_MAX_CALLS, &host_max_calls, 0, u64::MAX),
            import_timeout: Duration::from_secs(reader.within(
                names::IMPORT_TIMEOUT_SECS,
                &import_timeout_secs,
                IMPORT,
            )),
            host_env: host_env.read(|name| std::env::var(name).ok()),
            cache_dir: cache_dir.unwrap_or_else(|| store.default_cache(Path::new(""))),
            store,
            desired,
            host_dir,
            tls,
            reflection,
            log,
            drain: Duration::from_secs(reader.number(names::DRAIN_SECS, &drain_secs, 0, 86_400)),
            address_file,
        };
        if reader.0.is_empty() {
            Ok(config)
        } else {
            Err(ConfigFaults(reader.0))
        }
    }
}

/// The folder of the running program: where the hosts are installed too.
pub(crate) fn own_folder() -> Option<PathBuf> {
    std::env::current_exe()
        .ok()?
        .parent()
        .map(Path::to_path_buf)
}

#[cfg(test)]
mod tests;
