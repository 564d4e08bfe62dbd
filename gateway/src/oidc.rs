//! Callers who are signed in elsewhere: bearer tokens of `OpenID` Connect providers (JWTs), and what MCP clients need to
//! know to get one (RFC 9728).
//!
//! A token counts when its issuer is one of those configured, letter by letter; a key of that issuer signed it with an
//! algorithm of the list; it is for this gateway or this group (RFC 8707); and it is the time for it. What a caller may
//! use then is up to the access rules of the group: a token by itself opens nothing.

mod challenge;
mod crypto;
mod keys;
mod seen;
mod settings;
mod token;

use std::sync::Arc;

use ramen_redact::KeyDigest;

pub(crate) use challenge::WELL_KNOWN;
pub use settings::{Issuer, Settings, SettingsError};
pub use token::Bearer;

use self::keys::Keys;
use self::seen::Seen;
use crate::door::Denied;

/// Judges tokens. Shared by all groups.
pub struct Oidc {
    settings: Settings,
    issuers: Vec<(Issuer, Arc<Keys>)>,
    seen: Seen,
}

impl std::fmt::Debug for Oidc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oidc")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Oidc {
    /// Trusts these issuers. Their keys are fetched when the first token comes.
    pub fn new(settings: Settings) -> Self {
        crypto::install();
        let issuers = settings.issuers.iter().map(|issuer| {
            let keys = Arc::new(Keys::new(issuer));
            (issuer.clone(), keys)
        });
        Self {
            issuers: issuers.collect(),
            seen: Seen::default(),
            settings,
        }
    }

    /// Fetches the keys of all issuers, so that the first caller need not wait for them.
    pub async fn warm(&self) {
        let all = self.issuers.iter().map(|(_, keys)| keys.warm());
        futures::future::join_all(all).await;
    }

    /// Who bears this token, which has to be for what is served at `path`.
    pub async fn identify(&self, token: &[u8], path: &str) -> Result<Arc<Bearer>, Denied> {
        let digest = KeyDigest::of(token);
        let bearer = if let Some(bearer) = self.seen.get(&digest) {
            bearer
        } else {
            let bearer = Arc::new(self.verify(token).await?);
            self.seen.put(digest, &bearer);
            bearer
        };
        // One token may be for some groups and not for others.
        if self.is_for(&bearer, path) {
            Ok(bearer)
        } else {
            Err(Denied::Invalid)
        }
    }

    async fn verify(&self, token: &[u8]) -> Result<Bearer, Denied> {
        let shown = token::Shown::read(token).ok_or(Denied::Invalid)?;
        let mut issuers = self.issuers.iter();
        let (issuer, keys) = issuers
            .find(|(issuer, _)| issuer.issuer == shown.issuer)
            .ok_or(Denied::Invalid)?;
        if !issuer.algorithms.contains(&shown.algorithm) {
            return Err(Denied::Invalid);
        }
        let candidates = keys.find(shown.kid.as_deref(), shown.algorithm).await?;
        token::verify(token, &shown, issuer, &candidates, self.settings.skew).ok_or(Denied::Invalid)
    }

    fn is_for(&self, bearer: &Bearer, path: &str) -> bool {
        let base = &self.settings.public_url;
        let mut issuers = self.issuers.iter().map(|(issuer, _)| issuer);
        let issuer = issuers.find(|issuer| issuer.issuer == bearer.identity.issuer);
        bearer.audiences.iter().any(|audience| {
            let named = issuer.is_some_and(|issuer| issuer.audiences.contains(audience));
            let rest = audience.strip_prefix(base.as_str());
            named || rest.is_some_and(|rest| rest.is_empty() || rest == "/" || rest == path)
        })
    }
}
