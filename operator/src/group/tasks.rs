//! What the actions of the machine ask for, each as a task. What comes out is put into the group's inbox,
//! and the group is woken.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use ramen_group::{Finding, LayerRef, Reason, Report};
use ramen_redact::chain;
use ramen_rollout::{Failure, Inputs, Revision, Served};
use ramen_source::git::{Git, GitError, Resolved, no_progress};
use ramen_source::store::StoreError;
use ramen_source::tree::TreeLimits;
use ramen_source::{Kind, Store, Tree, layer};
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::build::deploy_job;
use super::rollout::{Deploying, Known, Rollout, Trouble, image_of};
use super::validate::Validated;
use super::{Operator, Wake};
use crate::artifacts::Artifacts;
use crate::deploy::{Deploy, DeployRequest};
use crate::metrics::Metrics;
use crate::pods::PodView;
use crate::reload::{
    Ailment, InspectRequest, Reload, ReloadRequest, Reloaded, Said, SurveyRequest,
};

/// What ends a piece of work.
#[derive(Debug)]
pub(crate) enum Done {
    Resolved(Result<Resolved, Trouble>),
    Fetched(Revision, Result<Stored, Trouble>),
    Deployed(Revision, Inputs, Result<Box<Report>, Failure>),
    Reloaded(Inputs, Result<Reloaded, Failure>),
    Inspected(Inputs, Vec<Ailment>),
    Surveyed(Inputs, Vec<Said>),
    /// A deploy whose end nobody waits for.
    GivenUp,
}

/// A revision whose code is in the store.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) commit: String,
    pub(crate) label: String,
    pub(crate) code: LayerRef,
}

/// What tasks work with.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) git: Git,
    pub(crate) scratch: PathBuf,
    pub(crate) artifacts: Artifacts,
    pub(crate) deploy: Arc<dyn Deploy>,
    pub(crate) reload: Arc<dyn Reload>,
    pub(crate) metrics: Metrics,
}

impl From<GitError> for Trouble {
    fn from(error: GitError) -> Self {
        Self {
            transient: error.is_transient(),
            finding: error.finding(),
        }
    }
}

impl Work {
    fn start(
        rollout: &mut Rollout,
        group: &Validated,
        wake: &Wake,
        work: impl Future<Output = Done> + Send + 'static,
    ) -> AbortHandle {
        Self::start_until(rollout, group, wake, CancellationToken::new(), work)
    }

    /// Of what is stopped before its end is in the inbox no end is told.
    fn start_until(
        rollout: &mut Rollout,
        group: &Validated,
        wake: &Wake,
        stop: CancellationToken,
        work: impl Future<Output = Done> + Send + 'static,
    ) -> AbortHandle {
        let (inbox, wake, key) = (Arc::clone(&rollout.inbox), wake.clone(), group.key.clone());
        rollout.tasks.spawn(async move {
            let done = work.await;
            {
                let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
                // Whoever stops it holds the lock.
                let given_up = stop.is_cancelled();
                inbox.push(if given_up { Done::GivenUp } else { done });
            }
            wake.wake(&key);
        })
    }

    /// One look at the refs.
    pub(super) fn resolve(&self, rollout: &mut Rollout, group: &Validated, wake: &Wake) {
        let (git, metrics) = (self.git.clone(), self.metrics.clone());
        let (remote, wanted) = (group.remote.clone(), group.wanted.clone());
        let key = group.key.clone();
        Self::start(rollout, group, wake, async move {
            let found = git.resolve(&remote, &wanted).await.map_err(Trouble::from);
            metrics.fetched(found.is_ok());
            if let Ok(found) = &found {
                tracing::debug!(group = %key, commit = found.commit, "looked at the source");
            }
            Done::Resolved(found)
        });
    }

