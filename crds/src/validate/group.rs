//! The group as a whole.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};
use ramen_group::access::RuleText;
use ramen_group::{AccessRules, CidrSet};

use super::{
    Faults, GitUrl, GroupName, InnerPath, PythonVersion, RefSpec, SecretName, SpecFault, Upstream,
    UrlPolicy, ZoneName, upstream,
};
use crate::{
    AccessSpec, EgressSpec, McpGroupSpec, NetworkSpec, RolloutSpec, SourceSpec, WorkerSpec,
    ZoneSpec,
};

/// Defaults of fields that are absent.
const INTERVAL: Duration = Duration::from_mins(5);
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);
const CALL_TIMEOUT: Duration = Duration::from_mins(2);
const DEPLOY_TIMEOUT: Duration = Duration::from_mins(10);
const ROLLOUT_TIMEOUT: Duration = Duration::from_mins(5);

/// A group that can be acted on.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidatedGroup {
    /// Its name.
    pub name: GroupName,
    /// Where the code comes from.
    pub source: Source,
    /// The Secret with the callers' keys; absent: one is made.
    pub keys: Option<SecretName>,
    /// Who may use what at the gateway; absent: whoever has a key may use everything.
    pub access: Option<AccessRules>,
    /// Secrets for the code.
    pub secrets: Vec<SecretName>,
    /// Who may call.
    pub allowed: CidrSet,
    /// Proxies before the workers.
    pub trusted_proxy_hops: u8,
    /// What the code may reach; absent: the default.
    pub egress: Option<Egress>,
    /// At least one.
    pub zones: Vec<Zone>,
    /// How the workers run.
    pub worker: Worker,
    /// How a revision goes into service.
    pub rollout: Rollout,
    /// Revisions kept behind the serving one.
    pub history: usize,
    /// Other MCP servers.
    pub upstreams: Vec<Upstream>,
}

/// `source`.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// The repository.
    pub url: GitUrl,
    /// What to follow.
    pub reference: RefSpec,
    /// The folder that holds `mcp/`.
    pub path: InnerPath,
    /// How often to look.
    pub interval: Duration,
    /// How long a fetch may take.
    pub timeout: Duration,
    /// Credentials.
    pub secret: Option<SecretName>,
    /// Certificates.
    pub ca_secret: Option<SecretName>,
    /// Nothing new is looked for.
    pub suspend: bool,
}

/// `network.egress`.
#[derive(Debug, Clone, PartialEq)]
pub struct Egress {
    /// Everything but metadata addresses.
    pub open: bool,
    /// Ranges.
    pub allowed: CidrSet,
    /// Their TCP ports; all when empty.
    pub ports: Vec<u16>,
}

/// A zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// Its name.
    pub name: ZoneName,
    /// How many pods.
    pub replicas: Replicas,
    /// Labels of nodes.
    pub node_selector: BTreeMap<String, String>,
    /// Taints to tolerate.
    pub tolerations: Vec<Toleration>,
    /// CPU, memory and the like.
    pub resources: Option<ResourceRequirements>,
}

/// How many pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// This many.
    Fixed(u32),
    /// As the load wants.
    Scaled {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
        /// CPU use to aim at.
        cpu_percent: u32,
    },
}

/// `worker`.
#[derive(Debug, Clone, PartialEq)]
pub struct Worker {
    /// The image; absent: the default.
    pub image: Option<String>,
    /// To pull it.
    pub image_pull_secrets: Vec<SecretName>,
    /// The Python version; absent: the newest there is.
    pub python: Option<PythonVersion>,
    /// Host processes; absent: one for each CPU, at least 2.
    pub hosts: Option<u32>,
    /// Threads of a host.
    pub threads: u32,
    /// Calls under way in one pod.
    pub max_inflight: u32,
    /// How long a call may take.
    pub call_timeout: Duration,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Variables that are not among them, and why. They cost the group no more than themselves.
    pub left_out: Vec<SpecFault>,
    /// Packages without wheels may be built.
    pub allow_sdist: bool,
    /// How long a deploy may take.
    pub deploy_timeout: Duration,
    /// Labels to add to pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations to add to pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Priority class of the pods.
    pub priority_class_name: Option<String>,
    /// Runtime class of the pods.
    pub runtime_class_name: Option<String>,
}

