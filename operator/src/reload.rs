//! Makes the pods of a group serve a revision: `Admin/Reload`, a canary first.
//!
//! The `ConfigMap` with the desired state is the truth that pods start from; this is what makes a push
//! live in seconds instead of when the kubelet brings the file.

mod pods;
mod push;
mod smoke;
mod worker;

use std::time::Duration;

use futures::future::BoxFuture;
use ramen_group::{DesiredState, Reason, ReportPackage};
use ramen_redact::Secret;
use ramen_rollout::Failure;

use crate::group::GroupKey;
use crate::names;

pub(crate) use push::{Plan, push};

/// A revision that is to be served.
#[derive(Debug, Clone)]
pub(crate) struct ReloadRequest {
    /// Whose. Pods are found by the labels `ramen.dev/group` and `app.kubernetes.io/component=worker`.
    pub(crate) group: GroupKey,
    /// What to serve.
    pub(crate) desired: DesiredState,
    /// What served before: pods go back to it when the smoke test fails.
    pub(crate) previous: Option<DesiredState>,
    /// What the deploy said it serves, for the smoke test; empty when it is not known any more.
    pub(crate) packages: Vec<ReportPackage>,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reloaded {
    /// Pods that serve the revision.
    pub(crate) pods: u32,
    /// Pods that could not be reached; they read the `ConfigMap`.
    pub(crate) unreachable: u32,
}

/// What reloads pods.
pub(crate) trait Reload: Send + Sync + 'static {
    /// Returns when the pods that can be reached serve the revision, or the first of them could not.
    /// No pods at all is success: they read the `ConfigMap` when they start.
    fn reload(&self, request: ReloadRequest) -> BoxFuture<'static, Result<Reloaded, Failure>>;
}

/// Calls the pods' own `Admin` services.
#[derive(Clone)]
pub(crate) struct Push {
    client: kube::Client,
}

impl Push {
    /// Pods are listed with this client.
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client }
    }
}

impl Reload for Push {
    fn reload(&self, request: ReloadRequest) -> BoxFuture<'static, Result<Reloaded, Failure>> {
        let client = self.client.clone();
        Box::pin(async move {
            let found = pods::find(client, &request.group, names::GRPC_PORT).await;
            let pods = found.map_err(|error| Failure {
                reason: Reason::Internal,
                message: format!("the pods of the group cannot be listed: {error}"),
                transient: true,
            })?;
            let group = request.group.clone();
            let plan = Plan::from(request);
            let begin = std::time::Instant::now();
            let outcome = push(&pods, &plan).await;
            let elapsed_ms = begin.elapsed().as_millis();
            match &outcome {
                Ok(reloaded) => tracing::info!(
                    %group,
                    revision = plan.desired.revision,
                    pods = reloaded.pods,
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
}
