//! Canary, then the rest. Knows no Kubernetes: pods are addresses.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use ramen_group::{DesiredState, Reason};
use ramen_redact::Secret;
use ramen_rollout::Failure;

use super::worker::{Fault, Worker};
use super::{Expected, ReloadRequest, Reloaded, smoke};

/// Pods that load at the same time after the canary.
const AT_ONCE: usize = 8;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: String,
    /// Of its gRPC port.
    pub(crate) address: SocketAddr,
    /// Whether it answers calls now.
    pub(crate) ready: bool,
}

/// What every pod is asked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) desired: DesiredState,
    pub(crate) previous: Option<DesiredState>,
    pub(crate) expected: Option<Expected>,
    pub(crate) admin_key: Secret,
    pub(crate) call_key: Option<Secret>,
    pub(crate) canary: bool,
    pub(crate) timeout: Duration,
}

impl From<ReloadRequest> for Plan {
    fn from(request: ReloadRequest) -> Self {
        let ReloadRequest {
            group: _,
            desired,
            previous,
            expected,
            admin_key,
            call_key,
            canary,
            timeout,
        } = request;
        Self {
            desired,
            previous,
            expected,
            admin_key,
            call_key,
            canary,
            timeout,
        }
    }
}

/// Reloads the pods. A pod that cannot be reached is none: it reads the `ConfigMap`. The first that
/// answers is the canary; what it refuses no other pod is asked.
pub(crate) async fn push(pods: &[Target], plan: &Plan) -> Result<Reloaded, Failure> {
    let mut reloaded = Reloaded::default();
    let mut rest = pods;
    if plan.canary {
        while let Some((canary, others)) = rest.split_first() {
            rest = others;
            match reload(canary, plan).await {
                Ok(()) => {
                    reloaded.pods += 1;
                    break;
                }
                Err(Fault::Unreachable(error)) => {
                    unreachable(canary, &error);
                    reloaded.unreachable += 1;
                }
                Err(Fault::Refused {
                    reason,
                    message,
                    transient,
                }) => return Err(failure(canary, reason, &message, transient, reloaded.pods)),
            }
        }
    }
    let loads = rest.iter().cloned().map(|pod| async move {
        let result = reload(&pod, plan).await;
        (pod, result)
    });
    let results = futures::stream::iter(loads)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut refused = None;
    for (pod, result) in results {
        match result {
            Ok(()) => reloaded.pods += 1,
            Err(Fault::Unreachable(error)) => {
                unreachable(&pod, &error);
                reloaded.unreachable += 1;
            }
            Err(Fault::Refused {
                reason,
                message,
                transient,
            }) => {
                refused.get_or_insert((pod, reason, message, transient));
            }
        }
    }
    match refused {
        None => Ok(reloaded),
        Some((pod, reason, message, transient)) => {
            // Where others serve it, the revision is not to blame.
            let transient = transient || reloaded.pods > 0;
            Err(failure(&pod, reason, &message, transient, reloaded.pods))
        }
    }
}

async fn reload(pod: &Target, plan: &Plan) -> Result<(), Fault> {
    let worker = Worker::connect(pod).await?;
    let response = worker
        .reload(&plan.desired, &plan.admin_key, plan.timeout)
        .await?;
    let Some(expected) = &plan.expected else {
        return Ok(());
    };
    let mut fits = expected.offer.numbers(&response);
    if let (Ok(()), Some(key)) = (&fits, &plan.call_key) {
        fits = smoke::tools(&worker, key, expected).await;
    }
    let Err(message) = fits else { return Ok(()) };
    // It loaded, and is not what was deployed: this pod must not go on with it.
    if let Some(previous) = &plan.previous
        && let Err(fault) = worker.reload(previous, &plan.admin_key, plan.timeout).await
    {
        tracing::error!(pod = pod.name, ?fault, "a pod could not go back");
    }
    Err(Fault::Refused {
        reason: Reason::ReloadFailed,
        message,
        transient: false,
    })
}

fn unreachable(pod: &Target, error: &str) {
    let (pod, ready) = (&pod.name, pod.ready);
    tracing::warn!(
        pod,
        ready,
        error,
        "a pod cannot be reached; it reads the ConfigMap"
    );
}

fn failure(pod: &Target, reason: Reason, message: &str, transient: bool, pods: u32) -> Failure {
    let serve = match pods {
        0 => String::new(),
        1 => " (1 pod serves it)".to_owned(),
        pods => format!(" ({pods} pods serve it)"),
    };
    Failure {
        reason,
        message: format!("pod {}: {message}{serve}", pod.name),
        transient,
    }
}
