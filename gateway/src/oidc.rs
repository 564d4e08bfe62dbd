//! Callers who are signed in elsewhere: bearer tokens of `OpenID` Connect providers (JWTs), and what MCP clients need to
//! know to get one (RFC 9728).
//!
//! A token counts when its issuer is one of those configured, letter by letter; a key of that issuer signed it with an
//! algorithm of the list; it is for this gateway or this group (RFC 8707); and it is the time for it. What a caller may
//! use then is up to the access rules of the group: a token by itself opens nothing.

mod challenge;
mod crypto;
mod follow;
mod keys;
mod seen;
mod settings;
mod token;

use std::sync::{Arc, PoisonError, RwLock};

use ramen_redact::KeyDigest;

pub(crate) use challenge::WELL_KNOWN;
pub use follow::SettingsFile;
pub use settings::{Issuer, Settings, SettingsError};
pub use token::Bearer;

use self::keys::{Keys, Known};
use self::seen::Seen;
use self::token::Unproven;
use crate::door::Denied;

/// Judges tokens. Shared by all groups.
pub struct Oidc {
    trust: RwLock<Arc<Trust>>,
    seen: Seen,
}

/// Whose tokens count, and their keys.
#[derive(Debug)]
struct Trust {
    settings: Settings,
    /// Of each of the issuers.
    keys: Vec<Arc<Keys>>,
}

impl std::fmt::Debug for Oidc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oidc")
            .field("trust", &self.trust())
            .finish_non_exhaustive()
    }
}

impl Oidc {
    /// Trusts these issuers. Their keys are fetched when the first token comes.
    pub fn new(settings: Settings) -> Self {
        crypto::install();
        let keys = settings.issuers.iter().map(Keys::new).collect();
        Self {
            trust: RwLock::new(Arc::new(Trust { settings, keys })),
            seen: Seen::default(),
        }
    }

    /// Trusts these from now on. What was verified by settings that are others now counts no more: it is verified anew,
    /// and streams that were opened with it end.
    pub fn set(&self, settings: Settings) {
        let before = self.trust();
        let same = settings.public_url == before.settings.public_url
            && settings.skew == before.settings.skew;
        let keys = settings.issuers.iter().map(|issuer| {
            let known = before
                .issuers()
                .find(|(known, _)| known.has_keys_of(issuer));
            match known {
                Some((known, keys)) if same && known == issuer => Arc::clone(keys),
                Some((_, keys)) => keys.anew(),
                None => Keys::new(issuer),
            }
        });
        let keys = keys.collect();
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Trust { settings, keys });
    }

    fn trust(&self) -> Arc<Trust> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&trust)
    }

    /// Fetches the keys of all issuers that were never asked, so that the first caller need not wait for them.
    pub async fn warm(&self) {
        let trust = self.trust();
        futures::future::join_all(trust.keys.iter().map(Keys::warm)).await;
    }

    /// Who bears this token of this digest, which has to be for what is served at `path`.
    pub(crate) async fn identify(
        &self,
        token: &[u8],
        digest: KeyDigest,
        path: &str,
    ) -> Result<Arc<Bearer>, Denied> {
        let trust = self.trust();
        let bearer = if let Some(bearer) = self.seen.get(&digest) {
            bearer
        } else {
            let bearer = Arc::new(trust.verify(token).await?);
            self.seen.put(digest, token.len(), &bearer);
            bearer
        };
        // One token may be for some groups and not for others.
        if trust.is_for(&bearer, path) {
            Ok(bearer)
        } else {
            Err(Denied::Invalid)
        }
    }
}

impl Trust {
    fn issuers(&self) -> impl Iterator<Item = (&Issuer, &Arc<Keys>)> {
        self.settings.issuers.iter().zip(&self.keys)
    }

    async fn verify(&self, token: &[u8]) -> Result<Bearer, Denied> {
        let shown = token::Shown::read(token).ok_or(Denied::Invalid)?;
        let (issuer, keys) = self
            .issuers()
            .find(|(issuer, _)| issuer.issuer == shown.issuer)
            .ok_or(Denied::Invalid)?;
        if !issuer.algorithms.contains(&shown.algorithm) {
            return Err(Denied::Invalid);
        }
        let (kid, algorithm) = (shown.kid.as_deref(), shown.algorithm);
        let judge =
            |keys: &[Arc<Known>]| token::verify(token, &shown, issuer, keys, self.settings.skew);
        let candidates = keys.find(kid, algorithm).await?;
        let judged = match judge(&candidates) {
            Err(Unproven::Unsigned) => judge(&keys.find_others(&candidates, kid, algorithm).await?),
            judged => judged,
        };
        judged.map_err(|_| Denied::Invalid)
    }

    fn is_for(&self, bearer: &Bearer, path: &str) -> bool {
        let base = &self.settings.public_url;
        let mut issuers = self.settings.issuers.iter();
        let issuer = issuers.find(|issuer| issuer.issuer == bearer.identity.issuer);
        bearer.audiences.iter().any(|audience| {
            let named = issuer.is_some_and(|issuer| issuer.audiences.contains(audience));
            let rest = audience.strip_prefix(base.as_str());
            named || rest.is_some_and(|rest| rest.is_empty() || rest == "/" || rest == path)
        })
    }
}
