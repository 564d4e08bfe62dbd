//! The artifact endpoint: hands layers to pods, takes layers and reports of deploy jobs.
//!
//! ```text
//! GET      /v1/layers/{code|deps}/{digest}                       read token of a group, or of a deploy
//! below /v1/deploys/{namespace}/{group}/{id}/, with the token of that deploy, until its report is in:
//! GET, PUT locks/{inputs}
//! GET, PUT layers/deps/{key}
//! PUT      report
//! ```
//! A read token opens any layer whose digest its holder knows; digests are not listed anywhere here. What
//! a deploy hands over is kept under its group's scope, so that no group's job can put anything in the
//! place of another's. Tokens are in no log.

mod endpoint;
mod place;
mod registry;
mod report;
mod sending;
#[cfg(test)]
mod tests;
mod token;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ramen_group::{DesiredState, LayerRef, Report};
use ramen_redact::Secret;
use ramen_source::store::StoreError;
use ramen_source::{Kind, Store};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::group::GroupKey;
use crate::ports::Leads;
use registry::{Grant, Registry};
use token::ReadKey;

pub(crate) use token::one_time;

/// How long reports and locks are kept that nobody asks for any more.
const KEEP_MEMOS: Duration = Duration::from_hours(24 * 14);
/// How often is swept.
const SWEEP_EVERY: Duration = Duration::from_hours(6);

/// One deploy of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DeployId {
    /// Whose.
    pub(crate) group: GroupKey,
    /// The hash of its inputs.
    pub(crate) id: String,
}

impl fmt::Display for DeployId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.id)
    }
}

impl DeployId {
    fn report_key(&self) -> String {
        format!("report-{}", hash(&self.to_string()))
    }
}

/// Where a group's own things are in the store.
fn scope(group: &GroupKey) -> String {
    hash(&group.to_string())
}

fn hash(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..10])
}

/// The store and who may read or write what in it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Artifacts {
    store: Store,
    key: ReadKey,
    registry: Arc<Registry>,
    lost: Arc<Lost>,
}

type WakeGroup = Box<dyn Fn(&GroupKey) + Send + Sync>;

/// Groups whose pods asked for a layer that is not there.
#[derive(Default)]
struct Lost {
    groups: Mutex<HashSet<GroupKey>>,
    wake: OnceLock<WakeGroup>,
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lost").field(&self.groups).finish()
    }
}

impl Artifacts {
    /// Over a store; the key for read tokens lies in it.
    pub(crate) async fn open(store: Store) -> io::Result<Self> {
        let key = ReadKey::open(&store).await?;
        Ok(Self {
            store,
            key,
            registry: Arc::default(),
            lost: Arc::default(),
        })
    }

    /// The store.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The token with which the pods of a group read layers. It is the same over restarts and on every
    /// replica that uses this store.
    pub(crate) fn read_token(&self, group: &GroupKey) -> Secret {
        self.key.token(group)
    }

    /// Lets the job of a deploy in: it may read `code`, and hand over requirements and one report. The
    /// receiver has the report once it is there.
    pub(crate) async fn admit(
        &self,
        deploy: &DeployId,
        token: &Secret,
        code: &LayerRef,
    ) -> Result<watch::Receiver<Option<Arc<Report>>>, StoreError> {
        let known = self.report(deploy).await?;
        Ok(self.registry.admit(deploy, token, code, known))
    }

    /// The report of a deploy, if it came in; also after a restart.
    pub(crate) async fn report(&self, deploy: &DeployId) -> Result<Option<Report>, StoreError> {
        let text = self.store.memo(&deploy.report_key()).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Hands a report over as the job of a deploy does.
    #[cfg(test)]
    pub(crate) fn hand_over(&self, deploy: &DeployId, token: &[u8], report: Report) {
        let grant = self.registry.open(deploy, token);
        grant.expect("the token opens the deploy").deliver(report);
    }

    /// Nothing of this deploy is taken any more.
    pub(crate) fn dismiss(&self, deploy: &DeployId) {
        self.registry.dismiss(deploy);
    }

    /// Forgets the report, so that the same deploy can be run again.
    pub(crate) async fn forget(&self, deploy: &DeployId) -> Result<(), StoreError> {
        self.registry.dismiss(deploy);
        self.store.remove_memo(&deploy.report_key()).await
    }

    /// What is called when a pod asks for a layer that is not in the store. The first one counts.
    pub(crate) fn on_lost(&self, wake: impl Fn(&GroupKey) + Send + Sync + 'static) {
        let _ = self.lost.wake.set(Box::new(wake));
    }

    /// Whether a pod of the group asked for a layer that is not there, since the last time. A pod may
    /// ask for anything: see with [`Self::holds`] whether something is missing.
    pub(crate) fn take_lost(&self, group: &GroupKey) -> bool {
        self.lost().remove(group)
    }

    /// Whether all layers of a revision are in the store.
    pub(crate) async fn holds(&self, desired: &DesiredState) -> Result<bool, StoreError> {
        let code = std::iter::once((Kind::Code, &desired.code));
        for (kind, layer) in code.chain(desired.deps.iter().map(|layer| (Kind::Deps, layer))) {
            if self.store.find(kind, &layer.key).await?.as_ref() != Some(layer) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn miss(&self, group: &GroupKey) {
        if self.lost().insert(group.clone()) {
            tracing::warn!(%group, "a pod asks for a layer that is not in the store");
            if let Some(wake) = self.lost.wake.get() {
                wake(group);
            }
        }
    }

    fn lost(&self) -> MutexGuard<'_, HashSet<GroupKey>> {
        self.lost
            .groups
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers until told to stop. A replica that does not write gives layers; all else it puts off.
    pub(crate) async fn serve(self, listener: TcpListener, leads: Leads, stop: CancellationToken) {
        let sweeping = sweep(self.store.clone(), leads.clone());
        tokio::select! {
            () = endpoint::serve(self, listener, leads, endpoint::Limits::DEFAULT, stop) => {}
            () = sweeping => {}
        }
    }

    /// Keeps a report that came in.
    async fn deliver(&self, grant: &Grant, report: Report) -> Result<(), StoreError> {
        let text = serde_json::to_string(&report).unwrap_or_default();
        self.store
            .put_memo(&grant.deploy.report_key(), &text)
            .await?;
        grant.deliver(report);
        Ok(())
    }
}

async fn sweep(store: Store, leads: Leads) {
    let mut every = tokio::time::interval(SWEEP_EVERY);
    loop {
        every.tick().await;
        endpoint::sweep(&store);
        if !leads.now() {
            continue;
        }
        for prefix in ["report-", "lock-"] {
            match store.prune_memos(prefix, KEEP_MEMOS).await {
                Ok(0) => {}
                Ok(removed) => tracing::info!(prefix, removed, "swept the store"),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the store was not swept");
                }
            }
        }
    }
}
