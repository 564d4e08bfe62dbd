//! Which deploys may hand something over, and what each of them may read. No I/O.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ramen_group::{LayerRef, Report};
use ramen_redact::{KeyDigest, Secret};
use ramen_source::{Digest, Kind};
use tokio::sync::watch;

use super::DeployId;

/// Locks that one deploy may keep.
const MAX_LOCKS: u8 = 4;
/// Layers that one deploy may hand over.
const MAX_LAYERS: u8 = 4;

/// The deploys that are under way.
#[derive(Debug, Default)]
pub(super) struct Registry {
    grants: Mutex<HashMap<DeployId, Arc<Grant>>>,
}

/// What the job of one deploy may do.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) deploy: DeployId,
    pub(super) code: LayerRef,
    token: KeyDigest,
    state: Mutex<State>,
    report: watch::Sender<Option<Arc<Report>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Layers of requirements that it was told of or handed over.
    deps: HashMap<Digest, LayerRef>,
    locks: u8,
    layers: u8,
    busy: bool,
    closed: bool,
}

impl Registry {
    /// Lets a deploy in; again, when it was in before with the same token.
    pub(super) fn admit(
        &self,
        deploy: &DeployId,
        token: &Secret,
        code: &LayerRef,
        known: Option<Report>,
    ) -> watch::Receiver<Option<Arc<Report>>> {
        let token = KeyDigest::of(token.expose());
        let mut grants = guard(&self.grants);
        if let Some(grant) = grants.get(deploy)
            && grant.token == token
            && grant.code == *code
        {
            return grant.report.subscribe();
        }
        let state = State {
            closed: known.is_some(),
            ..State::default()
        };
        let grant = Grant {
            deploy: deploy.clone(),
            code: code.clone(),
            token,
            state: Mutex::new(state),
            report: watch::channel(known.map(Arc::new)).0,
        };
        let receiver = grant.report.subscribe();
        grants.insert(deploy.clone(), Arc::new(grant));
        receiver
    }

    pub(super) fn dismiss(&self, deploy: &DeployId) {
        guard(&self.grants).remove(deploy);
    }

    /// The grant of a deploy, if the token opens it and its report is not in yet. A deploy that is not
    /// known takes as long.
    pub(super) fn open(&self, deploy: &DeployId, token: &[u8]) -> Option<Arc<Grant>> {
        let token = KeyDigest::of(token);
        let grant = guard(&self.grants).get(deploy).cloned();
        let expected = grant
            .as_ref()
            .map_or(KeyDigest::of(""), |grant| grant.token);
        let fits = expected == token;
        grant.filter(|grant| fits && !guard(&grant.state).closed)
    }

    /// Whether this is the token of a deploy whose report is in: what it sends once more is taken for
    /// received.
    pub(super) fn is_over(&self, deploy: &DeployId, token: &[u8]) -> bool {
        let token = KeyDigest::of(token);
        let grant = guard(&self.grants).get(deploy).cloned();
        grant.is_some_and(|grant| grant.token == token && guard(&grant.state).closed)
    }

    /// The grant that a token opens, whichever it is.
    pub(super) fn any(&self, token: &[u8]) -> Option<Arc<Grant>> {
        let token = KeyDigest::of(token);
        let grants = guard(&self.grants);
        let mut found = None;
        // All are compared, so that the time says nothing.
        for grant in grants.values() {
            if grant.token == token {
                found = Some(Arc::clone(grant));
            }
        }
        found.filter(|grant| !guard(&grant.state).closed)
    }
}

impl Grant {
    /// Whether the job may read this layer.
    pub(super) fn reads(&self, kind: Kind, digest: Digest) -> bool {
        match kind {
            Kind::Code => self.code.digest == digest.to_string(),
            Kind::Deps => guard(&self.state).deps.contains_key(&digest),
        }
    }

    /// From now on the job may read this layer and name it in its report.
    pub(super) fn learn(&self, layer: &LayerRef) {
        if let Ok(digest) = layer.digest.parse() {
            guard(&self.state).deps.insert(digest, layer.clone());
        }
    }

    /// What the report may name.
    pub(super) fn deps(&self) -> HashMap<Digest, LayerRef> {
        guard(&self.state).deps.clone()
    }

    /// One more lock?
    pub(super) fn may_keep_lock(&self) -> bool {
        let mut state = guard(&self.state);
        let may = state.locks < MAX_LOCKS;
        state.locks += u8::from(may);
        may
    }

