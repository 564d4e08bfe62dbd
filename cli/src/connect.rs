//! Flags and environment that say which worker to speak to, shared by `bridge`, `call`, `ls`, `read` and `prompt`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ramen_client::ServerConfig;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::exit::Failure;
use crate::names;
use crate::output;
use crate::servers;
use crate::state::{Running, StateDir};
use crate::upstream::Target;

/// Which worker, with which key.
#[derive(Args, Clone)]
pub struct ConnectArgs {
    /// Worker or load balancer, host:port [default: the running `ramen up`]
    #[arg(long, env = names::BRIDGE_TARGET, value_name = "HOST:PORT")]
    pub target: Option<String>,
    /// MCP key; better given by the environment (`RAMEN_MCP_KEY` works too) or --key-file
    #[arg(long, env = names::BRIDGE_KEY, hide_env_values = true, value_name = "KEY")]
    pub key: Option<String>,
    /// File whose first line that is no comment is the MCP key; comes before --key
    #[arg(long, env = names::BRIDGE_KEY_FILE, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Group: the `ramen-group` metadata, and which group of the running `ramen up`
    #[arg(long, env = names::BRIDGE_GROUP, value_name = "NAME")]
    pub group: Option<String>,
    /// Zone: the `ramen-zone` metadata
    #[arg(long, env = names::BRIDGE_ZONE, value_name = "NAME")]
    pub zone: Option<String>,
    /// Speak TLS and trust the system's certificates
    #[arg(long, env = names::BRIDGE_TLS, value_parser = clap::builder::FalseyValueParser::new())]
    pub tls: bool,
    /// PEM bundle to trust instead of the system's; implies --tls
    #[arg(long, env = names::BRIDGE_CA, value_name = "PEM")]
    pub ca: Option<PathBuf>,
    /// Plain HTTP/2 without TLS (the default); cannot be mixed with --tls or --ca
    #[arg(long)]
    pub insecure: bool,
    /// Another MCP server instead of a worker: a name of the `mcpServers` files, or the address of a Streamable HTTP server
    #[arg(long, value_name = "NAME|URL")]
    pub server: Option<String>,
    /// A header of each request to the address of a server, 'Name: value'; better in a file given with --config
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
    /// File with `mcpServers` [default: `$XDG_CONFIG_HOME/ramen/mcp.json` and `.ramen/mcp.json`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Seconds until a call is given up
    #[arg(long, env = names::BRIDGE_TIMEOUT, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub timeout: Duration,
    /// State directory of `ramen up` [default: `$XDG_STATE_HOME/ramen`]
    #[arg(long, env = names::STATE_DIR, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Parses a positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(n) if n > 0.0 && n.is_finite() => {
            Duration::try_from_secs_f64(n).map_err(|e| e.to_string())
        }
        _ => Err("a number of seconds above 0 is needed".to_owned()),
    }
}

/// Where the key of a call comes from: the first of these that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// The file of `--key-file` or its variable.
    File(PathBuf),
    /// `--key`, or its variable.
    Flag,
    /// `RAMEN_MCP_KEY`.
    Variable,
    /// The state directory of the running `ramen up`.
    State,
    /// Nowhere: there is none.
    Nowhere,
}

impl KeySource {
    /// What is said when the key is refused: which one it was, and the way out.
    pub(crate) fn hint(&self) -> String {
        let which = match self {
            Self::File(file) => format!("of --key-file {}", file.display()),
            Self::Flag => format!("of --key or {}", names::BRIDGE_KEY),
            Self::Variable => format!("of {}", names::MCP_KEY),
            Self::State => {
                return "it was the key of the state directory: one that was just replaced counts within a second, \
                        another one is given with --key-file"
                    .to_owned();
            }
            Self::Nowhere => {
                return format!(
                    "no key was given: name a file with --key-file, or set {}",
                    names::MCP_KEY
                );
            }
        };
        format!(
            "it was the key {which}: give one of this group, or take it away, and the running `ramen up` is called with its own"
        )
    }
}

