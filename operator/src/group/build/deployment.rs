//! The worker pods of a zone.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    ContainerPort, EnvFromSource, EnvVar, GRPCAction, KeyToPath, Lifecycle, LifecycleHandler,
    PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource, SecretEnvSource, SecretProjection,
    SleepAction, TopologySpreadConstraint, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ObjectMeta;
use ramen_crds::{Replicas, Zone};

use super::{Operator, Validated, labels, pod, selector, zone_meta};
use crate::names::{self, child};

/// Between a pod's removal from its Service and SIGTERM.
const SLEEP: Duration = Duration::from_secs(3);
/// Calls in flight get at least this long.
const DRAIN: Duration = Duration::from_secs(25);
/// Beyond the drain, before the pod is killed.
const MARGIN: Duration = Duration::from_secs(7);
/// The gRPC service that answers as soon as the process lives; the empty name answers once packages are
/// loaded.
const ALIVE: &str = "ramen.v1.Admin";

/// Builds it. The image is that with which the revision that serves was deployed: another one comes in
/// together with what was deployed with it.
pub(super) fn build(
    group: &Validated,
    operator: &Operator,
    image: &str,
    zone: &Zone,
) -> Deployment {
    let select = selector(group, names::COMPONENT_WORKER, Some(zone));
    let replicas = match zone.replicas {
        Replicas::Fixed(count) => i32::try_from(count).ok(),
        // The autoscaler's; never written.
        Replicas::Scaled { .. } => None,
    };
    Deployment {
        metadata: zone_meta(group, zone),
        spec: Some(DeploymentSpec {
            replicas,
            revision_history_limit: Some(2),
            progress_deadline_seconds: Some(progress_deadline(group)),
            selector: LabelSelector {
                match_labels: Some(select.clone()),
                ..LabelSelector::default()
            },
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(template_meta(group, zone)),
                spec: Some(pod_spec(group, operator, image, zone, &select)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn progress_deadline(group: &Validated) -> i32 {
    let seconds = pod::seconds(group.spec.rollout.timeout).max(60);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

fn template_meta(group: &Validated, zone: &Zone) -> ObjectMeta {
    let worker = &group.spec.worker;
    let own = labels(group, names::COMPONENT_WORKER, Some(zone));
    let mut annotations = worker.pod_annotations.clone();
    if let Some(hash) = &group.secrets_hash {
        annotations.insert(names::SECRETS_HASH.to_owned(), hash.clone());
    }
    ObjectMeta {
        labels: Some(pod::merged(&worker.pod_labels, own)),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..ObjectMeta::default()
    }
}

/// The longest that a call in flight may take before it is cut off.
fn drain(group: &Validated) -> Duration {
    group.spec.worker.call_timeout.max(DRAIN)
}

fn pod_spec(
    group: &Validated,
    operator: &Operator,
    image: &str,
    zone: &Zone,
    select: &BTreeMap<String, String>,
) -> PodSpec {
    let mut container = pod::container(operator, image, "worker");
    container.args = Some(vec!["serve".to_owned()]);
    container.env = Some(env(group, operator, zone));
    let secret = operator
        .bucket
        .as_ref()
        .and_then(|bucket| bucket.secret.clone());
    // The group's own variables come after them. Without the Secret the pods ask the endpoint.
    container.env_from = secret.map(|name| {
        vec![EnvFromSource {
            secret_ref: Some(SecretEnvSource {
                name,
                optional: Some(true),
            }),
            ..EnvFromSource::default()
        }]
    });
    container.ports = Some(vec![
        port("grpc", names::GRPC_PORT),
        port("metrics", names::METRICS_PORT),
    ]);
    container.resources = Some(pod::resources(zone.resources.as_ref()));
    container.startup_probe = Some(probe(ALIVE, 1, 60));
    container.liveness_probe = Some(probe(ALIVE, 10, 6));
    container.readiness_probe = Some(probe("", 2, 2));
    container.lifecycle = Some(Lifecycle {
        pre_stop: Some(LifecycleHandler {
            sleep: Some(SleepAction {
                seconds: pod::seconds(SLEEP),
            }),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    });
    container.volume_mounts = Some(mounts(group));
    let mut spec = pod::spec(group, container, volumes(group));
    spec.termination_grace_period_seconds = Some(pod::seconds(drain(group) + SLEEP + MARGIN));
    spec.node_selector = (!zone.node_selector.is_empty()).then(|| zone.node_selector.clone());
    spec.tolerations = (!zone.tolerations.is_empty()).then(|| zone.tolerations.clone());
    spec.topology_spread_constraints = Some(
        ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
            .map(|key| TopologySpreadConstraint {
                max_skew: 1,
                topology_key: key.to_owned(),
                when_unsatisfiable: "ScheduleAnyway".to_owned(),
                label_selector: Some(LabelSelector {
                    match_labels: Some(select.clone()),
                    ..LabelSelector::default()
                }),
                ..TopologySpreadConstraint::default()
            })
            .to_vec(),
    );
    spec
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(service: &str, period: i32, failures: i32) -> Probe {
    Probe {
        grpc: Some(GRPCAction {
            port: i32::from(names::GRPC_PORT),
            service: Some(service.to_owned()),
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(3),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn env(group: &Validated, operator: &Operator, zone: &Zone) -> Vec<EnvVar> {
    let (spec, worker) = (&group.spec, &group.spec.worker);
    let var = |name: &str, value: String| pod::var(name, value);
    let ranges = spec.allowed.iter().map(|range| range.to_string());
    let mut env = vec![
        var("RAMEN_LISTEN", format!("0.0.0.0:{}", names::GRPC_PORT)),
        var(
            "RAMEN_METRICS_LISTEN",
            format!("0.0.0.0:{}", names::METRICS_PORT),
        ),
        var("RAMEN_GROUP", group.key.name.clone()),
        var("RAMEN_ZONE", zone.name.to_string()),
        var("RAMEN_KEYS_DIR", format!("{}/keys", pod::RUN)),
        var(
            "RAMEN_GATEWAY_KEY_FILE",
            format!("{}/keys/{}", pod::RUN, gateway_key(group)),
        ),
        var(
            "RAMEN_ADMIN_KEY_FILE",
            format!("{}/admin/{}", pod::RUN, names::KEY_KEY),
        ),
        // The key decides; which pods get this far is the policy's matter.
        var("RAMEN_ADMIN_ALLOWED_CIDRS", "0.0.0.0/0,::/0".to_owned()),
        var("RAMEN_ALLOWED_CIDRS", ranges.collect::<Vec<_>>().join(",")),
        var("RAMEN_TRUST_PROXY", spec.trusted_proxy_hops.to_string()),
        var("RAMEN_MAX_INFLIGHT", worker.max_inflight.to_string()),
        var(
            "RAMEN_CALL_TIMEOUT_SECS",
            worker.call_timeout.as_secs().to_string(),
        ),
        var("RAMEN_HOST_THREADS", worker.threads.to_string()),
        var("RAMEN_STORE", operator.artifacts_url.clone()),
        var(
            "RAMEN_STORE_TOKEN_FILE",
            format!("{}/artifacts/{}", pod::RUN, names::TOKEN_KEY),
        ),
        var("RAMEN_CACHE_DIR", pod::CACHE.to_owned()),
        var(
            "RAMEN_DESIRED",
            format!("{}/desired/{}", pod::RUN, names::DESIRED_KEY),
        ),
        var("RAMEN_DRAIN_SECS", drain(group).as_secs().to_string()),
    ];
    env.extend(
        worker
            .hosts
            .map(|hosts| var("RAMEN_HOSTS", hosts.to_string())),
    );
    let bucket = operator.bucket.as_ref();
    env.extend(bucket.map(|bucket| var("RAMEN_STORE_BUCKET", bucket.address.clone())));
    env.extend(pod::folders());
    env.extend(pod::group_env(group));
    env
}

fn mounts(group: &Validated) -> Vec<VolumeMount> {
    let run = |name: &str| pod::mount(name, format!("{}/{name}", pod::RUN), true);
    let mut mounts = vec![run("keys"), run("admin"), run("desired")];
    if group.own.artifacts.is_some() {
        mounts.push(run("artifacts"));
    }
    mounts.push(pod::mount("cache", pod::CACHE, false));
    mounts.push(pod::mount("tmp", pod::TMP, false));
    mounts
}

fn volumes(group: &Validated) -> Vec<Volume> {
    let name = &group.key.name;
    let mut volumes = vec![
        keys(group),
        pod::secret("admin", child::admin_key(name)),
        pod::config_map("desired", child::desired(name)),
        pod::empty("cache", "4Gi"),
        pod::empty("tmp", "1Gi"),
    ];
    if group.own.artifacts.is_some() {
        volumes.push(pod::secret("artifacts", child::artifact_token(name)));
    }
    volumes
}

/// The file with the gateway's key, among the callers'.
fn gateway_key(group: &Validated) -> &'static str {
    match &group.spec.keys {
        None => names::GATEWAY_KEY,
        Some(_) => "ramen-gateway",
    }
}

/// The callers' keys and the gateway's, as files of one folder. The gateway's comes last: nobody's entry of that name
/// takes its place.
fn keys(group: &Validated) -> Volume {
    let project = |name: String, items: Option<Vec<KeyToPath>>| VolumeProjection {
        secret: Some(SecretProjection {
            name,
            items,
            ..SecretProjection::default()
        }),
        ..VolumeProjection::default()
    };
    let own = child::keys(&group.key.name);
    let sources = match &group.spec.keys {
        None => vec![project(own, None)],
        Some(named) => vec![
            project(named.to_string(), None),
            project(
                own,
                Some(vec![KeyToPath {
                    key: names::GATEWAY_KEY.to_owned(),
                    path: gateway_key(group).to_owned(),
                    ..KeyToPath::default()
                }]),
            ),
        ],
    };
    Volume {
        name: "keys".to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o440),
            sources: Some(sources),
        }),
        ..Volume::default()
    }
}
