//! Takes Jobs away that nobody needs any more.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions};
use ramen_rollout::Failure;
use tokio::time::Instant;

use super::{Run, api};
use crate::deploy::verdict;

/// Jobs that ended and are kept for people to read their logs.
const KEPT_JOBS: usize = 3;
/// For an old Job of the same name to be gone.
const GONE_TIME: Duration = Duration::from_mins(1);

impl Run {
    /// A group has one deploy at a time: what another left running is of no use any more.
    pub(super) async fn stop_others(&self) {
        for (name, job) in self.pods.jobs(&self.request.group) {
            if name != self.name && job.end.is_none() {
                tracing::info!(deploy = %self.deploy, job = name, "stopping a deploy job of before");
                self.take_away(&name, &job.uid).await;
            }
        }
    }

    /// Of the Jobs that ended, the newest stay.
    async fn prune(&self) {
        let mut ended = self.pods.jobs(&self.request.group);
        ended.retain(|(name, job)| *name != self.name && job.end.is_some());
        let surplus = (ended.len() + 1).saturating_sub(KEPT_JOBS);
        for (name, job) in ended.into_iter().take(surplus) {
            self.take_away(&name, &job.uid).await;
        }
    }

    async fn take_away(&self, name: &str, uid: &str) {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match self.jobs.delete(name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(deploy = %self.deploy, job = name, %error, "a deploy job was not removed");
            }
        }
    }

    /// Removes a Job and waits until its name is free.
    pub(super) async fn remove(&self, job: &Job) -> Result<(), Failure> {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        self.take_away(&self.name, uid).await;
        let until = Instant::now() + GONE_TIME;
        while Instant::now() < until {
            let left = self.jobs.get_metadata_opt(&self.name).await;
            match left.map_err(|error| api("read the old deploy job", &error))? {
                Some(left) if left.metadata.uid == job.metadata.uid => {}
                _ => return Ok(()),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(verdict::failure("the old deploy job does not go away"))
    }

    /// The token opens nothing any more. A Job that failed for want of something would go on trying.
    pub(super) async fn clean(&self, job: &Job, failed: bool) {
        let params = DeleteParams::default();
        if let Err(error) = self.secrets.delete(&self.name, &params).await
            && !matches!(&error, kube::Error::Api(status) if status.code == 404)
        {
            tracing::warn!(deploy = %self.deploy, %error, "the token of a deploy job was not removed");
        }
        let (seen, _) = self.pods.job(&self.request.group, &self.name);
        // One that ended stays for its log.
        if failed && seen.is_none_or(|seen| seen.end.is_none()) {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            self.take_away(&self.name, uid).await;
        }
        self.prune().await;
    }
}