impl ConnectArgs {
    /// The running group that the flags name.
    pub(crate) fn running(&self) -> Result<Running, Failure> {
        StateDir::locate(self.state_dir.as_deref())?.running(self.group.as_deref())
    }

    /// The gateway of the running `ramen up` and its address, for a group that is another one past it: upstreams and
    /// access rules are the gateway's. `None` for every worker that is all of its group.
    pub(crate) fn gateway(&self) -> Result<Option<(String, ServerConfig)>, Failure> {
        if self.target.is_some() {
            return Ok(None);
        }
        let running = self.running()?;
        if !running.info.through_gateway {
            return Ok(None);
        }
        let Some(url) = &running.url else {
            output::note(&format!(
                "warning: `ramen up` does not serve {} over HTTP: its upstreams are missing here, and its access rules do not count",
                running.info.full_name()
            ));
            return Ok(None);
        };
        let key = self.key(Some(&running))?;
        let key = key.map(|key| format!("Authorization: Bearer {}", key.trim()));
        Ok(Some((url.clone(), servers::at(url, key.as_slice())?)))
    }

    /// Resolves flags, environment and the state of a running `ramen up` into a target.
    pub fn resolve(&self) -> Result<Target, Failure> {
        if self.insecure && (self.tls || self.ca.is_some()) {
            return Err(Failure::usage(
                "--insecure cannot be mixed with --tls or --ca: choose one",
            ));
        }
        let (address, key) = if let Some(target) = &self.target {
            (target.clone(), self.key(None)?)
        } else {
            let running = self.running()?;
            let key = self.key(Some(&running))?;
            (running.address, key)
        };
        let (address, scheme_tls) = strip_scheme(&address);
        let tls = self.tls || self.ca.is_some() || scheme_tls;
        let endpoint = endpoint(&address, tls, self.ca.as_deref())?;
        let metadata = self.metadata(key.as_deref())?;
        Ok(Target {
            address,
            endpoint,
            metadata,
            key: self.key_source(),
            timeout: self.timeout,
        })
    }

    /// Where the key comes from.
    pub(crate) fn key_source(&self) -> KeySource {
        if let Some(file) = &self.key_file {
            KeySource::File(file.clone())
        } else if self.key.as_ref().is_some_and(|key| !key.is_empty()) {
            KeySource::Flag
        } else if std::env::var(names::MCP_KEY).is_ok_and(|key| !key.is_empty()) {
            KeySource::Variable
        } else if self.target.is_none() {
            KeySource::State
        } else {
            KeySource::Nowhere
        }
    }

    /// The key; never shown in a message.
    fn key(&self, running: Option<&Running>) -> Result<Option<String>, Failure> {
        match self.key_source() {
            KeySource::File(file) => read_key(&file).map(Some),
            KeySource::Flag => Ok(self.key.clone()),
            KeySource::Variable => Ok(std::env::var(names::MCP_KEY).ok()),
            KeySource::State => running
                .map(|running| read_key(&running.info.key_file))
                .transpose(),
            KeySource::Nowhere => Ok(None),
        }
    }

    fn metadata(&self, key: Option<&str>) -> Result<MetadataMap, Failure> {
        let mut metadata = MetadataMap::new();
        if let Some(key) = key {
            metadata.insert("authorization", bearer(key)?);
        }
        for (name, value) in [("ramen-group", &self.group), ("ramen-zone", &self.zone)] {
            let Some(value) = value.as_ref().filter(|value| !value.is_empty()) else {
                continue;
            };
            let value = value.parse().map_err(|_| {
                Failure::usage(format!("{name} holds characters that no header can carry"))
            })?;
            metadata.insert(name, value);
        }
        Ok(metadata)
    }
}