impl Worker {
    /// Names of the variables that the code gets, as a worker's `RAMEN_HOST_ENV` lists them: all but those of the installer
    /// alone, in whose addresses may be a login.
    pub fn code_variables(&self) -> String {
        let names = self.env.iter().map(|(name, _)| name.as_str());
        let of_code = |name: &&str| !name.starts_with("PIP_") && !name.starts_with("UV_");
        names.filter(of_code).collect::<Vec<_>>().join(",")
    }
}

/// `rollout`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// One pod first.
    pub canary: bool,
    /// How long loading may take.
    pub timeout: Duration,
    /// Go back when the new revision does not come up.
    pub auto_rollback: bool,
}

impl ValidatedGroup {
    /// Builds what can be built; `None` when a part without a default is missing. Faults decide.
    pub(super) fn build(
        name: Option<GroupName>,
        spec: &McpGroupSpec,
        urls: UrlPolicy,
        faults: &mut Faults,
    ) -> Option<Self> {
        let McpGroupSpec {
            source,
            keys,
            access,
            secrets,
            network,
            zones,
            worker,
            rollout,
            history,
            upstreams,
        } = spec;
        let source = build_source(source, urls, faults);
        let keys = keys.as_ref().map(|keys| &keys.secret_ref);
        let keys = faults.secret("spec.keys.secretRef", keys);
        let access = build_access(access.as_ref(), faults);
        let secrets = build_secrets(secrets, faults);
        let (allowed, hops, egress) = build_network(network, faults);
        let zones = build_zones(zones, faults);
        let worker = build_worker(worker, faults);
        let rollout = build_rollout(rollout, faults);
        let history = faults.within("spec.history", *history, (0, 10), 1);
        let upstreams = upstream::build(upstreams, faults);
        Some(Self {
            name: name?,
            source: source?,
            keys,
            access,
            secrets,
            allowed,
            trusted_proxy_hops: hops,
            egress,
            zones,
            worker,
            rollout,
            history: usize::try_from(history).unwrap_or(1),
            upstreams,
        })
    }

    /// A text that changes when the source becomes another one: what was observed before says
    /// nothing then. For `ramen_rollout::Settings::source`.
    pub fn source_fingerprint(&self) -> String {
        let Source {
            url,
            reference,
            path,
            ..
        } = &self.source;
        let kind = match reference {
            RefSpec::Default => "default",
            RefSpec::Branch(_) => "branch",
            RefSpec::Tag(_) => "tag",
            RefSpec::Semver(_) => "semver",
            RefSpec::Commit(_) => "commit",
            RefSpec::Name(_) => "name",
        };
        format!("{url} {kind} {reference} {path}")
    }

    /// A text that changes when the same tree could deploy differently, besides the Python version
    /// and image. For `ramen_rollout::Settings::spec`.
    pub fn deploy_fingerprint(&self) -> String {
        let Worker {
            env,
            allow_sdist,
            deploy_timeout,
            ..
        } = &self.worker;
        let secrets: Vec<&str> = self.secrets.iter().map(SecretName::as_str).collect();
        format!(
            "sdist={allow_sdist} timeout={} env={env:?} secrets={secrets:?}",
            deploy_timeout.as_secs()
        )
    }
}

fn build_source(source: &SourceSpec, urls: UrlPolicy, faults: &mut Faults) -> Option<Source> {
    let SourceSpec {
        url,
        reference,
        path,
        interval,
        timeout,
        secret_ref,
        ca_secret_ref,
        suspend,
    } = source;
    let url = faults.parse("spec.source.url", url, |text| GitUrl::parse(text, urls));
    let reference = match RefSpec::parse(reference.as_ref()) {
        Ok(reference) => Some(reference),
        Err(message) => {
            faults.push("spec.source.ref", message);
            None
        }
    };
    let path = path.as_deref().unwrap_or_default();
    let path = faults.parse("spec.source.path", path, InnerPath::parse);
    let interval = faults.duration(
        "spec.source.interval",
        interval.as_deref(),
        ("30s", "24h"),
        INTERVAL,
    );
    let timeout = faults.duration(
        "spec.source.timeout",
        timeout.as_deref(),
        ("1s", "10m"),
        FETCH_TIMEOUT,
    );
    let secret = faults.secret("spec.source.secretRef", secret_ref.as_ref());
    let ca_secret = faults.secret("spec.source.caSecretRef", ca_secret_ref.as_ref());
    Some(Source {
        url: url?,
        reference: reference?,
        path: path?,
        interval,
        timeout,
        secret,
        ca_secret,
        suspend: *suspend,
    })
}

