//! The Job that deploys one revision: installs its requirements, imports and checks its packages, and
//! hands the report to the artifact endpoint. It has no credentials of the cluster or of the repository.

use std::time::Duration;

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::ObjectMeta;
use ramen_group::LayerRef;
use ramen_rollout::Revision;

use super::{Operator, Validated, labels, meta, pod};
use crate::names::{self, child};

/// For pulling the image, being scheduled and handing over what came out.
const MARGIN: Duration = Duration::from_mins(3);
/// How long a finished Job stays for people to read its log.
const KEPT_SECONDS: i32 = 24 * 3600;

/// How long a deploy may take in all.
pub(crate) fn deadline(group: &Validated) -> Duration {
    group.spec.worker.deploy_timeout + MARGIN
}

/// Builds the Job. The Secret with its token has its name.
pub(crate) fn build(
    group: &Validated,
    operator: &Operator,
    id: &str,
    revision: &Revision,
    code: &LayerRef,
) -> Job {
    let name = child::deploy(&group.key.name, id);
    let mut own = labels(group, names::COMPONENT_DEPLOY, None);
    own.insert("ramen.dev/deploy".to_owned(), id.to_owned());
    let annotations = [("ramen.dev/revision".to_owned(), revision.label.clone())].into();
    Job {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            ..meta(group, name.clone(), names::COMPONENT_DEPLOY, None)
        },
        spec: Some(JobSpec {
            active_deadline_seconds: Some(pod::seconds(deadline(group))),
            backoff_limit: Some(1),
            pod_failure_policy: Some(PodFailurePolicy {
                rules: vec![PodFailurePolicyRule {
                    // A drained node is not the revision's fault.
                    action: "Ignore".to_owned(),
                    on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                        type_: "DisruptionTarget".to_owned(),
                        status: "True".to_owned(),
                    }]),
                    ..PodFailurePolicyRule::default()
                }],
            }),
            ttl_seconds_after_finished: Some(KEPT_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod::merged(&group.spec.worker.pod_labels, own)),
                    annotations: (!group.spec.worker.pod_annotations.is_empty())
                        .then(|| group.spec.worker.pod_annotations.clone()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(group, operator, (id, name), revision, code)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

fn pod_spec(
    group: &Validated,
    operator: &Operator,
    (id, name): (&str, String),
    revision: &Revision,
    code: &LayerRef,
) -> k8s_openapi::api::core::v1::PodSpec {
    let worker = &group.spec.worker;
    let mut container = pod::container(operator, group.image(operator), "deploy");
    let report_url = format!(
        "{}/v1/deploys/{}/{}/{id}/report",
        operator.artifacts_url, group.key.namespace, group.key.name
    );
    let mut args: Vec<String> = [
        "deploy",
        "--code-layer",
        &format!("{}@{}", code.key, code.digest),
        "--out",
        "/tmp/out",
        "--group",
        group.key.name.as_str(),
        "--revision",
        revision.label.as_str(),
        "--timeout",
        &worker.deploy_timeout.as_secs().to_string(),
        "--secrets-from-env",
        "--report-url",
        report_url.as_str(),
        "--progress",
        "text",
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(python) = &worker.python {
        args.extend(["--python".to_owned(), python.to_string()]);
    }
    if worker.allow_sdist {
        args.push("--allow-sdist".to_owned());
    }
    container.args = Some(args);
    let token = format!("{}/deploy/{}", pod::RUN, names::TOKEN_KEY);
    let mut env = vec![
        pod::var("RAMEN_STORE", operator.artifacts_url.clone()),
        pod::var("RAMEN_STORE_TOKEN_FILE", token),
        pod::var("RAMEN_CACHE_DIR", pod::CACHE),
    ];
    env.extend(pod::folders());
    env.extend(pod::group_env(group));
    container.env = Some(env);
    let zone = group.spec.zones.first();
    container.resources = Some(pod::resources(
        zone.and_then(|zone| zone.resources.as_ref()),
    ));
    container.volume_mounts = Some(vec![
        pod::mount("deploy", format!("{}/deploy", pod::RUN), true),
        pod::mount("cache", pod::CACHE, false),
        pod::mount("tmp", pod::TMP, false),
    ]);
    let volumes = vec![
        pod::secret("deploy", name),
        pod::empty("cache", "4Gi"),
        pod::empty("tmp", "4Gi"),
    ];
    let mut spec = pod::spec(group, container, volumes);
    spec.restart_policy = Some("Never".to_owned());
    spec.termination_grace_period_seconds = Some(10);
    // What is installed must run where the workers run.
    if let Some(zone) = zone {
        spec.node_selector = (!zone.node_selector.is_empty()).then(|| zone.node_selector.clone());
        spec.tolerations = (!zone.tolerations.is_empty()).then(|| zone.tolerations.clone());
    }
    spec
}
