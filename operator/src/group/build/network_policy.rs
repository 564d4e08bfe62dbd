//! Who reaches the pods, and what their code reaches.
//!
//! A policy sees addresses after any translation on the way. Without proxies the ranges of
//! `allowedCIDRs` are let in; with `trustedProxyHops` the peer is a proxy whose address is not known, so
//! pods of the cluster are let in too. The worker judges the caller's address itself either way.

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ramen_crds::{Egress, Zone};
use ramen_group::CidrSet;

use super::{Labels, Operator, Validated, meta, selector, zone_meta};
use crate::names::{self, child};

/// Where clouds answer with credentials of the node.
const METADATA_V4: &[&str] = &["169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32"];
const METADATA_V6: &[&str] = &["fd00:ec2::254/128", "fe80::/10"];
/// Where a DNS cache on each node listens: that of Kubernetes, and that of AKS, which has two addresses.
const NODE_DNS: &[&str] = &["169.254.20.10/32", "169.254.10.10/31"];
/// The labels of pods that answer names: of the cluster's DNS, whatever its program is, and of the cache, to which some
/// network plugins lead what is sent to the DNS.
const DNS_PODS: &[&str] = &["kube-dns", "node-local-dns"];
/// Where they listen. A policy sees the port of the pod, not that of the Service, and the pods of `OpenShift` have the other.
const DNS_PORTS: &[u16] = &[53, 5353];
/// Variables of `worker.env` with addresses of package indexes.
const INDEXES: &[&str] = &[
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
];

/// Whom policies let in and out besides callers and what groups ask for.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// The namespace of the operator's pods; without it there are none.
    operator: Option<String>,
    /// Who answers names.
    dns: Vec<NetworkPolicyPeer>,
    /// Who reads metrics of workers.
    metrics: Vec<NetworkPolicyPeer>,
}

impl Network {
    /// With the peers that were named; a peer without a namespace is of the operator's, as in its own policy.
    pub(crate) fn new(
        operator: Option<String>,
        dns: Vec<NetworkPolicyPeer>,
        metrics: Vec<NetworkPolicyPeer>,
    ) -> Self {
        let own = operator.as_deref().map(of_name);
        let named = |mut peers: Vec<NetworkPolicyPeer>, otherwise: NetworkPolicyPeer| {
            for peer in &mut peers {
                if peer.ip_block.is_none() && peer.namespace_selector.is_none() {
                    peer.namespace_selector.clone_from(&own);
                }
            }
            // No list of peers is empty: that would mean everybody.
            if peers.is_empty() {
                peers.push(otherwise);
            }
            peers
        };
        Self {
            dns: named(dns, cluster_dns()),
            metrics: named(metrics, any_pod()),
            operator,
        }
    }

    /// The operator's pods.
    fn operators(&self) -> Option<NetworkPolicyPeer> {
        let namespace = self.operator.as_deref()?;
        Some(pods("operator", namespace))
    }
}

/// The cluster's DNS.
fn cluster_dns() -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(of_name("kube-system")),
        pod_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "k8s-app".to_owned(),
                operator: "In".to_owned(),
                values: Some(DNS_PODS.iter().map(|name| (*name).to_owned()).collect()),
            }]),
            ..LabelSelector::default()
        }),
        ..NetworkPolicyPeer::default()
    }
}

pub(super) fn build(group: &Validated, operator: &Operator) -> Vec<NetworkPolicy> {
    let zones = group.spec.zones.iter();
    let zones = zones.map(|zone| of_zone(group, operator, zone));
    zones.chain([of_deploy(group, operator)]).collect()
}

