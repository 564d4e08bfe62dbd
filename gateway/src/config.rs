//! Flags and environment of `ramen-gateway`, read once, into values that are right. All faults are told
//! in one message.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ramen_group::{AddressRule, CidrSet};

use crate::callers::Limits;
use crate::names;
use crate::oidc::SettingsFile;
use crate::origin::Sites;
use crate::upstreams::Policy;

/// This machine.
const LOOPBACK: &str = "127.0.0.0/8,::1/128";

/// Arguments of `ramen-gateway`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Address and port of the HTTP endpoints
    #[arg(long, env = names::LISTEN, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Where groups come from
    #[arg(long, env = names::DISCOVERY, default_value = "file", value_name = "file|kube")]
    pub discovery: Origin,
    /// With `file`: names the groups, their keys and workers; watched
    #[arg(long, env = names::CONFIG, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// With `kube`: namespaces whose groups are served, separated by commas [default: all]
    #[arg(long, env = names::NAMESPACES, value_name = "NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// With `kube`: the namespace with the keys of groups [default: that of the service account]
    #[arg(long, env = names::NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Hosts that are served, separated by commas [default: loopback names on a loopback address, any on others]
    #[arg(long, env = names::ALLOWED_HOSTS, value_name = "HOSTS", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Origins whose web pages may call groups and read the answers, separated by commas [default: the gateway's own]
    #[arg(long, env = names::ALLOWED_ORIGINS, value_name = "ORIGINS", value_delimiter = ',')]
    pub allowed_origins: Vec<String>,
    /// File that says whose tokens count (OIDC), watched; without it only keys do
    #[arg(long, env = names::OIDC_CONFIG, value_name = "FILE")]
    pub oidc: Option<PathBuf>,
    /// How many proxies stand before the gateway
    #[arg(long, env = names::TRUST_PROXY, default_value = "0", value_name = "HOPS")]
    pub trust_proxy: u8,
    /// Ranges of those proxies; unset: any
    #[arg(long, env = names::PROXY_CIDRS, value_name = "CIDRS")]
    pub proxy_cidrs: Option<String>,
    /// Connections at once
    #[arg(long, env = names::MAX_CONNECTIONS, default_value = "16384", value_name = "N")]
    pub max_connections: u32,
    /// Longest time of one call
    #[arg(long, env = names::CALL_TIMEOUT_SECS, default_value = "120", value_name = "SECS")]
    pub call_timeout_secs: u32,
    /// Requests per second of one caller; 0: no limit
    #[arg(long, env = names::CALLER_RATE, default_value = "0", value_name = "N")]
    pub caller_rate: u32,
    /// Requests at once of one caller
    #[arg(long, env = names::CALLER_INFLIGHT, default_value = "512", value_name = "N")]
    pub caller_inflight: u32,
    /// Listen streams at once of one caller
    #[arg(long, env = names::CALLER_STREAMS, default_value = "1024", value_name = "N")]
    pub caller_streams: u32,
    /// Certificate chain (PEM); with --tls-key: HTTPS
    #[arg(long, env = names::TLS_CERT, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, env = names::TLS_KEY, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Ranges that upstreams may be in although they are not public, separated by commas
    #[arg(long, env = names::UPSTREAM_ALLOWED_CIDRS, value_name = "CIDRS")]
    pub upstream_allowed_cidrs: Option<String>,
    /// Start the upstreams that are programs, as this user
    #[arg(long, env = names::UPSTREAM_COMMANDS)]
    pub upstream_commands: bool,
    /// Seconds that requests may go on after SIGTERM
    #[arg(long, env = names::DRAIN_SECS, default_value = "30", value_name = "SECS")]
    pub drain_secs: u32,
    /// File that is written with the addresses and the process id
    #[arg(long, env = names::ADDRESS_FILE, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
    /// Address and port of /metrics [default: not served]
    #[arg(long, env = names::METRICS_LISTEN, value_name = "ADDR")]
    pub metrics_listen: Option<SocketAddr>,
    /// Folder of operators: keys in NAME.read, NAME.write and NAME.keys, rules in NAME.yaml; watched [default: no operations are served]
    #[arg(long, env = names::OPERATORS_DIR, value_name = "DIR")]
    pub operators_dir: Option<PathBuf>,
    /// Ranges that operators may call from, separated by commas [default: this machine]
    #[arg(long, env = names::OPERATORS_CIDRS, value_name = "CIDRS")]
    pub operators_cidrs: Option<String>,
    /// Log filter
    #[arg(long, env = names::LOG, default_value = "info", value_name = "FILTER")]
    pub log: String,
}