fn build_secrets(secrets: &[crate::LocalRef], faults: &mut Faults) -> Vec<SecretName> {
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for (n, reference) in secrets.iter().enumerate() {
        let field = format!("spec.secrets[{n}]");
        if !seen.insert(&reference.name) {
            faults.push(&field, "the Secret is named twice");
        }
        names.extend(faults.secret(&field, Some(reference)));
    }
    if secrets.len() > 32 {
        faults.push("spec.secrets", "has more than 32 entries");
    }
    names
}

fn build_access(access: Option<&AccessSpec>, faults: &mut Faults) -> Option<AccessRules> {
    let rules = access?.rules.iter().map(RuleText::from).collect();
    AccessRules::new(rules)
        .map_err(|found| {
            for fault in found {
                faults.push(&format!("spec.access.rules{}", fault.field), fault.message);
            }
        })
        .ok()
}

fn build_network(network: &NetworkSpec, faults: &mut Faults) -> (CidrSet, u8, Option<Egress>) {
    let NetworkSpec {
        allowed_cidrs,
        trusted_proxy_hops,
        egress,
    } = network;
    let field = "spec.network.allowedCIDRs";
    let allowed = faults.cidrs(field, allowed_cidrs);
    if allowed_cidrs.is_empty() {
        faults.push(
            field,
            "must name who may call; 0.0.0.0/0 and ::/0 let everybody",
        );
    }
    if allowed_cidrs.len() > 128 {
        faults.push(field, "has more than 128 entries");
    }
    let hops = faults.within(
        "spec.network.trustedProxyHops",
        *trusted_proxy_hops,
        (0, 8),
        0,
    );
    let egress = egress.as_ref().map(|egress| {
        let EgressSpec {
            open,
            allowed_cidrs,
            ports,
        } = egress;
        if ports.contains(&0) {
            faults.push("spec.network.egress.ports", "a port is from 1 to 65535");
        }
        let allowed = faults.cidrs("spec.network.egress.allowedCIDRs", allowed_cidrs);
        Egress {
            open: *open,
            allowed,
            ports: ports.clone(),
        }
    });
    (allowed, hops, egress)
}

fn build_zones(zones: &[ZoneSpec], faults: &mut Faults) -> Vec<Zone> {
    let mut seen = HashSet::new();
    let mut built = Vec::new();
    if zones.len() > 16 {
        faults.push("spec.zones", "has more than 16 entries");
    }
    for (n, zone) in zones.iter().enumerate() {
        let field = format!("spec.zones[{n}]");
        let ZoneSpec {
            name,
            replicas,
            autoscaling,
            node_selector,
            tolerations,
            resources,
        } = zone;
        if !seen.insert(name) {
            faults.push(&format!("{field}.name"), "two zones have the same name");
        }
        let name = faults.parse(&format!("{field}.name"), name, ZoneName::parse);
        let replicas = match autoscaling {
            None => {
                let count = faults.within(&format!("{field}.replicas"), *replicas, (0, 100), 1);
                Replicas::Fixed(count)
            }
            Some(scaling) => {
                let field = format!("{field}.autoscaling");
                if replicas.is_some() {
                    faults.push(&field, "not together with `replicas`");
                }
                let (min, max) = (scaling.min_replicas, scaling.max_replicas);
                if min == 0 || min > max || max > 100 {
                    faults.push(&field, "needs 1 ≤ minReplicas ≤ maxReplicas ≤ 100");
                }
                let target = format!("{field}.targetCpuPercent");
                let cpu_percent = faults.within(&target, scaling.target_cpu_percent, (10, 100), 70);
                Replicas::Scaled {
                    min,
                    max,
                    cpu_percent,
                }
            }
        };
        if let Some(name) = name {
            built.push(Zone {
                name,
                replicas,
                node_selector: node_selector.clone(),
                tolerations: tolerations.clone(),
                resources: resources.clone(),
            });
        }
    }
    if zones.is_empty() {
        built.push(Zone {
            name: ZoneName::parse("default").expect("a constant that follows the rule"),
            replicas: Replicas::Fixed(1),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            resources: None,
        });
    }
    built
}

