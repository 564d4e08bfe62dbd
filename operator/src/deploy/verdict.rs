//! What the state of a Job and its pods means, in words a person can act on. Pure.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ramen_group::Reason;
use ramen_rollout::Failure;

/// An image that cannot be pulled may be there in a moment.
const PULL_PATIENCE: Duration = Duration::from_mins(1);
/// A pod that is refused may be let in when another one ends.
const CREATE_PATIENCE: Duration = Duration::from_secs(15);
/// Characters of a message of the cluster.
const MAX_MESSAGE: usize = 700;

/// What was seen at one time.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) job: Option<Job>,
    pub(super) pods: Vec<Pod>,
    /// About the Job; only when it has no pods.
    pub(super) events: Vec<Event>,
    pub(super) now: SystemTime,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Well,
    Badly { reason: String, message: String },
}

/// How it ended, if it did.
pub(super) fn end(job: &Job) -> Option<End> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .filter(|condition| condition.status == "True")
        .find_map(|condition| match condition.type_.as_str() {
            "Complete" => Some(End::Well),
            "Failed" => Some(End::Badly {
                reason: condition.reason.clone().unwrap_or_default(),
                message: condition.message.clone().unwrap_or_default(),
            }),
            _ => None,
        })
}

/// A failure of the Job.
pub(super) fn failure(message: &str, transient: bool) -> Failure {
    Failure {
        reason: Reason::DeployJobFailed,
        message: format!("the deploy job failed: {message}"),
        transient,
    }
}

/// Why no report will come, if that is certain enough.
pub(super) fn judge(seen: &Seen) -> Option<Failure> {
    let Some(job) = &seen.job else {
        return Some(failure("it was removed while it ran", true));
    };
    let mut pods: Vec<&Pod> = seen.pods.iter().collect();
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let last = pods.last().copied();
    if let Some(end) = end(job) {
        let why = pods.iter().rev().find_map(|pod| death(pod));
        return Some(match end {
            End::Well => failure("it ended without a report; look at its log", true),
            End::Badly { reason, .. } if reason == "DeadlineExceeded" => {
                let waiting = last
                    .and_then(waits)
                    .map_or_else(String::new, |why| format!(": {why}"));
                failure(
                    &format!(
                        "it did not end within its deadline{waiting}; see worker.deployTimeout"
                    ),
                    true,
                )
            }
            End::Badly { reason, message } => match why {
                Some(why) => failure(&why, true),
                None => failure(&format!("{reason}: {}", cut(&message)), true),
            },
        });
    }
    if let Some(pod) = last {
        return stuck(pod, seen.now);
    }
    let age = age(job.metadata.creation_timestamp.as_ref(), seen.now)?;
    let refusal = seen
        .events
        .iter()
        .filter(|event| event.reason.as_deref() == Some("FailedCreate"))
        .filter_map(|event| event.message.as_deref())
        .next_back()?;
    (age > CREATE_PATIENCE).then(|| failure(&format!("its pod is refused: {}", cut(refusal)), true))
}

/// How a pod's container died.
fn death(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if let Some(reason @ ("Evicted" | "Preempting" | "NodeLost" | "Shutdown" | "Terminated")) =
        status.reason.as_deref()
    {
        let message = status.message.as_deref().unwrap_or("no more is known");
        return Some(format!("its pod was ended ({reason}): {}", cut(message)));
    }
    let containers = status.container_statuses.iter().flatten();
    containers
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref())
        .find_map(|ended| match (ended.reason.as_deref(), ended.exit_code) {
            (Some("OOMKilled"), _) => {
                Some("it ran out of memory; raise the memory limit in zones[].resources".to_owned())
            }
            (_, 0) => None,
            (_, 137) => Some("it was killed (SIGKILL)".to_owned()),
            (Some("ContainerCannotRun" | "StartError"), _) => Some(format!(
                "its container cannot run: {}",
                cut(ended.message.as_deref().unwrap_or_default())
            )),
            (_, code) => Some(format!(
                "it ended with exit code {code} before its report was handed over; look at its log"
            )),
        })
}

/// A pod that will not run as things are.
fn stuck(pod: &Pod, now: SystemTime) -> Option<Failure> {
    let status = pod.status.as_ref()?;
    let age = age(pod.metadata.creation_timestamp.as_ref(), now)?;
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|container| container.state.as_ref()?.waiting.as_ref())
        .find_map(|waiting| Some((waiting.reason.as_deref()?, waiting.message.as_deref())));
    let (reason, message) = waiting?;
    let message = cut(message.unwrap_or_default());
    let certain = match reason {
        "ErrImageNeverPull" | "InvalidImageName" => true,
        "ErrImagePull"
        | "ImagePullBackOff"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError" => age > PULL_PATIENCE,
        _ => false,
    };
    certain.then(|| {
        failure(
            &format!("its container does not start ({reason}): {message}"),
            true,
        )
    })
}

/// What a pod waits for.
fn waits(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        let message = condition.message.as_deref().unwrap_or("no node");
        return Some(format!("its pod found no node: {}", cut(message)));
    }
    let state = status
        .container_statuses
        .as_ref()?
        .first()?
        .state
        .as_ref()?;
    let ContainerState { waiting, .. } = state;
    let waiting = waiting.as_ref()?;
    Some(format!(
        "its container waits ({}): {}",
        waiting.reason.as_deref().unwrap_or("unknown"),
        cut(waiting.message.as_deref().unwrap_or_default())
    ))
}

fn age(created: Option<&Time>, now: SystemTime) -> Option<Duration> {
    let created = SystemTime::from(created?.0);
    Some(now.duration_since(created).unwrap_or_default())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