fn of_zone(group: &Validated, operator: &Operator, zone: &Zone) -> NetworkPolicy {
    let mut callers = blocks(&group.spec.allowed);
    let gateways = operator.gateways.as_deref();
    callers.extend(gateways.map(|place| pods(ramen_crds::gateway::COMPONENT_PODS, place)));
    callers.extend(operator.network.operators());
    if group.spec.trusted_proxy_hops > 0 {
        callers.push(any_pod());
    }
    let ingress = vec![
        NetworkPolicyIngressRule {
            from: Some(callers),
            ports: Some(vec![tcp(names::GRPC_PORT)]),
        },
        NetworkPolicyIngressRule {
            from: Some(operator.network.metrics.clone()),
            ports: Some(vec![tcp(names::METRICS_PORT)]),
        },
    ];
    let mut egress = always(operator);
    egress.extend(bucket(operator));
    egress.extend(asked(group.spec.egress.as_ref()));
    NetworkPolicy {
        metadata: zone_meta(group, zone),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(select(selector(group, names::COMPONENT_WORKER, Some(zone)))),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(ingress),
            egress: Some(egress),
        }),
    }
}

/// Deploy jobs: nobody calls them; the package index besides what workers reach.
fn of_deploy(group: &Validated, operator: &Operator) -> NetworkPolicy {
    let mut egress = always(operator);
    let ports = index_ports(&group.spec.worker.env);
    egress.push(NetworkPolicyEgressRule {
        to: Some(everywhere()),
        ports: Some(ports.into_iter().map(tcp).collect()),
    });
    egress.extend(asked(group.spec.egress.as_ref()));
    NetworkPolicy {
        metadata: meta(
            group,
            child::deploy_policy(&group.key.name),
            names::COMPONENT_WORKER,
            None,
        ),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(select(selector(group, names::COMPONENT_DEPLOY, None))),
            policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
            ingress: Some(Vec::new()),
            egress: Some(egress),
        }),
    }
}

/// DNS, and the artifact endpoint.
fn always(operator: &Operator) -> Vec<NetworkPolicyEgressRule> {
    let mut resolvers = operator.network.dns.clone();
    resolvers.extend(NODE_DNS.iter().map(|cidr| block((*cidr).to_owned(), &[])));
    let ports = DNS_PORTS
        .iter()
        .flat_map(|number| ["UDP", "TCP"].map(|protocol| port(protocol, *number)));
    let lookups = NetworkPolicyEgressRule {
        to: Some(resolvers),
        ports: Some(ports.collect()),
    };
    // Without an operator in the cluster there is no rule: an empty list of peers would mean everybody.
    let artifacts = operator
        .network
        .operators()
        .map(|pods| NetworkPolicyEgressRule {
            to: Some(vec![pods]),
            ports: Some(vec![tcp(names::ARTIFACTS_PORT)]),
        });
    [lookups].into_iter().chain(artifacts).collect()
}

/// The bucket that pods read layers from; where it is, whoever runs the operator says.
fn bucket(operator: &Operator) -> Option<NetworkPolicyEgressRule> {
    let ranges = &operator.bucket.as_ref()?.ranges;
    // No ranges are no rule: an empty list of peers would mean everybody.
    (!ranges.is_empty()).then(|| NetworkPolicyEgressRule {
        to: Some(blocks(ranges)),
        ports: None,
    })
}

/// What the group asks for.
fn asked(egress: Option<&Egress>) -> Option<NetworkPolicyEgressRule> {
    let egress = egress?;
    if egress.open {
        return Some(NetworkPolicyEgressRule {
            to: Some(everywhere().into_iter().chain([any_pod()]).collect()),
            ports: None,
        });
    }
    // No ranges are no rule: an empty list of peers would mean everybody.
    (!egress.allowed.is_empty()).then(|| NetworkPolicyEgressRule {
        to: Some(blocks(&egress.allowed)),
        ports: (!egress.ports.is_empty()).then(|| egress.ports.iter().copied().map(tcp).collect()),
    })
}

