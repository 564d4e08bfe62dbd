//! The keys of one issuer: found by its discovery document, kept, and fetched again every few minutes and when a token
//! names one that is not there, or was signed with none of them. While the issuer cannot be reached the keys at hand go
//! on, for a day.

use std::sync::{Arc, PoisonError, RwLock, Weak};
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

/// How old keys get before they are fetched again. Whether somebody calls or not: a token that was verified before, and
/// a stream that is open, ask for no key.
const MAX_AGE: Duration = Duration::from_mins(5);
/// From a fetch that failed to the next that nobody asks for.
const AGAIN: Duration = Duration::from_secs(30);
/// How long keys go on without a word of their issuer, who may have taken one back.
const OUTAGE: Duration = Duration::from_hours(24);
/// From one fetch for a key that is not there to the next, whatever tokens name, and how old keys get before a token that
/// none of them signed has them fetched again.
const BETWEEN_UNKNOWN: Duration = Duration::from_secs(10);
/// From a fetch that failed to the next that somebody waits for.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a fetch may take, and so how long a caller waits for one.
const FETCH_TIME: Duration = Duration::from_secs(5);
/// Keys of one issuer that are looked at.
const MAX_KEYS: usize = 64;

/// One key.
#[derive(Debug, Clone)]
pub(super) struct Known {
    jwk: Jwk,
    pub(super) key: DecodingKey,
    /// The one algorithm that it is for, when it says so.
    algorithm: Option<Algorithm>,
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keys {
    issuer: String,
    jwks_uri: Option<Url>,
    now: RwLock<Arc<Vec<Arc<Known>>>>,
    /// Held while keys are fetched.
    fetching: tokio::sync::Mutex<Fetches>,
}

#[derive(Debug, Default)]
struct Fetches {
    /// When keys came last.
    came: Option<Instant>,
    /// When that failed last, unless keys came since.
    failed: Option<Instant>,
    /// When keys were fetched last for one that was not there.
    for_unknown: Option<Instant>,
    /// Whether they are kept fresh already.
    kept_fresh: bool,
}

fn within(at: Option<Instant>, time: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < time)
}

/// The keys could not be fetched.
struct Failed;