    /// Brings the code of a revision into the store.
    pub(super) fn fetch(
        &self,
        rollout: &mut Rollout,
        group: &Validated,
        wake: &Wake,
        revision: Revision,
    ) {
        let found = rollout
            .found
            .take_if(|found| found.commit == revision.commit);
        // Known from an earlier run: the commit alone is enough.
        let found = found.unwrap_or_else(|| Resolved {
            name: None,
            full_ref: None,
            on_branch: None,
            commit: revision.commit.clone(),
        });
        let work = self.clone();
        let (remote, path) = (group.remote.clone(), group.spec.source.path.to_string());
        let key = group.key.clone();
        let task = Self::start(rollout, group, wake, async move {
            let stored = async {
                let limits = TreeLimits::default();
                let load = work.git.load(&remote, &found, &path, limits, no_progress());
                let loaded = load.await?;
                Ok(Stored {
                    commit: loaded.resolved.commit.clone(),
                    label: loaded.resolved.revision(),
                    code: work.put(loaded.tree).await?,
                })
            };
            let stored = stored.await;
            work.metrics.fetched(stored.is_ok());
            if let Ok(stored) = &stored {
                tracing::debug!(group = %key, commit = stored.commit, "the code is in the store");
            }
            Done::Fetched(revision, stored)
        });
        if let Some(before) = rollout.fetching.replace(task) {
            before.abort();
        }
    }

    async fn put(&self, tree: Tree) -> Result<LayerRef, Trouble> {
        let store: &Store = self.artifacts.store();
        let key = tree.id.clone();
        let stored = |error: StoreError| here(error.reason(), &error);
        if let Some(known) = store.find(Kind::Code, &key).await.map_err(stored)? {
            return Ok(known);
        }
        let scratch = self.scratch.clone();
        let packed = tokio::task::spawn_blocking(move || layer::pack_tree(&tree, &scratch)).await;
        let packed = packed
            .map_err(|error| here(Reason::Internal, &error))?
            .map_err(|error| here(error.reason(), &error))?;
        store.put(Kind::Code, &key, &packed).await.map_err(stored)
    }

    /// Runs the deploy Job.
    pub(super) fn deploy(
        &self,
        rollout: &mut Rollout,
        group: &Validated,
        operator: &Operator,
        wake: &Wake,
        (revision, inputs, code): (Revision, Inputs, Option<LayerRef>),
    ) {
        let times = rollout
            .memory()
            .retry
            .as_ref()
            .map_or(0, |retry| retry.times);
        let repair = rollout.repair();
        let stop = CancellationToken::new();
        let secrets = group.secrets_hash.as_deref();
        let id = code.as_ref().map_or_else(String::new, |code| {
            deploy_id(&inputs, code, secrets, times, repair)
        });
        if let Some(before) = &rollout.deploying
            && before.is_awaited()
        {
            if before.id == id {
                // Another commit of the same tree: its end is this one's too.
                return;
            }
            before.stop.cancel();
        }
        let request = code.map(|code| {
            let id = id.clone();
            DeployRequest {
                job: Box::new(deploy_job::build(group, operator, &id, &revision, &code)),
                group: group.key.clone(),
                timeout: deploy_job::deadline(group),
                revision: revision.label.clone(),
                code,
                stop: stop.clone(),
                id,
            }
        });
        let (deploy, metrics) = (Arc::clone(&self.deploy), self.metrics.clone());
        let stopped = stop.clone();
        let began = tokio::time::Instant::now();
        let task = Self::start_until(rollout, group, wake, stop.clone(), async move {
            let report = match request {
                Some(request) => deploy.deploy(request).await,
                None => Err(Failure {
                    reason: Reason::LayerMissing,
                    message: "the code of the revision is not in the store".to_owned(),
                    transient: true,
                }),
            };
            if stopped.is_cancelled() {
                return Done::GivenUp;
            }
            let result = match &report {
                Ok(report) => match report.outcome {
                    ramen_group::Outcome::Ok => "ok",
                    ramen_group::Outcome::Partial => "partial",
                    ramen_group::Outcome::Failed => "failed",
                },
                Err(_) => "broken",
            };
            metrics.deployed(result, began.elapsed());
            Done::Deployed(revision, inputs, report.map(Box::new))
        });
        rollout.deploying = Some(Deploying { id, task, stop });
    }

