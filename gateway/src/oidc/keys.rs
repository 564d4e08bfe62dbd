//! The keys of one issuer: found by its discovery document, kept, and fetched again when they are old or when a token
//! names one that is not there. While the issuer cannot be reached the keys at hand go on.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use ramen_client::oauth::web;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::settings::Issuer;
use crate::door::Denied;

/// How old keys may get while they are used.
const MAX_AGE: Duration = Duration::from_mins(5);
/// From one fetch for a key that is not there to the next, whatever tokens name.
const BETWEEN_UNKNOWN: Duration = Duration::from_secs(10);
/// From a fetch that failed to the next.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a fetch may take, and so how long a caller waits for one.
const FETCH_TIME: Duration = Duration::from_secs(5);
/// Keys of one issuer that are looked at.
const MAX_KEYS: usize = 64;

/// One key.
#[derive(Debug)]
pub(super) struct Known {
    jwk: Jwk,
    pub(super) key: DecodingKey,
    /// The one algorithm that it is for, when it says so.
    algorithm: Option<Algorithm>,
}

/// The keys of one issuer.
pub(super) struct Keys {
    issuer: String,
    jwks_uri: Option<Url>,
    now: RwLock<Arc<Vec<Arc<Known>>>>,
    /// Held while keys are fetched.
    fetching: tokio::sync::Mutex<Fetches>,
}

#[derive(Default)]
struct Fetches {
    /// When keys came last.
    came: Option<Instant>,
    /// When that failed last, unless keys came since.
    failed: Option<Instant>,
    /// When keys were fetched last for one that was not there.
    for_unknown: Option<Instant>,
}

fn within(at: Option<Instant>, time: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < time)
}

/// The keys could not be fetched.
struct Failed;

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: Url,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl Keys {
    pub(super) fn new(issuer: &Issuer) -> Self {
        Self {
            issuer: issuer.issuer.clone(),
            jwks_uri: issuer.jwks_uri.clone(),
            now: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Gets the keys once, unless they are there.
    pub(super) async fn warm(&self) {
        if self.current().is_empty() {
            let _ = self.fetch().await;
        }
    }

    /// The keys that a token may be signed with: those of its `kid`, or all of its algorithm when it names none.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Arc<Known>>, Denied> {
        let found = self.fitting(kid, algorithm);
        if !found.is_empty() {
            self.renew_in_time();
            return Ok(found);
        }
        let failed = self.fetch().await.is_err();
        let found = self.fitting(kid, algorithm);
        match (found.is_empty(), failed) {
            (false, _) => Ok(found),
            // It may be a new key of an issuer that does not answer.
            (true, true) => Err(Denied::Unavailable),
            (true, false) => Err(Denied::Invalid),
        }
    }

    fn current(&self) -> Arc<Vec<Arc<Known>>> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn fitting(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Known>> {
        let current = self.current();
        let fitting = current.iter().filter(|known| {
            let named = kid.is_none_or(|kid| known.jwk.common.key_id.as_deref() == Some(kid));
            named
                && known.key.family() == algorithm.family()
                && known.algorithm.is_none_or(|own| own == algorithm)
        });
        fitting.cloned().collect()
    }

    /// Fetches again beside the caller when the keys are old.
    fn renew_in_time(self: &Arc<Self>) {
        let Ok(fetches) = self.fetching.try_lock() else {
            return;
        };
        let enough = within(fetches.came, MAX_AGE) || within(fetches.failed, AFTER_FAILURE);
        drop(fetches);
        if !enough {
            let keys = Arc::clone(self);
            tokio::spawn(async move { keys.fetch().await });
        }
    }

    /// Fetches the keys, unless somebody did while this one waited, or it was tried too lately.
    async fn fetch(&self) -> Result<(), Failed> {
        let asked = Instant::now();
        let mut fetches = self.fetching.lock().await;
        if fetches.came.is_some_and(|at| at > asked) {
            return Ok(());
        }
        if within(fetches.failed, AFTER_FAILURE) {
            return Err(Failed);
        }
        // Keys that are not old are fetched again for one that is not among them, and that is bounded.
        if within(fetches.came, MAX_AGE) {
            if within(fetches.for_unknown, BETWEEN_UNKNOWN) {
                return Ok(());
            }
            fetches.for_unknown = Some(asked);
        }
        let got = tokio::time::timeout(FETCH_TIME, self.get()).await;
        let got = got.unwrap_or_else(|_| Err("the issuer does not answer".to_owned()));
        match got {
            Ok(keys) => {
                (fetches.came, fetches.failed) = (Some(Instant::now()), None);
                tracing::debug!(issuer = self.issuer, keys = keys.len(), "keys fetched");
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                Ok(())
            }
            Err(why) => {
                fetches.failed = Some(Instant::now());
                let kept = self.current().len();
                tracing::warn!(
                    issuer = self.issuer,
                    why,
                    kept,
                    "keys cannot be fetched; those at hand go on"
                );
                Err(Failed)
            }
        }
    }

    async fn get(&self) -> Result<Vec<Arc<Known>>, String> {
        let place = match &self.jwks_uri {
            Some(place) => place.clone(),
            None => self.discover().await?,
        };
        let set: Option<Set> = web::get(&place).await?;
        let set = set.ok_or_else(|| "there are no keys at the issuer's jwks_uri".to_owned())?;
        let before = self.current();
        let keys = set.keys.into_iter().take(MAX_KEYS);
        let keys: Vec<_> = keys.filter_map(|key| known(key, &before)).collect();
        if keys.is_empty() {
            return Err("none of the issuer's keys can be used".to_owned());
        }
        Ok(keys)
    }

    async fn discover(&self) -> Result<Url, String> {
        let base = self.issuer.trim_end_matches('/');
        let place = Url::parse(&format!("{base}/.well-known/openid-configuration"))
            .map_err(|error| error.to_string())?;
        let found: Option<Discovery> = web::get(&place).await?;
        let found = found.ok_or_else(|| "the issuer does not describe itself".to_owned())?;
        if found.issuer != self.issuer {
            return Err("the issuer's description names another issuer".to_owned());
        }
        Ok(found.jwks_uri)
    }
}

/// A key that can check signatures; one that is known already stays the same, so that what it checked stays valid.
fn known(key: Value, before: &[Arc<Known>]) -> Option<Arc<Known>> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    if let Some(same) = before.iter().find(|known| known.jwk == jwk) {
        return Some(Arc::clone(same));
    }
    let common = &jwk.common;
    let signs = !matches!(&common.public_key_use, Some(other) if *other != PublicKeyUse::Signature);
    let checks = common
        .key_operations
        .as_ref()
        .is_none_or(|all| all.contains(&KeyOperations::Verify));
    let public = !matches!(
        jwk.algorithm,
        AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_)
    );
    if !(signs && checks && public) {
        return None;
    }
    let algorithm = match common.key_algorithm {
        None => None,
        Some(algorithm) => Some(Algorithm::try_from(algorithm).ok()?),
    };
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Arc::new(Known {
        jwk,
        key,
        algorithm,
    }))
}