    /// One more layer, and no other at the same time?
    pub(super) fn begin_layer(self: &Arc<Self>) -> Result<Receiving, &'static str> {
        let mut state = guard(&self.state);
        if state.busy {
            return Err("another layer is being taken");
        }
        if state.layers >= MAX_LAYERS {
            return Err("too many layers for one deploy");
        }
        state.busy = true;
        Ok(Receiving(Arc::clone(self)))
    }

    /// Closes the deploy with its report. The first one counts.
    pub(super) fn deliver(&self, report: Report) {
        guard(&self.state).closed = true;
        self.report.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(Arc::new(report));
            }
            first
        });
    }
}

/// A layer that is being taken.
#[derive(Debug)]
pub(super) struct Receiving(Arc<Grant>);

impl Receiving {
    /// It is in the store.
    pub(super) fn done(self, layer: &LayerRef) {
        self.0.learn(layer);
        guard(&self.0.state).layers += 1;
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        guard(&self.0.state).busy = false;
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GroupKey;

    fn layer(name: &str) -> LayerRef {
        LayerRef {
            key: name.into(),
            digest: Digest::of(name.as_bytes()).to_string(),
            size: 1,
        }
    }

    fn id(id: &str) -> DeployId {
        DeployId {
            group: GroupKey::new("ns", "g"),
            id: id.into(),
        }
    }

    #[test]
    fn a_token_opens_its_own_deploy_until_the_report_is_in() {
        let registry = Registry::default();
        let secret = Secret::from("rad_1");
        let receiver = registry.admit(&id("1"), &secret, &layer("code"), None);
        registry.admit(&id("2"), &Secret::from("rad_2"), &layer("code"), None);
        assert!(registry.open(&id("1"), b"rad_2").is_none());
        assert!(registry.open(&id("3"), b"rad_1").is_none());
        assert!(registry.open(&id("3"), b"").is_none());
        assert!(registry.any(b"").is_none() && registry.any(b"rad_3").is_none());
        let grant = registry.open(&id("1"), b"rad_1").unwrap();
        assert_eq!(registry.any(b"rad_1").unwrap().deploy, id("1"));

        let report = |outcome: &str| -> Report {
            serde_json::from_value(serde_json::json!({ "outcome": outcome })).unwrap()
        };
        grant.deliver(report("ok"));
        grant.deliver(report("failed"));
        let outcome = receiver.borrow().as_ref().unwrap().outcome;
        assert_eq!(outcome, ramen_group::Outcome::Ok);
        assert!(registry.open(&id("1"), b"rad_1").is_none());
        assert!(registry.any(b"rad_1").is_none());
        assert!(registry.is_over(&id("1"), b"rad_1") && !registry.is_over(&id("1"), b"rad_2"));
        assert!(!registry.is_over(&id("2"), b"rad_2"));
        // Asked for once more: the same report, and still closed.
        let again = registry.admit(&id("1"), &secret, &layer("code"), None);
        assert!(again.borrow().is_some());
        assert!(registry.open(&id("1"), b"rad_1").is_none());
        registry.dismiss(&id("2"));
        assert!(registry.open(&id("2"), b"rad_2").is_none());
        assert!(!format!("{registry:?}").contains("rad_"));
    }

    #[test]
    fn a_job_reads_its_code_and_what_it_was_told_of() {
        let registry = Registry::default();
        registry.admit(&id("1"), &Secret::from("t"), &layer("code"), None);
        let grant = registry.open(&id("1"), b"t").unwrap();
        let digest = |name: &str| Digest::of(name.as_bytes());
        assert!(grant.reads(Kind::Code, digest("code")));
        assert!(!grant.reads(Kind::Code, digest("other")));
        assert!(!grant.reads(Kind::Deps, digest("deps")));
        grant.learn(&layer("deps"));
        assert!(grant.reads(Kind::Deps, digest("deps")));
        assert!(!grant.reads(Kind::Code, digest("deps")));
    }

    #[test]
    fn one_layer_at_a_time_and_few_of_them() {
        let registry = Registry::default();
        registry.admit(&id("1"), &Secret::from("t"), &layer("code"), None);
        let grant = registry.open(&id("1"), b"t").unwrap();
        let first = grant.begin_layer().unwrap();
        assert!(grant.begin_layer().is_err());
        drop(first);
        for _ in 0..MAX_LAYERS {
            grant.begin_layer().unwrap().done(&layer("deps"));
        }
        assert!(grant.begin_layer().is_err());
        assert_eq!((0..9).filter(|_| grant.may_keep_lock()).count(), 4);
    }
}