    /// Pushes a revision to the pods.
    pub(super) fn reload(
        &self,
        rollout: &mut Rollout,
        group: &Validated,
        wake: &Wake,
        served: Served,
    ) {
        let serving = rollout.memory().serving.as_ref();
        let before = serving.and_then(|serving| image_of(&serving.inputs));
        if before.is_some() && before != image_of(&served.inputs) {
            // The pods have another image and may not even have the Python for it: new ones come up with
            // both, and the old ones serve until then.
            let done = Done::Reloaded(served.inputs, Ok(Reloaded::default()));
            Self::start(rollout, group, wake, async move { done });
            return;
        }
        let known = rollout.known(&served.inputs);
        let previous = rollout.memory().serving.as_ref();
        let previous = previous.filter(|previous| previous.inputs != served.inputs);
        let request = ReloadRequest {
            group: group.key.clone(),
            desired: served.desired,
            expected: known.and_then(Known::expected),
            previous: previous.map(|previous| previous.desired.clone()),
            admin_key: group.own.admin.clone(),
            call_key: Some(group.own.gateway.clone()),
            canary: group.spec.rollout.canary,
            timeout: group.spec.rollout.timeout,
        };
        let reload = self.reload.reload(request);
        let metrics = self.metrics.clone();
        Self::start(rollout, group, wake, async move {
            let done = reload.await;
            metrics.reloaded(done.is_ok());
            Done::Reloaded(served.inputs, done)
        });
    }

    /// Asks pods that run and do not answer what is wrong.
    pub(super) fn inspect(&self, rollout: &mut Rollout, group: &Validated, wake: &Wake) {
        let Some(serving) = rollout.memory().serving.clone() else {
            return;
        };
        let said = self.reload.inspect(InspectRequest {
            group: group.key.clone(),
            desired: serving.desired,
            admin_key: group.own.admin.clone(),
            timeout: group.spec.rollout.timeout,
        });
        Self::start(rollout, group, wake, async move {
            Done::Inspected(serving.inputs, said.await)
        });
    }

    /// Asks pods that answer whether they serve what is wanted.
    pub(super) fn survey(
        &self,
        rollout: &mut Rollout,
        group: &Validated,
        wake: &Wake,
        pods: Vec<PodView>,
    ) {
        let Some(serving) = rollout.memory().serving.clone() else {
            return;
        };
        let said = self.reload.survey(SurveyRequest {
            pods,
            image: image_of(&serving.inputs).map(str::to_owned),
            desired: serving.desired,
            admin_key: group.own.admin.clone(),
            timeout: group.spec.rollout.timeout,
        });
        Self::start(rollout, group, wake, async move {
            Done::Surveyed(serving.inputs, said.await)
        });
    }
}

/// Ten hexadecimal digits: the same deploy has the same name over restarts, a further try has another.
fn deploy_id(
    inputs: &Inputs,
    code: &LayerRef,
    secrets: Option<&str>,
    times: u32,
    repair: u64,
) -> String {
    let mut text = format!(
        "{}\0{}\0{}\0{}\0{times}\0{repair}",
        inputs.tree, inputs.runtime, inputs.spec, code.digest
    );
    if let Some(secrets) = secrets {
        text.extend(["\0", secrets]);
    }
    let mut id = hex::encode(Sha256::digest(text.as_bytes()));
    id.truncate(10);
    id
}

/// Something of this machine that may pass: a full disk.
fn here(reason: Reason, error: &dyn std::error::Error) -> Trouble {
    Trouble {
        finding: Finding::group(reason, format!("the code layer: {}", chain(error))),
        transient: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deploy_has_the_same_name_until_it_is_tried_again() {
        let inputs = |tree: &str| Inputs {
            tree: tree.to_owned(),
            runtime: "image".to_owned(),
            spec: "spec".to_owned(),
        };
        let code = LayerRef {
            key: "t".to_owned(),
            digest: "sha256:00".to_owned(),
            size: 1,
        };
        let id = deploy_id(&inputs("t"), &code, None, 0, 0);
        assert_eq!(id.len(), 10);
        assert_eq!(id, deploy_id(&inputs("t"), &code, None, 0, 0));
        assert_ne!(id, deploy_id(&inputs("t"), &code, None, 1, 0));
        assert_ne!(id, deploy_id(&inputs("u"), &code, None, 0, 0));
        assert_ne!(id, deploy_id(&inputs("t"), &code, None, 0, 1));
        // Nor may one that was given other secrets be taken for it.
        let given = |secrets| deploy_id(&inputs("t"), &code, Some(secrets), 0, 0);
        assert_eq!(given("1"), given("1"));
        assert_ne!(given("1"), given("2"));
        assert_ne!(given("1"), id);
    }
}
