//! The command line: one struct, flags equal to the variables of [`crate::names`].

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use serde_json::Value;

use crate::names;

/// Keeps `McpGroup`s alive on a Kubernetes cluster
#[derive(Debug, Clone, Parser)]
#[command(name = "ramen-operator", version)]
pub struct Args {
    /// Address and port of /healthz, /readyz and /metrics
    #[arg(long, env = names::LISTEN, default_value = "0.0.0.0:8080", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Address and port of the artifact endpoint
    #[arg(long, env = names::ARTIFACTS_LISTEN, default_value = "0.0.0.0:8081", value_name = "HOST:PORT")]
    pub artifacts_listen: SocketAddr,
    /// Address and port of the webhook receiver, or `off`
    #[arg(long, env = names::HOOKS_LISTEN, default_value = "0.0.0.0:8082", value_name = "HOST:PORT|off")]
    pub hooks_listen: Listen,
    /// Folder of the webhook receivers; without it none are received
    #[arg(long, env = names::HOOKS_DIR, value_name = "DIR")]
    pub hooks_dir: Option<PathBuf>,
    /// Where pods reach the artifact endpoint
    #[arg(long, env = names::ARTIFACTS_URL, default_value = "http://ramen-artifacts:8081", value_name = "URL")]
    pub artifacts_url: String,
    /// Folder of the artifact store, or a bucket: s3://…, gs://…, az://…
    #[arg(long, env = names::STORE, default_value = "/var/lib/ramen/store", value_name = "DIR|BUCKET")]
    pub store: PathBuf,
    /// Pods read layers from the bucket of the store themselves
    #[arg(long, env = names::PODS_BUCKET, value_parser = clap::builder::BoolishValueParser::new(), default_value = "false", action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    pub pods_bucket: bool,
    /// Secret of each namespace with the variables for that
    #[arg(long, env = names::PODS_BUCKET_SECRET, value_name = "NAME")]
    pub pods_bucket_secret: Option<String>,
    /// Ranges in which the bucket is, for the policies of pods
    #[arg(long, env = names::PODS_BUCKET_CIDRS, value_delimiter = ',', value_name = "CIDR,…")]
    pub pods_bucket_cidrs: Vec<String>,
    /// Folder for fetches
    #[arg(long, env = names::SCRATCH, default_value = "/var/lib/ramen/scratch", value_name = "DIR")]
    pub scratch: PathBuf,
    /// Namespaces to look after [default: all]
    #[arg(long, env = names::NAMESPACES, value_delimiter = ',', value_name = "NAMESPACE,…")]
    pub namespaces: Vec<String>,
    /// The operator's own namespace [default: that of its service account]
    #[arg(long, env = names::NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of this replica in the lease [default: the host's name]
    #[arg(long, env = names::IDENTITY, value_name = "NAME")]
    pub identity: Option<String>,
    /// Name of the lease, or `off`
    #[arg(long, env = names::LEASE, default_value = "ramen-operator", value_name = "NAME|off")]
    pub lease: String,
    /// The image of workers and deploy jobs whose group names none
    #[arg(long, env = names::WORKER_IMAGE, default_value = "localhost/ramen-worker:dev", value_name = "IMAGE")]
    pub worker_image: String,
    /// `Always`, `IfNotPresent` or `Never`
    #[arg(long, env = names::IMAGE_PULL_POLICY, default_value = "IfNotPresent", value_name = "POLICY")]
    pub image_pull_policy: String,
    /// The namespace of the gateways [default: there are none]
    #[arg(long, env = names::GATEWAY_NAMESPACE, value_name = "NAMESPACE")]
    pub gateway_namespace: Option<String>,
    /// Who answers names for pods of groups, as a JSON list of peers [default: the DNS pods of kube-system]
    #[arg(long, env = names::DNS_TO, value_name = "PEERS")]
    pub dns_to: Option<Peers>,
    /// Who may read the metrics of workers, as a JSON list of peers [default: every pod]
    #[arg(long, env = names::METRICS_FROM, value_name = "PEERS")]
    pub metrics_from: Option<Peers>,
    /// Groups that are reconciled at once
    #[arg(long, env = names::CONCURRENCY, default_value_t = 16, value_name = "N")]
    pub concurrency: u16,
    /// Fetches at once
    #[arg(long, env = names::FETCHES, default_value_t = 4, value_name = "N")]
    pub fetches: usize,
    /// Allow repositories over plain http
    #[arg(long, env = names::ALLOW_HTTP, value_parser = clap::builder::BoolishValueParser::new(), default_value = "false", action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    pub allow_http: bool,
    /// What is logged
    #[arg(long, env = names::LOG, default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// `json` or `text`
    #[arg(long, env = names::LOG_FORMAT, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// An address, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self(None)),
            text => text.parse().map(|address| Self(Some(address))),
        }
    }
}

/// Peers of a `NetworkPolicy`, as its fields `from` and `to` have them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peers(pub Vec<NetworkPolicyPeer>);

impl std::str::FromStr for Peers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let given: Vec<Value> = serde_json::from_str(text)
            .map_err(|error| format!("is no JSON list of peers: {error}"))?;
        given.iter().map(peer).collect::<Result<_, _>>().map(Self)
    }
}

/// One of them. A field that is misspelt would be left out, and the peer mean more than it says.
fn peer(given: &Value) -> Result<NetworkPolicyPeer, String> {
    let peer: NetworkPolicyPeer = serde_json::from_value(given.clone())
        .map_err(|error| format!("{given} is no peer: {error}"))?;
    if peer == NetworkPolicyPeer::default() {
        return Err(format!("{given} names no peer"));
    }
    match serde_json::to_value(&peer) {
        Ok(known) if known == *given => Ok(peer),
        _ => Err(format!("{given} has a field that no peer has")),
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_defaults_and_take_words() {
        let args = Args::parse_from([
            "ramen-operator",
            "--hooks-listen",
            "off",
            "--namespaces",
            "a,b",
        ]);
        assert_eq!(args.hooks_listen, Listen(None));
        assert_eq!(args.namespaces, ["a", "b"]);
        assert!(!args.allow_http);
        assert!(Args::parse_from(["ramen-operator", "--allow-http", "1"]).allow_http);
        assert!(Args::try_parse_from(["ramen-operator", "--listen", "nowhere"]).is_err());
    }

    #[test]
    fn a_peer_that_is_misspelt_is_refused() {
        let parsed = |text: &str| text.parse::<Peers>();
        assert_eq!(parsed(""), Ok(Peers::default()));
        let given = r#"[{"podSelector": {"matchLabels": {"app": "prometheus"}}},
            {"namespaceSelector": {}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}]"#;
        assert_eq!(parsed(given).unwrap().0.len(), 3);
        for (wrong, says) in [
            (r#"{"podSelector": {}}"#, "no JSON list"),
            ("[{}]", "names no peer"),
            (r#"[{"podSelecter": {}}]"#, "names no peer"),
            (
                r#"[{"podSelector": {"matchLabel": {"app": "x"}}}]"#,
                "a field that no peer has",
            ),
        ] {
            let told = parsed(wrong).unwrap_err();
            assert!(told.contains(says), "{told}");
        }
        let args = ["ramen-operator", "--dns-to", given];
        assert_eq!(Args::parse_from(args).dns_to.unwrap().0.len(), 3);
    }
}
