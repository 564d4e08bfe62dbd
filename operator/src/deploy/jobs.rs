//! The Job and its Secret: made, watched, taken away.

mod removal;
mod sight;

use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Secret as KubeSecret};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use ramen_group::{Outcome, Reason, Report};
use ramen_redact::Secret;
use ramen_rollout::Failure;
use ramen_source::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

use super::{Deploy, DeployRequest};
use crate::artifacts::{Artifacts, DeployId, one_time};
use crate::backoff::Backoff;
use crate::names::{self, child};
use crate::pods::{Pods, refusal};

/// How often more something is asked for, in 15 seconds.
const MORE_TRIES: usize = 4;

type Reports = watch::Receiver<Option<Arc<Report>>>;

/// Runs deploys as Jobs.
#[derive(Clone)]
pub(crate) struct Jobs {
    client: Client,
    artifacts: Artifacts,
    pods: Pods,
}

impl Jobs {
    /// With this client; reports come through `artifacts`, what becomes of the Jobs through `pods`.
    pub(crate) fn new(client: Client, artifacts: Artifacts, pods: Pods) -> Self {
        Self {
            client,
            artifacts,
            pods,
        }
    }
}

impl Deploy for Jobs {
    fn deploy(&self, request: DeployRequest) -> BoxFuture<'static, Result<Report, Failure>> {
        let run = Run::new(self, request);
        Box::pin(async move { run.go().await })
    }
}

struct Run {
    jobs: Api<Job>,
    secrets: Api<KubeSecret>,
    events: Api<Event>,
    pods: Pods,
    artifacts: Artifacts,
    request: DeployRequest,
    deploy: DeployId,
    name: String,
}

impl Run {
    fn new(jobs: &Jobs, request: DeployRequest) -> Self {
        let namespace = &request.group.namespace;
        Self {
            jobs: Api::namespaced(jobs.client.clone(), namespace),
            secrets: Api::namespaced(jobs.client.clone(), namespace),
            events: Api::namespaced(jobs.client.clone(), namespace),
            pods: jobs.pods.clone(),
            artifacts: jobs.artifacts.clone(),
            deploy: DeployId {
                group: request.group.clone(),
                id: request.id.clone(),
            },
            name: child::deploy(&request.group.name, &request.id),
            request,
        }
    }

    async fn go(self) -> Result<Report, Failure> {
        if let Some(report) = self.known().await? {
            return Ok(report);
        }
        self.stop_others().await;
        let (job, mut reports) = self.begin().await?;
        let result = self.watch(&job, &mut reports).await;
        self.artifacts.dismiss(&self.deploy);
        self.clean(&job, result.is_err()).await;
        result
    }

    /// The report of an earlier run that did well, when what it made is still there.
    async fn known(&self) -> Result<Option<Report>, Failure> {
        let store = |error: ramen_source::store::StoreError| Failure {
            reason: error.reason(),
            message: format!("the artifact store: {error}"),
            transient: true,
        };
        let known = self.artifacts.report(&self.deploy).await.map_err(store)?;
        let Some(report) = known else { return Ok(None) };
        let whole = match &report.deps {
            None => true,
            Some(layer) => {
                let found = self.artifacts.store().find(Kind::Deps, &layer.key).await;
                found.map_err(store)?.as_ref() == Some(layer)
            }
        };
        if report.outcome != Outcome::Failed && whole {
            return Ok(Some(report));
        }
        self.artifacts.forget(&self.deploy).await.map_err(store)?;
        Ok(None)
    }