/// A worker of this machine, called with this key.
pub(crate) fn nearby(address: &str, key: &str, timeout: Duration) -> Result<Target, Failure> {
    let mut metadata = MetadataMap::new();
    metadata.insert("authorization", bearer(key)?);
    Ok(Target {
        address: address.to_owned(),
        endpoint: endpoint(address, false, None)?,
        metadata,
        key: KeySource::State,
        timeout,
    })
}

fn bearer(key: &str) -> Result<MetadataValue<Ascii>, Failure> {
    let mut value: MetadataValue<_> = format!("Bearer {}", key.trim())
        .parse()
        .map_err(|_| Failure::usage("the key holds characters that no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Reads the first key of a key file.
pub(crate) fn read_key(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!(
            "cannot read the key file {}: {error}",
            file.display()
        ))
    })?;
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("the key file {} holds no key", file.display())))
}

/// Accepts `http://`, `https://` and gRPC's `dns:///` in front of host:port.
fn strip_scheme(target: &str) -> (String, bool) {
    let target = target.trim().trim_end_matches('/');
    if let Some(rest) = target.strip_prefix("https://") {
        return (rest.to_owned(), true);
    }
    let rest = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("dns:///"));
    (rest.unwrap_or(target).to_owned(), false)
}

fn endpoint(address: &str, tls: bool, ca: Option<&Path>) -> Result<Endpoint, Failure> {
    let scheme = if tls { "https" } else { "http" };
    let bad = |why: String| Failure::usage(format!("bad target {address:?}: {why}"));
    let url = url::Url::parse(&format!("{scheme}://{address}")).map_err(|e| bad(e.to_string()))?;
    if url.host().is_none() || !url.username().is_empty() || !matches!(url.path(), "" | "/") {
        return Err(bad("host:port is needed".to_owned()));
    }
    let endpoint =
        Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|e| bad(e.to_string()))?;
    if !tls {
        return Ok(endpoint);
    }
    let pem = match ca {
        Some(file) => std::fs::read(file)
            .map_err(|e| Failure::usage(format!("cannot read --ca {}: {e}", file.display())))?,
        None => system_roots()?,
    };
    endpoint
        .tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
        .map_err(|e| Failure::usage(format!("the certificates cannot be used: {e}")))
}

/// Where Linux distributions and macOS keep the bundle of trusted certificates.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

fn system_roots() -> Result<Vec<u8>, Failure> {
    let named = std::env::var_os(names::SSL_CERT_FILE).map(PathBuf::from);
    let bundles = BUNDLES.iter().map(PathBuf::from);
    named
        .into_iter()
        .chain(bundles)
        .find_map(|file| std::fs::read(file).ok())
        .ok_or_else(|| {
            Failure::usage("no bundle of trusted certificates found: name one with --ca")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_in_front_of_the_address_are_accepted() {
        assert_eq!(
            strip_scheme("localhost:1"),
            ("localhost:1".to_owned(), false)
        );
        assert_eq!(
            strip_scheme("http://localhost:1/"),
            ("localhost:1".to_owned(), false)
        );
        assert_eq!(strip_scheme("https://h:1"), ("h:1".to_owned(), true));
        assert_eq!(strip_scheme("dns:///h:1"), ("h:1".to_owned(), false));
    }

    #[test]
    fn targets_that_are_no_address_are_refused() {
        for bad in ["", "a b", "user@host:1", "host:1/path", "host:notaport"] {
            assert!(endpoint(bad, false, None).is_err(), "{bad}");
        }
        assert!(endpoint("[::1]:50051", false, None).is_ok());
    }

    #[test]
    fn the_key_is_the_first_line_that_is_no_comment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "# made by hand\n\n  rmk_abc  \nrmk_def\n").unwrap();
        assert_eq!(read_key(&file).unwrap(), "rmk_abc");
        std::fs::write(&file, "# none\n").unwrap();
        assert!(
            read_key(&file)
                .unwrap_err()
                .to_string()
                .contains("holds no key")
        );
    }
}