/// Where groups come from, as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Origin {
    /// A file.
    File,
    /// The API server of a cluster.
    Kube,
}

/// Where groups come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file of groups.
    File(PathBuf),
    /// The API server of a cluster.
    Kube {
        /// Namespaces of groups; none: all.
        namespaces: Vec<String>,
        /// The gateways' own namespace; else that of the service account.
        own: Option<String>,
    },
}

/// What the arguments mean.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where groups come from.
    pub source: Source,
    /// Hosts and origins.
    pub sites: Sites,
    /// Whose tokens count.
    pub oidc: Option<SettingsFile>,
    /// How callers' addresses are found.
    pub address: AddressRule,
    /// Connections at once.
    pub max_connections: usize,
    /// Longest time of one call.
    pub call_timeout: Duration,
    /// What one caller may take.
    pub limits: Limits,
    /// Certificate and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// What upstreams may be.
    pub upstreams: Policy,
    /// How long requests may go on after SIGTERM.
    pub drain: Duration,
    /// Where `/metrics` is.
    pub metrics: Option<SocketAddr>,
    /// The folder of the platform's operators.
    pub operators: Option<PathBuf>,
    /// Where operators may be.
    pub operators_ranges: CidrSet,
    /// Where to write the address.
    pub address_file: Option<PathBuf>,
    /// Log filter.
    pub log: String,
}

/// Everything that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("bad configuration:\n  {}", .0.join("\n  "))]
pub struct ConfigError(Vec<String>);

impl Config {
    /// Judges the arguments.
    pub fn new(args: Args) -> Result<Self, ConfigError> {
        let Args {
            listen,
            discovery,
            config,
            namespaces,
            namespace,
            allowed_hosts,
            allowed_origins,
            oidc,
            trust_proxy,
            proxy_cidrs,
            max_connections,
            call_timeout_secs,
            caller_rate,
            caller_inflight,
            caller_streams,
            tls_cert,
            tls_key,
            upstream_allowed_cidrs,
            upstream_commands,
            drain_secs,
            address_file,
            metrics_listen,
            operators_dir,
            operators_cidrs,
            log,
        } = args;
        let mut faults = Vec::new();
        let mut ranges = |name: &str, text: &str| {
            CidrSet::parse_list(text).unwrap_or_else(|errors| {
                faults.extend(errors.iter().map(|error| format!("{name}: {error}")));
                CidrSet::default()
            })
        };
        let proxies = proxy_cidrs.map(|text| ranges(names::PROXY_CIDRS, &text));
        let operators_cidrs = operators_cidrs.as_deref().unwrap_or(LOOPBACK);
        let operators_ranges = ranges(names::OPERATORS_CIDRS, operators_cidrs);
        let upstreams = Policy {
            allowed: ranges(
                names::UPSTREAM_ALLOWED_CIDRS,
                upstream_allowed_cidrs.as_deref().unwrap_or_default(),
            ),
            commands: upstream_commands,
            ..Policy::default()
        };
        for (name, value) in [
            (names::MAX_CONNECTIONS, max_connections),
            (names::CALL_TIMEOUT_SECS, call_timeout_secs),
            (names::CALLER_INFLIGHT, caller_inflight),
        ] {
            if value == 0 {
                faults.push(format!("{name}: must be at least 1"));
            }
        }
        let source = source(
            discovery,
            config,
            trimmed(namespaces),
            namespace,
            &mut faults,
        );
        let origins = origins(allowed_origins, &mut faults);
        let oidc = oidc.and_then(|file| {
            SettingsFile::read(file, None)
                .map_err(|error| faults.push(format!("{}: {error}", names::OIDC_CONFIG)))
                .ok()
        });
        if !faults.is_empty() {
            return Err(ConfigError(faults));
        }
        let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        Ok(Self {
            listen,
            source,
            sites: Sites {
                loopback: listen.ip().to_canonical().is_loopback(),
                hosts: trimmed(allowed_hosts),
                origins,
            },
            oidc,
            address: AddressRule {
                hops: trust_proxy.into(),
                proxies,
            },
            max_connections: size(max_connections),
            call_timeout: Duration::from_secs(call_timeout_secs.into()),
            limits: Limits {
                rate: caller_rate,
                in_flight: size(caller_inflight),
                streams: size(caller_streams),
            },
            tls: tls_cert.zip(tls_key),
            upstreams,
            drain: Duration::from_secs(drain_secs.into()),
            metrics: metrics_listen,
            operators: operators_dir,
            operators_ranges,
            address_file,
            log,
        })
    }
}