/// The keys that were found after a fetch.
fn some(found: Vec<Arc<Known>>, fetched: Result<(), Failed>) -> Result<Vec<Arc<Known>>, Denied> {
    match (found.is_empty(), fetched) {
        (false, _) => Ok(found),
        // It may be a new key of an issuer that does not answer.
        (true, Err(Failed)) => Err(Denied::Unavailable),
        (true, Ok(())) => Err(Denied::Invalid),
    }
}

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
    pub(super) fn new(issuer: &Issuer) -> Arc<Self> {
        Arc::new(Self {
            issuer: issuer.issuer.clone(),
            jwks_uri: issuer.jwks_uri.clone(),
            now: RwLock::default(),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// The same keys of the same issuer, by which nothing was proven yet.
    pub(super) fn anew(&self) -> Arc<Self> {
        let current = self.current();
        let keys = current.iter().map(|known| Arc::new(Known::clone(known)));
        let fetches = Fetches {
            // As if they came now: their day begins again.
            came: (!current.is_empty()).then(Instant::now),
            ..Fetches::default()
        };
        Arc::new(Self {
            issuer: self.issuer.clone(),
            jwks_uri: self.jwks_uri.clone(),
            now: RwLock::new(Arc::new(keys.collect())),
            fetching: tokio::sync::Mutex::new(fetches),
        })
    }

    /// Fetches the keys, unless that was tried before.
    pub(super) async fn warm(self: &Arc<Self>) {
        let mut fetches = self.fetching.lock().await;
        if !fetches.kept_fresh {
            let _ = self.load(&mut fetches).await;
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
            return Ok(found);
        }
        let fetched = self.fetch(Duration::ZERO).await;
        some(self.fitting(kid, algorithm), fetched)
    }

    /// The keys that there are besides, for a token that none of those signed: the issuer may have another one by now,
    /// under the same name or for tokens that name none.
    pub(super) async fn find_others(
        self: &Arc<Self>,
        tried: &[Arc<Known>],
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Arc<Known>>, Denied> {
        let fetched = self.fetch(BETWEEN_UNKNOWN).await;
        let mut others = self.fitting(kid, algorithm);
        others.retain(|known| !tried.iter().any(|one| Arc::ptr_eq(one, known)));
        some(others, fetched)
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

    fn set(&self, keys: Vec<Arc<Known>>) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Fetches the keys, unless somebody did while this one waited, they are younger than this, or it was tried too lately.
    async fn fetch(self: &Arc<Self>, young: Duration) -> Result<(), Failed> {
        let asked = Instant::now();
        let mut fetches = self.fetching.lock().await;
        if fetches.came.is_some_and(|at| at > asked) || within(fetches.came, young) {
            return Ok(());
        }
        if within(fetches.failed, AFTER_FAILURE) {
            return Err(Failed);
        }
        // Keys that are not old are fetched again for one that is not among them, and that is bounded.
        if within(fetches.came, MAX_AGE) {
            if within(fetches.for_unknown, BETWEEN_UNKNOWN) {
                return fetches.failed.map_or(Ok(()), |_| Err(Failed));
            }
            fetches.for_unknown = Some(asked);
        }
        self.load(&mut fetches).await
    }

    /// Fetches the keys now; they are kept fresh from the first time on.
    async fn load(self: &Arc<Self>, fetches: &mut Fetches) -> Result<(), Failed> {
        let loaded = self.try_load(fetches).await;
        if !fetches.kept_fresh {
            fetches.kept_fresh = true;
            self.begin_to_keep_fresh(loaded.is_ok());
        }
        loaded
    }

    fn begin_to_keep_fresh(self: &Arc<Self>, loaded: bool) {
        tokio::spawn(keep_fresh(Arc::downgrade(self), loaded));
    }

    async fn try_load(&self, fetches: &mut Fetches) -> Result<(), Failed> {
        let got = tokio::time::timeout(FETCH_TIME, self.get()).await;
        let got = got.unwrap_or_else(|_| Err("the issuer does not answer".to_owned()));
        match got {
            Ok(keys) => {
                let before = fetches.failed.take();
                fetches.came = Some(Instant::now());
                let (issuer, count) = (&self.issuer, keys.len());
                if count == 0 {
                    tracing::warn!(issuer, "the issuer shows no key that can be used");
                } else if before.is_some() {
                    tracing::info!(issuer, keys = count, "keys can be fetched again");
                } else {
                    tracing::debug!(issuer, keys = count, "keys fetched");
                }
                self.set(keys);
                Ok(())
            }
            Err(why) => {
                let first = fetches.failed.replace(Instant::now()).is_none();
                let kept = self.current().len();
                let issuer = &self.issuer;
                if kept > 0 && !within(fetches.came, OUTAGE) {
                    self.set(Vec::new());
                    tracing::warn!(
                        issuer,
                        why,
                        "keys could not be fetched for a day: none goes on"
                    );
                } else if first {
                    tracing::warn!(
                        issuer,
                        why,
                        kept,
                        "keys cannot be fetched; those at hand go on"
                    );
                } else {
                    tracing::debug!(issuer, why, kept, "keys still cannot be fetched");
                }
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
        Ok(keys.filter_map(|key| known(key, &before)).collect())
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

/// Fetches the keys again and again, as long as somebody has them.
async fn keep_fresh(keys: Weak<Keys>, mut loaded: bool) {
    loop {
        tokio::time::sleep(if loaded { MAX_AGE } else { AGAIN }).await;
        let Some(keys) = keys.upgrade() else {
            return;
        };
        let mut fetches = keys.fetching.lock().await;
        loaded = keys.try_load(&mut fetches).await.is_ok();
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

/// A key that nobody signs with.
#[cfg(test)]
pub(super) fn any() -> Arc<Known> {
    // That of RFC 7517, A.1.
    let key = serde_json::json!({"kty": "EC", "crv": "P-256", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"});
    known(key, &[]).expect("a key")
}
