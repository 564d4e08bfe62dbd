//! What is kept of a pod and of a Job, and what it means in words a person can act on. Pure.

use std::net::IpAddr;

use super::slim::{
    SlimCondition, SlimContainerStatus, SlimJob, SlimPod, SlimState, SlimTerminated, label, seconds,
};
use crate::{names, reasons};

/// Characters of a message of the cluster.
const MAX_MESSAGE: usize = 400;

/// A pod of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Seconds since 1970.
    pub(crate) created: i64,
    /// Of a worker.
    pub(crate) zone: Option<String>,
    /// Of a deploy.
    pub(crate) job: Option<String>,
    pub(crate) image: String,
    /// It runs and has an address.
    pub(crate) address: Option<IpAddr>,
    pub(crate) ready: bool,
    /// It is on its way out.
    pub(crate) leaving: bool,
    /// How often its container ended and was started again.
    pub(crate) restarts: u32,
    /// When it did so last, in seconds since 1970.
    pub(crate) ended: Option<i64>,
    pub(crate) trouble: Option<Box<Trouble>>,
}

/// What holds a pod up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The cluster's own word: `ImagePullBackOff`, `OOMKilled`, `Unschedulable`.
    pub(crate) reason: String,
    /// For people, without the pod's name.
    pub(crate) message: String,
    pub(crate) kind: TroubleKind,
}

/// What sort of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TroubleKind {
    /// No node for it, yet.
    Unplaced,
    /// The container cannot start as things are, or may in a moment.
    Waits,
    /// The container cannot start, and waiting does not help.
    Stuck,
    /// The pod was ended from outside.
    Ended,
    /// The container ended by itself, or of what it did.
    Died,
}

/// A Job of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobView {
    pub(crate) uid: String,
    /// Seconds since 1970.
    pub(crate) created: i64,
    pub(crate) end: Option<JobEnd>,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// All is well.
    Well,
    /// The cluster's reason and message.
    Badly { reason: String, message: String },
}

impl PodView {
    pub(super) fn of(pod: &SlimPod) -> Self {
        let (meta, status) = (&pod.metadata, &pod.status);
        let labels = meta.labels.as_ref();
        let leaving = meta.deletion_timestamp.is_some();
        let runs = status.phase == "Running" && !leaving;
        let address = status.pod_ip.as_deref().filter(|_| runs);
        let container = status.container_statuses.first();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: seconds(meta.creation_timestamp.as_ref()),
            zone: label(labels, names::LABEL_ZONE).map(str::to_owned),
            job: label(labels, names::LABEL_JOB).map(str::to_owned),
            image: pod
                .spec
                .containers
                .first()
                .map(|container| container.image.clone())
                .unwrap_or_default(),
            address: address.and_then(|address| address.parse().ok()),
            ready: runs && is_true(&status.conditions, "Ready"),
            leaving,
            restarts: container.map_or(0, |container| container.restart_count),
            ended: container.and_then(|container| {
                let last = container.last_state.terminated.as_ref()?;
                Some(seconds(Some(last.finished_at.as_ref()?)))
            }),
            trouble: trouble(pod).map(Box::new),
        }
    }

    /// Its container ended again and again, or just did.
    pub(crate) fn died(&self) -> bool {
        let trouble = self.trouble.as_ref();
        trouble.is_some_and(|trouble| trouble.kind == TroubleKind::Died)
    }
}

impl JobView {
    pub(super) fn of(job: &SlimJob) -> Self {
        let conditions = job.status.conditions.iter();
        let mut ends = conditions
            .filter(|condition| condition.status == "True")
            .filter_map(|condition| match condition.kind.as_str() {
                "Complete" => Some(JobEnd::Well),
                "Failed" => Some(JobEnd::Badly {
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: cut(condition.message.as_deref().unwrap_or_default()),
                }),
                _ => None,
            });
        Self {
            uid: job.metadata.uid.clone().unwrap_or_default(),
            created: seconds(job.metadata.creation_timestamp.as_ref()),
            end: ends.next(),
        }
    }
}

fn is_true(conditions: &[SlimCondition], kind: &str) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == "True")
}