/// A list of a variable: blanks, empty entries and slashes at the end mean nothing.
fn trimmed(list: Vec<String>) -> Vec<String> {
    let list = list
        .into_iter()
        .map(|entry| entry.trim().trim_end_matches('/').to_owned());
    list.filter(|entry| !entry.is_empty()).collect()
}

/// The origins that browsers may call from.
fn origins(list: Vec<String>, faults: &mut Vec<String>) -> Vec<String> {
    let origins = trimmed(list);
    for origin in &origins {
        if !origin.contains("://") {
            faults.push(format!(
                "{}: `{origin}` is no origin like https://app.example.com",
                names::ALLOWED_ORIGINS
            ));
        }
    }
    origins
}

/// Where groups come from, as far as the arguments agree.
fn source(
    origin: Origin,
    file: Option<PathBuf>,
    namespaces: Vec<String>,
    own: Option<String>,
    faults: &mut Vec<String>,
) -> Source {
    if origin == Origin::Kube && cfg!(not(feature = "discovery-kube")) {
        faults.push(format!(
            "{}: this program was built without the feature discovery-kube",
            names::DISCOVERY
        ));
    }
    match (origin, file) {
        (Origin::File, Some(file)) => return Source::File(file),
        (Origin::File, None) => faults.push(format!(
            "{} (--config): the file of groups must be named, or {} be kube",
            names::CONFIG,
            names::DISCOVERY
        )),
        (Origin::Kube, Some(_)) => faults.push(format!(
            "{} is for {}=file; with kube the groups are those of the cluster",
            names::CONFIG,
            names::DISCOVERY
        )),
        (Origin::Kube, None) => {}
    }
    Source::Kube {
        namespaces,
        own: own.filter(|name| !name.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Result<Config, ConfigError> {
        let all = ["gateway", "--config", "groups.yaml"].iter().chain(args);
        Config::new(<Cli as clap::Parser>::parse_from(all).args)
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let error = parse(&[
            "--proxy-cidrs",
            "10.0.0.1/8,x",
            "--upstream-allowed-cidrs",
            "10.0.0.0/8,private",
            "--max-connections",
            "0",
            "--allowed-origins",
            "app",
        ]);
        let text = error.unwrap_err().to_string();
        for part in [
            "`10.0.0.1/8`",
            "`x`",
            "RAMEN_UPSTREAM_ALLOWED_CIDRS: `private`",
            "RAMEN_MAX_CONNECTIONS",
            "`app`",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn groups_come_from_a_file_or_from_a_cluster_and_not_from_both() {
        let parse = |args: &[&str]| {
            let all = ["gateway"].iter().chain(args);
            Config::new(<Cli as clap::Parser>::parse_from(all).args)
        };
        let of_cluster = parse(&["--discovery", "kube", "--namespaces", "team-a, team-b,"]);
        assert_eq!(
            of_cluster.unwrap().source,
            Source::Kube {
                namespaces: vec!["team-a".into(), "team-b".into()],
                own: None
            }
        );
        let neither = parse(&[]).unwrap_err().to_string();
        assert!(neither.contains("RAMEN_GATEWAY_CONFIG"), "{neither}");
        let both = parse(&["--discovery", "kube", "--config", "x"]).unwrap_err();
        assert!(
            both.to_string().contains("RAMEN_GATEWAY_DISCOVERY"),
            "{both}"
        );
    }

    #[test]
    fn a_loopback_address_is_known_as_one() {
        assert!(parse(&[]).unwrap().sites.loopback);
        assert!(
            parse(&["--listen", "[::ffff:127.0.0.1]:80"])
                .unwrap()
                .sites
                .loopback
        );
        assert!(!parse(&["--listen", "0.0.0.0:80"]).unwrap().sites.loopback);
    }
}
