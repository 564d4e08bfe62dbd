//! The command line: one struct, flags equal to the variables of [`crate::names`].

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Parser;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
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

/// One of them. A field that is misspelt would be left out, and the peer mean more than it says. What the API server refuses
/// must not come as far as the policies of groups: none of them could be written.
fn peer(given: &Value) -> Result<NetworkPolicyPeer, String> {
    let given = &without_nulls(given);
    let peer: NetworkPolicyPeer = serde_json::from_value(given.clone())
        .map_err(|error| format!("{given} is no peer: {error}"))?;
    if peer == NetworkPolicyPeer::default() {
        return Err(format!("{given} names no peer"));
    }
    match serde_json::to_value(&peer) {
        Ok(known) if known == *given => {}
        _ => return Err(format!("{given} has a field that no peer has")),
    }
    let selectors = [&peer.pod_selector, &peer.namespace_selector];
    if peer.ip_block.is_some() && selectors.iter().any(|selector| selector.is_some()) {
        return Err(format!("{given} has both an ipBlock and a selector"));
    }
    if let Some(block) = &peer.ip_block {
        check_block(block).map_err(|why| format!("{given}: {why}"))?;
    }
    for selector in selectors.into_iter().flatten() {
        check_selector(selector).map_err(|why| format!("{given}: {why}"))?;
    }
    Ok(peer)
}

/// A field that is null is absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let given = fields.iter().filter(|(_, value)| !value.is_null());
            let given = given.map(|(name, value)| (name.clone(), without_nulls(value)));
            Value::Object(given.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

fn check_block(block: &IPBlock) -> Result<(), String> {
    let range = |text: &str| Range::parse(text).ok_or_else(|| format!("{text} is no range"));
    let whole = range(&block.cidr)?;
    for text in block.except.iter().flatten() {
        if !whole.holds(&range(text)?) {
            return Err(format!("{text} is no part of {}", block.cidr));
        }
    }
    Ok(())
}

fn check_selector(selector: &LabelSelector) -> Result<(), String> {
    for rule in selector.match_expressions.iter().flatten() {
        let values = rule
            .values
            .as_ref()
            .is_some_and(|values| !values.is_empty());
        match (rule.operator.as_str(), values) {
            ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => {}
            ("In" | "NotIn", false) => return Err(format!("{} needs values", rule.operator)),
            ("Exists" | "DoesNotExist", true) => {
                return Err(format!("{} takes no values", rule.operator));
            }
            (other, _) => return Err(format!("{other} is no operator")),
        }
    }
    Ok(())
}

/// A range of a policy. Unlike those of groups it may have bits behind its prefix, as the API server takes them, and always
/// has a prefix.
struct Range {
    address: IpAddr,
    prefix: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        if !prefix.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let prefix: u32 = prefix.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Self { address, prefix })
    }

    /// Whether another lies in it, and is smaller.
    fn holds(&self, inner: &Self) -> bool {
        let beyond = match (self.address, inner.address) {
            (IpAddr::V4(outer), IpAddr::V4(inner)) => {
                let differ = outer.to_bits() ^ inner.to_bits();
                differ.checked_shr(32 - self.prefix).unwrap_or(0) != 0
            }
            (IpAddr::V6(outer), IpAddr::V6(inner)) => {
                let differ = outer.to_bits() ^ inner.to_bits();
                differ.checked_shr(128 - self.prefix).unwrap_or(0) != 0
            }
            _ => true,
        };
        !beyond && inner.prefix > self.prefix
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
        // Absent, however that is said.
        let nulls = r#"[{"podSelector": null, "namespaceSelector": {"matchLabels": null}}]"#;
        assert!(parsed(nulls).unwrap().0[0].pod_selector.is_none());
        assert!(parsed(r#"[{"podSelector": null}]"#).is_err());
        let args = ["ramen-operator", "--dns-to", given];
        assert_eq!(Args::parse_from(args).dns_to.unwrap().0.len(), 3);
    }

    /// One of these in the policies of groups, and no group could be written.
    #[test]
    fn a_peer_that_the_api_server_refuses_is_refused_at_the_start() {
        let parsed = |peer: &str| format!("[{peer}]").parse::<Peers>();
        for good in [
            r#"{"ipBlock": {"cidr": "192.0.2.7/24"}}"#,
            r#"{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "192.0.2.7/32"]}}"#,
            r#"{"ipBlock": {"cidr": "fd00::/8", "except": ["fd00:ec2::254/128"]}}"#,
            r#"{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}"#,
            r#"{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}"#,
        ] {
            assert!(parsed(good).is_ok(), "{good}");
        }
        for (wrong, says) in [
            (r#"{"ipBlock": {"cidr": "192.0.2.7"}}"#, "is no range"),
            (r#"{"ipBlock": {"cidr": "192.0.2.0/33"}}"#, "is no range"),
            (r#"{"ipBlock": {"cidr": "192.0.2.0/+8"}}"#, "is no range"),
            (r#"{"ipBlock": {"cidr": "fd00::/129"}}"#, "is no range"),
            (r#"{"ipBlock": {"cidr": "monitoring/24"}}"#, "is no range"),
            (
                r#"{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.0.2.0/24"]}}"#,
                "no part of",
            ),
            (
                r#"{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}"#,
                "no part of",
            ),
            (
                r#"{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["fd00::/8"]}}"#,
                "no part of",
            ),
            (
                r#"{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}"#,
                "both an ipBlock and a selector",
            ),
            (
                r#"{"podSelector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}"#,
                "no operator",
            ),
            (
                r#"{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}"#,
                "needs values",
            ),
        ] {
            let told = parsed(wrong).unwrap_err();
            assert!(told.contains(says), "{wrong}: {told}");
        }
    }
}