fn build_worker(worker: &WorkerSpec, faults: &mut Faults) -> Worker {
    let WorkerSpec {
        image,
        image_pull_secrets,
        python,
        hosts,
        threads,
        max_inflight,
        call_timeout,
        env,
        allow_sdist,
        deploy_timeout,
        pod_labels,
        pod_annotations,
        priority_class_name,
        runtime_class_name,
    } = worker;
    if image.as_ref().is_some_and(|image| {
        image.is_empty() || image.starts_with('-') || image.chars().any(char::is_whitespace)
    }) {
        faults.push("spec.worker.image", "not a reference to an image");
    }
    let pull = image_pull_secrets
        .iter()
        .enumerate()
        .filter_map(|(n, reference)| {
            faults.secret(
                &format!("spec.worker.imagePullSecrets[{n}]"),
                Some(reference),
            )
        });
    let image_pull_secrets = pull.collect();
    let python = python
        .as_deref()
        .and_then(|text| faults.parse("spec.worker.python", text, PythonVersion::parse));
    let hosts = hosts.map(|n| faults.within("spec.worker.hosts", Some(n), (1, 64), 1));
    let call_timeout = faults.duration(
        "spec.worker.callTimeout",
        call_timeout.as_deref(),
        ("1s", "1h"),
        CALL_TIMEOUT,
    );
    let deploy_timeout = faults.duration(
        "spec.worker.deployTimeout",
        deploy_timeout.as_deref(),
        ("10s", "2h"),
        DEPLOY_TIMEOUT,
    );
    let (env, left_out) = build_env(env, faults);
    Worker {
        image: image.clone(),
        image_pull_secrets,
        python,
        hosts,
        threads: faults.within("spec.worker.threads", *threads, (1, 256), 8),
        max_inflight: faults.within("spec.worker.maxInflight", *max_inflight, (1, 65536), 256),
        call_timeout,
        env,
        left_out,
        allow_sdist: *allow_sdist,
        deploy_timeout,
        pod_labels: pod_labels.clone(),
        pod_annotations: pod_annotations.clone(),
        priority_class_name: priority_class_name.clone(),
        runtime_class_name: runtime_class_name.clone(),
    }
}

/// The variables, and those that are left out. The API server refuses the loader's in what it is given, not in what it has:
/// groups that were made when they were allowed must go on.
fn build_env(
    env: &[crate::EnvVar],
    faults: &mut Faults,
) -> (Vec<(String, String)>, Vec<SpecFault>) {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    let mut left_out = Vec::new();
    for (n, variable) in env.iter().enumerate() {
        let field = format!("spec.worker.env[{n}].name");
        let name = &variable.name;
        match ramen_group::variable_refusal(name) {
            Some(why) if ramen_group::changes_loading(name) => {
                left_out.push(SpecFault::new(field, format!("{name} {why}")));
            }
            Some(why) => faults.push(&field, why),
            None if !seen.insert(name) => faults.push(&field, "the variable is set twice"),
            None => kept.push((name.clone(), variable.value.clone())),
        }
    }
    (kept, left_out)
}

fn build_rollout(rollout: &RolloutSpec, faults: &mut Faults) -> Rollout {
    let RolloutSpec {
        canary,
        timeout,
        auto_rollback,
    } = rollout;
    Rollout {
        canary: *canary,
        timeout: faults.duration(
            "spec.rollout.timeout",
            timeout.as_deref(),
            ("10s", "1h"),
            ROLLOUT_TIMEOUT,
        ),
        auto_rollback: *auto_rollback,
    }
}
