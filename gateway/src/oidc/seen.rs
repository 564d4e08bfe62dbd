//! Tokens that were verified before, by their digest: the second time costs no signature.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use ramen_redact::KeyDigest;

use super::token::Bearer;

/// Tokens that are remembered.
const MAX: usize = 10_000;

/// Verified tokens. Only valid ones get in, so nobody fills it from outside.
#[derive(Default)]
pub(super) struct Seen(RwLock<HashMap<KeyDigest, Arc<Bearer>>>);

impl Seen {
    /// Who bears the token of this digest, while it is valid.
    pub(super) fn get(&self, digest: &KeyDigest) -> Option<Arc<Bearer>> {
        let seen = self.0.read().unwrap_or_else(PoisonError::into_inner);
        seen.get(digest).filter(|bearer| bearer.is_valid()).cloned()
    }

    pub(super) fn put(&self, digest: KeyDigest, bearer: &Arc<Bearer>) {
        let mut seen = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX {
            seen.retain(|_, bearer| bearer.is_valid());
        }
        if seen.len() >= MAX {
            // All of them are in use somewhere: half of them pay for a signature again.
            let mut keep = false;
            seen.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        seen.insert(digest, Arc::clone(bearer));
    }
}
