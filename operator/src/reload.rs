//! Makes the pods of a group serve a revision: `Admin/Reload`, a canary first.
//!
//! The `ConfigMap` with the desired state is the truth that pods start from; this is what makes a push
//! live in seconds instead of when the kubelet brings the file.

mod inspect;
mod offer;
mod pods;
mod push;
mod smoke;
mod survey;
mod worker;

use std::time::Duration;

use futures::future::BoxFuture;
use ramen_group::DesiredState;
use ramen_redact::Secret;
use ramen_rollout::Failure;

use crate::group::GroupKey;
use crate::names;
use crate::pods::{PodView, Pods};

pub(crate) use offer::{Expected, Offer};
pub(crate) use push::{Plan, push};

/// A revision that is to be served.
#[derive(Debug, Clone)]
pub(crate) struct ReloadRequest {
    /// Whose.
    pub(crate) group: GroupKey,
    /// What to serve.
    pub(crate) desired: DesiredState,
    /// What served before: pods go back to it when the smoke test fails.
    pub(crate) previous: Option<DesiredState>,
    /// What the deploy said it serves, for the smoke test; absent when it is not known any more.
    pub(crate) expected: Option<Expected>,
    /// The key of `ramen.v1.Admin`.
    pub(crate) admin_key: Secret,
    /// A key of `ramen.v1.Mcp` for the smoke test; without it only the numbers of packages are compared.
    pub(crate) call_key: Option<Secret>,
    /// One pod first.
    pub(crate) canary: bool,
    /// How long loading may take.
    pub(crate) timeout: Duration,
}

/// How a reload went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reloaded {
    /// The names of the pods that serve the revision.
    pub(crate) pods: Vec<String>,
    /// Pods that could not be reached; they read the `ConfigMap`.
    pub(crate) unreachable: u32,
}

/// Pods that run and do not answer calls are to be asked why.
#[derive(Debug, Clone)]
pub(crate) struct InspectRequest {
    /// Whose.
    pub(crate) group: GroupKey,
    /// What they should serve.
    pub(crate) desired: DesiredState,
    /// The key of `ramen.v1.Admin`.
    pub(crate) admin_key: Secret,
    /// How long loading may take.
    pub(crate) timeout: Duration,
}

/// What is wrong with a pod that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ailment {
    /// Which.
    pub(crate) pod: String,
    /// For people, without the pod's name.
    pub(crate) message: String,
    /// The revision is at fault, not the surroundings.
    pub(crate) blames: bool,
}

/// Pods that answer calls are to be asked whether they serve what is wanted.
#[derive(Debug, Clone)]
pub(crate) struct SurveyRequest {
    /// Which.
    pub(crate) pods: Vec<PodView>,
    /// What is wanted.
    pub(crate) desired: DesiredState,
    /// The image that it was deployed with, if that is known: a pod of another may not even have the Python for it, and is
    /// told nothing.
    pub(crate) image: Option<String>,
    /// The key of `ramen.v1.Admin`.
    pub(crate) admin_key: Secret,
    /// How long loading may take: a pod that serves something else is told what is wanted.
    pub(crate) timeout: Duration,
}

/// What a pod said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Which.
    pub(crate) pod: String,
    /// Whether it serves what is wanted.
    pub(crate) answer: Answer,
}

/// Whether a pod serves what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It does.
    Serves,
    /// It does not; why, for people.
    Behind(String),
    /// It cannot be asked: that says nothing of what it serves.
    Silent,
}

/// What reloads pods.
pub(crate) trait Reload: Send + Sync + 'static {
    /// Returns when the pods that can be reached serve the revision, or the first of them could not.
    /// No pods at all is success: they read the `ConfigMap` when they start.
    fn reload(&self, request: ReloadRequest) -> BoxFuture<'static, Result<Reloaded, Failure>>;

    /// What is wrong with pods that run and are not ready.
    fn inspect(&self, request: InspectRequest) -> BoxFuture<'static, Vec<Ailment>>;

    /// Which of these pods serve what is wanted.
    fn survey(&self, request: SurveyRequest) -> BoxFuture<'static, Vec<Said>>;
}

/// Calls the pods' own `Admin` services.
#[derive(Clone)]
pub(crate) struct Push {
    pods: Pods,
}

impl Push {
    /// Of these pods.
    pub(crate) fn new(pods: Pods) -> Self {
        Self { pods }
    }
}

impl Reload for Push {
    fn reload(&self, request: ReloadRequest) -> BoxFuture<'static, Result<Reloaded, Failure>> {
        let pods = self.pods.workers(&request.group);
        Box::pin(async move {
            let pods = pods::targets(&pods, names::GRPC_PORT);
            let group = request.group.clone();
            let plan = Plan::from(request);
            let begin = std::time::Instant::now();
            let outcome = push(&pods, &plan).await;
            let elapsed_ms = begin.elapsed().as_millis();
            match &outcome {
                Ok(reloaded) => tracing::info!(
                    %group,
                    revision = plan.desired.revision,
                    pods = reloaded.pods.len(),
                    unreachable = reloaded.unreachable,
                    elapsed_ms,
                    "reloaded"
                ),
                Err(failure) => tracing::warn!(
                    %group,
                    revision = plan.desired.revision,
                    reason = %failure.reason,
                    error = failure.message,
                    elapsed_ms,
                    "a reload failed"
                ),
            }
            outcome
        })
    }

    fn inspect(&self, request: InspectRequest) -> BoxFuture<'static, Vec<Ailment>> {
        let pods = self.pods.workers(&request.group);
        Box::pin(async move {
            let pods = pods::targets(&pods, names::GRPC_PORT);
            inspect::inspect(pods, &request).await
        })
    }

    fn survey(&self, request: SurveyRequest) -> BoxFuture<'static, Vec<Said>> {
        Box::pin(async move {
            let pods = pods::targets(&request.pods, names::GRPC_PORT);
            survey::survey(pods, &request).await
        })
    }
}

#[cfg(test)]
mod tests;