/// 80, 443, and the ports of indexes that are named.
fn index_ports(env: &[(String, String)]) -> Vec<u16> {
    let mut ports = vec![80, 443];
    let urls = env
        .iter()
        .filter(|(name, _)| INDEXES.contains(&name.as_str()))
        .flat_map(|(_, value)| value.split_whitespace());
    for url in urls {
        let authority = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        let port = authority
            .and_then(|authority| authority.rsplit_once(':'))
            .and_then(|(_, port)| port.parse::<u16>().ok());
        ports.extend(port.filter(|port| *port != 0 && !ports.contains(port)));
    }
    ports
}

/// All addresses but those of metadata services.
fn everywhere() -> Vec<NetworkPolicyPeer> {
    vec![
        block("0.0.0.0/0".to_owned(), METADATA_V4),
        block("::/0".to_owned(), METADATA_V6),
    ]
}

/// Ranges, each without the metadata addresses that lie in it.
fn blocks(ranges: &CidrSet) -> Vec<NetworkPolicyPeer> {
    ranges
        .iter()
        .map(|range| {
            let metadata = if range.address().is_ipv4() {
                METADATA_V4
            } else {
                METADATA_V6
            };
            let inside: Vec<&str> = metadata
                .iter()
                .copied()
                .filter(|text| lies_in(text, range))
                .collect();
            block(range.to_string(), &inside)
        })
        .collect()
}

/// Whether a range lies within a larger one.
fn lies_in(text: &str, range: ramen_group::Cidr) -> bool {
    text.parse::<ramen_group::Cidr>()
        .is_ok_and(|inner| inner.prefix() > range.prefix() && range.contains(inner.address()))
}

fn block(cidr: String, except: &[&str]) -> NetworkPolicyPeer {
    let except: Vec<String> = except.iter().map(|text| (*text).to_owned()).collect();
    NetworkPolicyPeer {
        ip_block: Some(IPBlock {
            cidr,
            except: (!except.is_empty()).then_some(except),
        }),
        ..NetworkPolicyPeer::default()
    }
}

/// Pods of Ramen itself. Anybody can give a pod their labels, in a namespace of their own: so the namespace belongs to it.
fn pods(component: &str, namespace: &str) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(of_name(namespace)),
        pod_selector: Some(select(Labels::from([
            (names::LABEL_NAME.to_owned(), "ramen".to_owned()),
            (names::LABEL_COMPONENT.to_owned(), component.to_owned()),
        ]))),
        ..NetworkPolicyPeer::default()
    }
}

/// The namespace of that name.
fn of_name(namespace: &str) -> LabelSelector {
    select(Labels::from([(
        names::LABEL_NAMESPACE_NAME.to_owned(),
        namespace.to_owned(),
    )]))
}

fn any_pod() -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        ..NetworkPolicyPeer::default()
    }
}

fn select(labels: Labels) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

fn tcp(number: u16) -> NetworkPolicyPort {
    port("TCP", number)
}

fn port(protocol: &str, number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        protocol: Some(protocol.to_owned()),
        port: Some(IntOrString::Int(i32::from(number))),
        ..NetworkPolicyPort::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_named_indexes_are_opened() {
        let env = [
            (
                "PIP_INDEX_URL",
                "http://index.team-a:3141/root/pypi/+simple/",
            ),
            (
                "PIP_EXTRA_INDEX_URL",
                "https://a.example/simple https://b.example:8443/x",
            ),
            ("OTHER_URL", "http://c.example:9999"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(index_ports(&env), [80, 443, 3141, 8443]);
    }

    #[test]
    fn metadata_addresses_are_left_out_of_wide_ranges() {
        let ranges: CidrSet = ["0.0.0.0/0", "10.0.0.0/8"]
            .map(|text| text.parse().unwrap())
            .into_iter()
            .collect();
        let peers = blocks(&ranges);
        let except: Vec<usize> = peers
            .iter()
            .map(|peer| {
                let block = peer.ip_block.as_ref().unwrap();
                block.except.as_ref().map_or(0, Vec::len)
            })
            .collect();
        assert_eq!(except.iter().sum::<usize>(), METADATA_V4.len());
    }
}