    /// The Job that runs, or a new one.
    async fn begin(&self) -> Result<(Job, Reports), Failure> {
        let found = insist("read the deploy job", || self.jobs.get_opt(&self.name)).await?;
        let token = self.token().await?;
        if let (Some(job), Some(token)) = (&found, &token)
            && !ended(job)
            && job.metadata.deletion_timestamp.is_none()
        {
            tracing::info!(deploy = %self.deploy, "found the deploy job running");
            return Ok((job.clone(), self.admit(token).await?));
        }
        if let Some(job) = found {
            self.remove(&job).await?;
        }
        let token = match token {
            Some(token) => token,
            None => one_time().map_err(|error| Failure {
                reason: Reason::Internal,
                message: format!("no random numbers: {error}"),
                transient: true,
            })?,
        };
        let reports = self.admit(&token).await?;
        let params = PatchParams::apply(names::MANAGER).force();
        let secret = Patch::Apply(self.secret(&token));
        let write = || self.secrets.patch(&self.name, &params, &secret);
        insist("write the token of the deploy job", write).await?;
        let job = Patch::Apply(&*self.request.job);
        let create = || self.jobs.patch(&self.name, &params, &job);
        let job = insist("create the deploy job", create).await?;
        let revision = self.request.revision.as_str();
        tracing::info!(deploy = %self.deploy, revision, "started a deploy job");
        Ok((job, reports))
    }

    async fn admit(&self, token: &Secret) -> Result<Reports, Failure> {
        let admitted = self
            .artifacts
            .admit(&self.deploy, token, &self.request.code);
        admitted.await.map_err(|error| Failure {
            reason: error.reason(),
            message: format!("the artifact store: {error}"),
            transient: true,
        })
    }

    /// The token of a Job that was made before.
    async fn token(&self) -> Result<Option<Secret>, Failure> {
        let read = || self.secrets.get_opt(&self.name);
        let secret = insist("read the token of the deploy job", read).await?;
        let token = secret.and_then(|secret| secret.data?.remove(names::TOKEN_KEY));
        let token = token.and_then(|token| String::from_utf8(token.0).ok());
        Ok(token.filter(|token| token.len() >= 32).map(Secret::new))
    }

    fn secret(&self, token: &Secret) -> KubeSecret {
        let token = ByteString(token.expose().clone().into_bytes());
        KubeSecret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.request.group.namespace.clone()),
                labels: self.request.job.metadata.labels.clone(),
                owner_references: self.request.job.metadata.owner_references.clone(),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(names::TOKEN_KEY.to_owned(), token)])),
            type_: Some("Opaque".to_owned()),
            ..KubeSecret::default()
        }
    }
}

/// Whether a Job ended.
fn ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    conditions.flatten().any(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })
}

/// Asks for something that may be asked for twice, and asks again when that may help. A try that was given up instead would be
/// followed by one under another name, beside a Job that was made although the answer did not say so.
async fn insist<T, F>(doing: &str, mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = kube::Result<T>>,
{
    let (mut backoff, mut left) = (Backoff::default(), MORE_TRIES);
    loop {
        match ask().await {
            Err(error) if left > 0 && passes(&error) => {
                tracing::debug!(
                    doing,
                    error = &error as &dyn std::error::Error,
                    "asking again"
                );
                left -= 1;
                tokio::time::sleep(backoff.next()).await;
            }
            ended => return ended.map_err(|error| api(doing, &error)),
        }
    }
}

/// Whether the same may be answered otherwise a little later.
fn passes(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || matches!(status.code, 409 | 429),
        _ => true,
    }
}

/// The API server refused, or could not be reached.
fn api(doing: &str, error: &kube::Error) -> Failure {
    let (reason, message, transient) = match error {
        kube::Error::Api(status) if status.code == 403 => {
            let (_, message) = refusal(&status.message);
            (Reason::DeployJobRefused, message, true)
        }
        kube::Error::Api(status) => {
            let message = status.message.clone();
            (Reason::DeployJobFailed, message, status.code != 422)
        }
        error => (Reason::DeployJobFailed, error.to_string(), true),
    };
    let message: String = message.chars().take(1000).collect();
    Failure {
        reason,
        message: format!("cannot {doing}: {message}"),
        transient,
    }
}

#[cfg(test)]
mod tests;
