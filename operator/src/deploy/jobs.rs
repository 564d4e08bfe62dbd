//! The Job and its Secret: made, watched, taken away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Secret as KubeSecret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, Preconditions};
use ramen_group::{Outcome, Reason, Report};
use ramen_redact::Secret;
use ramen_rollout::Failure;
use ramen_source::Kind;
use tokio::sync::watch;
use tokio::time::Instant;

use super::verdict::{self, Seen};
use super::{Deploy, DeployRequest};
use crate::artifacts::{Artifacts, DeployId, one_time};
use crate::names::{self, child};

/// Between two looks at a Job. Its report does not wait for that.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A Job that ended well has sent its report before; the answer may still be on its way here.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// Beyond the Job's own deadline.
const GRACE: Duration = Duration::from_secs(30);
/// For an old Job of the same name to be gone.
const GONE_TIME: Duration = Duration::from_mins(1);
/// Looks at the API server that may fail one after the other.
const MAX_BLIND: u32 = 30;

type Reports = watch::Receiver<Option<Arc<Report>>>;

/// Runs deploys as Jobs.
#[derive(Clone)]
pub(crate) struct Jobs {
    client: Client,
    artifacts: Artifacts,
}

impl Jobs {
    /// With this client; reports come through `artifacts`.
    pub(crate) fn new(client: Client, artifacts: Artifacts) -> Self {
        Self { client, artifacts }
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
    pods: Api<Pod>,
    events: Api<Event>,
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
            pods: Api::namespaced(jobs.client.clone(), namespace),
            events: Api::namespaced(jobs.client.clone(), namespace),
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
        let (job, mut reports) = self.begin().await?;
        let result = self.watch(&job, &mut reports).await;
        self.artifacts.dismiss(&self.deploy);
        self.clean(result.is_err()).await;
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
        let found = self.jobs.get_opt(&self.name).await;
        let found = found.map_err(|error| api("read the deploy job", &error))?;
        let token = self.token().await?;
        if let (Some(job), Some(token)) = (&found, &token)
            && verdict::end(job).is_none()
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
        let applied = self.secrets.patch(&self.name, &params, &secret).await;
        applied.map_err(|error| api("write the token of the deploy job", &error))?;
        let job = Patch::Apply(&*self.request.job);
        let applied = self.jobs.patch(&self.name, &params, &job).await;
        let job = applied.map_err(|error| api("create the deploy job", &error))?;
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
        let secret = self.secrets.get_opt(&self.name).await;
        let secret = secret.map_err(|error| api("read the token of the deploy job", &error))?;
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

    /// Until the report is there, or the Job can bring none any more.
    async fn watch(&self, job: &Job, reports: &mut Reports) -> Result<Report, Failure> {
        let deadline = Instant::now() + self.left(job);
        let mut blind = 0;
        loop {
            let waited = tokio::time::timeout(LOOK_EVERY, reports.wait_for(Option::is_some)).await;
            if let Some(report) = arrived(waited) {
                return Ok(report);
            }
            let verdict = match self.look().await {
                Ok(seen) => {
                    blind = 0;
                    verdict::judge(&seen)
                }
                Err(error) => {
                    blind += 1;
                    tracing::debug!(deploy = %self.deploy, %error, "the deploy job cannot be seen");
                    (blind > MAX_BLIND).then(|| api("see the deploy job", &error))
                }
            };
            let late = Instant::now() >= deadline;
            let verdict = verdict
                .or_else(|| late.then(|| verdict::failure("it did not end within its time", true)));
            if let Some(failure) = verdict {
                let last = tokio::time::timeout(LAST_REPORT, reports.wait_for(Option::is_some));
                return match arrived(last.await) {
                    Some(report) => Ok(report),
                    None => Err(failure),
                };
            }
        }
    }

    /// What is left of the time of a Job.
    fn left(&self, job: &Job) -> Duration {
        let created = job.metadata.creation_timestamp.as_ref();
        let created = created.map(|time| SystemTime::from(time.0));
        let age = created.and_then(|time| time.elapsed().ok());
        self.request.timeout.saturating_sub(age.unwrap_or_default()) + GRACE
    }

    async fn look(&self) -> Result<Seen, kube::Error> {
        let job = self.jobs.get_opt(&self.name).await?;
        let of_job = format!("batch.kubernetes.io/job-name={}", self.name);
        let pods = self
            .pods
            .list(&ListParams::default().labels(&of_job))
            .await?;
        let events = if pods.items.is_empty() {
            let about = format!("involvedObject.kind=Job,involvedObject.name={}", self.name);
            let about = ListParams::default().fields(&about);
            let events = self.events.list(&about).await;
            // To say why there is no pod; without it there is less to say.
            events.map(|list| list.items).unwrap_or_default()
        } else {
            Vec::new()
        };
        Ok(Seen {
            job,
            pods: pods.items,
            events,
            now: SystemTime::now(),
        })
    }

    /// Removes a Job and waits until its name is free.
    async fn remove(&self, job: &Job) -> Result<(), Failure> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: job.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.jobs.delete(&self.name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(api("remove the old deploy job", &error)),
        }
        let until = Instant::now() + GONE_TIME;
        while Instant::now() < until {
            let left = self.jobs.get_metadata_opt(&self.name).await;
            match left.map_err(|error| api("read the old deploy job", &error))? {
                Some(left) if left.metadata.uid == job.metadata.uid => {}
                _ => return Ok(()),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(verdict::failure(
            "the old deploy job does not go away",
            true,
        ))
    }

    /// The token opens nothing any more. A Job that failed for want of something would go on trying.
    async fn clean(&self, failed: bool) {
        let params = DeleteParams::default();
        if let Err(error) = self.secrets.delete(&self.name, &params).await
            && !matches!(&error, kube::Error::Api(status) if status.code == 404)
        {
            tracing::warn!(deploy = %self.deploy, %error, "the token of a deploy job was not removed");
        }
        if !failed {
            return;
        }
        match self.jobs.get_opt(&self.name).await {
            Ok(Some(job)) if verdict::end(&job).is_none() => {
                let params = DeleteParams::background();
                if let Err(error) = self.jobs.delete(&self.name, &params).await {
                    tracing::warn!(deploy = %self.deploy, %error, "a deploy job was not stopped");
                }
            }
            // One that ended stays for its log.
            _ => {}
        }
    }
}

type Waited<'a> = Result<
    Result<watch::Ref<'a, Option<Arc<Report>>>, watch::error::RecvError>,
    tokio::time::error::Elapsed,
>;

fn arrived(waited: Waited<'_>) -> Option<Report> {
    let report = waited.ok()?.ok()?;
    report.as_deref().cloned()
}

/// The API server refused, or could not be reached.
fn api(doing: &str, error: &kube::Error) -> Failure {
    let (message, transient) = match error {
        kube::Error::Api(status) => (status.message.clone(), status.code != 422),
        error => (error.to_string(), true),
    };
    let message: String = message.chars().take(1000).collect();
    Failure {
        reason: Reason::DeployJobFailed,
        message: format!("cannot {doing}: {message}"),
        transient,
    }
}