fn trouble(pod: &SlimPod) -> Option<Trouble> {
    let status = &pod.status;
    if let Some(reason @ ("Evicted" | "Preempting" | "NodeLost" | "Shutdown" | "Terminated")) =
        status.reason.as_deref()
    {
        let message = status.message.as_deref().unwrap_or("no more is known");
        // By its text alone a kubelet tells a pod or container over its limit from a node that has no more room.
        let over = [
            "ephemeral local storage usage",
            "local ephemeral storage limit",
        ];
        let way_out = if over.iter().any(|over| message.contains(over)) {
            "; write less, or raise the limit of ephemeral-storage in zones[].resources"
        } else {
            ""
        };
        return Some(Trouble {
            reason: reason.to_owned(),
            message: format!(
                "it was ended by its node ({reason}): {}{way_out}",
                cut(message)
            ),
            kind: TroubleKind::Ended,
        });
    }
    if let Some(container) = status.container_statuses.first() {
        return of_container(container);
    }
    let unplaced = status
        .conditions
        .iter()
        .find(|condition| condition.kind == "PodScheduled" && condition.status == "False")?;
    let message = unplaced.message.as_deref().unwrap_or("no node fits");
    Some(Trouble {
        reason: unplaced
            .reason
            .clone()
            .unwrap_or_else(|| "Unschedulable".to_owned()),
        message: format!(
            "it finds no node: {}; add nodes, or change zones[].resources, nodeSelector or tolerations",
            cut(message)
        ),
        kind: TroubleKind::Unplaced,
    })
}

fn of_container(container: &SlimContainerStatus) -> Option<Trouble> {
    let SlimContainerStatus {
        restart_count: _,
        state,
        last_state,
    } = container;
    if let Some(ended) = &state.terminated {
        return died(ended);
    }
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let text = cut(waiting.message.as_deref().unwrap_or_default());
    let (kind, message) = match reason {
        "CrashLoopBackOff" => return Some(crashes(last_state)),
        "ErrImageNeverPull" => (
            TroubleKind::Stuck,
            format!(
                "its image is not on the node and may not be pulled: {text}; check worker.image"
            ),
        ),
        "InvalidImageName" => (
            TroubleKind::Stuck,
            format!("its image has no valid name: {text}; check worker.image"),
        ),
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => (
            TroubleKind::Waits,
            format!(
                "its image cannot be pulled: {text}; check worker.image and worker.imagePullSecrets"
            ),
        ),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "StartError" => (
            TroubleKind::Waits,
            format!("its container cannot be started ({reason}): {text}"),
        ),
        // `ContainerCreating`, `PodInitializing`: on its way.
        _ => return None,
    };
    Some(Trouble {
        reason: reason.to_owned(),
        message,
        kind,
    })
}

/// It waits before it is started once more; the end before says why.
fn crashes(last: &SlimState) -> Trouble {
    let why = last.terminated.as_ref().and_then(died);
    match why {
        Some(why) if why.reason == "OOMKilled" => why,
        why => Trouble {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "it ends again and again: {}",
                why.map_or_else(|| "look at its log".to_owned(), |why| why.message)
            ),
            kind: TroubleKind::Died,
        },
    }
}

/// How a container ended; `None` when all was well.
fn died(ended: &SlimTerminated) -> Option<Trouble> {
    let SlimTerminated {
        reason,
        message,
        exit_code,
        finished_at: _,
    } = ended;
    let (reason, message) = match (reason.as_deref(), *exit_code) {
        (Some("OOMKilled"), _) => (
            "OOMKilled",
            "it ran out of memory; raise the memory limit in zones[].resources".to_owned(),
        ),
        (_, 0) => return None,
        (Some(reason @ ("ContainerCannotRun" | "StartError")), _) => (
            reason,
            format!(
                "its container cannot run: {}",
                cut(message.as_deref().unwrap_or_default())
            ),
        ),
        (_, 137) => ("Killed", "it was killed (SIGKILL)".to_owned()),
        // What it printed stays in its log.
        (_, code) => (
            "Error",
            format!("it ended with exit code {code}; look at its log"),
        ),
    };
    Some(Trouble {
        reason: reason.to_owned(),
        message,
        kind: TroubleKind::Died,
    })
}

/// Why no pod could be made, from the words of the API server, as a reason and what to do.
pub(crate) fn refusal(message: &str) -> (&'static str, String) {
    let text = cut(message);
    if message.contains("exceeded quota") {
        let todo = "raise the ResourceQuota, or ask for less in zones";
        (reasons::QUOTA_EXCEEDED, format!("{text}; {todo}"))
    } else if message.contains("violates PodSecurity") {
        let todo = "the namespace's Pod Security level must admit `restricted` pods with what spec.worker adds";
        (reasons::POD_SECURITY_REFUSED, format!("{text}; {todo}"))
    } else if message.contains("no PriorityClass") {
        let todo = "check worker.priorityClassName";
        (reasons::POD_REFUSED, format!("{text}; {todo}"))
    } else if message.contains("RuntimeClass") {
        let todo = "check worker.runtimeClassName";
        (reasons::POD_REFUSED, format!("{text}; {todo}"))
    } else {
        (reasons::POD_REFUSED, text)
    }
}

/// As much of a text of the cluster as is told.
fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests;
