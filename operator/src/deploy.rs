//! Runs the deploy Job of a revision and brings back its report.
//!
//! The Job has a token of its own in a Secret of its name; with it, it reads its code and hands over
//! requirements and report at the artifact endpoint. The report counts as soon as it is there. Everything
//! is found again by name after a restart.

mod jobs;
mod verdict;

use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use ramen_group::{LayerRef, Report};
use ramen_rollout::Failure;
use tokio_util::sync::CancellationToken;

use crate::group::GroupKey;

pub(crate) use jobs::Jobs;

/// A deploy that is to be run, or to be found running: the id is made of its inputs.
#[derive(Debug, Clone)]
pub(crate) struct DeployRequest {
    /// Whose.
    pub(crate) group: GroupKey,
    /// Ten hexadecimal digits; the Job and the Secret with its token (key `token`, mounted by the Job)
    /// are both named `<group>-deploy-<id>`.
    pub(crate) id: String,
    /// The Job as it is to be applied, with labels and owner; `metadata.owner_references` and
    /// `metadata.labels` go for the Secret too.
    pub(crate) job: Box<Job>,
    /// The layer that the job may read.
    pub(crate) code: LayerRef,
    /// The revision, for people.
    pub(crate) revision: String,
    /// How long the job may take from its creation on.
    pub(crate) timeout: Duration,
    /// Ends the deploy early: its Job is taken away, and the answer is of no interest.
    pub(crate) stop: CancellationToken,
}

/// What runs deploys.
pub(crate) trait Deploy: Send + Sync + 'static {
    /// Runs a deploy to its end. Dropping the future leaves the Job alone; asking again finds it. A job
    /// that ended without a report is a failure in words a person can act on.
    ///
    /// What is asked for once more after a failure is run once more.
    fn deploy(&self, request: DeployRequest) -> BoxFuture<'static, Result<Report, Failure>>;
}
