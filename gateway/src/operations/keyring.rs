//! Keys of operators of the platform: which key may do what. Replaced whole when the files change.

use std::sync::{Arc, PoisonError, RwLock};

use futures::future::BoxFuture;
use ramen_redact::{KeyDigest, KeySet};

use super::check::Admit;
use super::descriptor::Descriptor;
use super::error::OpError;
use crate::door::{Caller, Denied, Recheck, Verify};

/// Keys with what each may do. No keys: nobody gets in.
#[derive(Debug, Default)]
pub struct Keyring(RwLock<Arc<Grants>>);

/// Keys, and what they may do.
type Grants = Vec<(KeySet, Vec<String>)>;

impl Keyring {
    /// From now on these keys are valid. A grant is an access (`groups:read`), all verbs of a resource
    /// (`groups:*`), a verb of all resources (`*:read`), or everything (`*:*`).
    pub fn set(&self, keys: Grants) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn now(&self) -> Arc<Grants> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn knows(&self, digest: &KeyDigest) -> bool {
        self.now().iter().any(|(keys, _)| keys.holds(digest))
    }
}

impl Verify for Keyring {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let caller = Caller::of_key(KeyDigest::of(token));
        let verdict = if self.knows(&caller.digest) {
            Ok(caller)
        } else {
            Err(Denied::Invalid)
        };
        Box::pin(std::future::ready(verdict))
    }

    fn rechecker(&self) -> Option<&dyn Recheck> {
        Some(self)
    }
}

impl Recheck for Keyring {
    fn recheck<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<(), Denied>> {
        let verdict = if self.knows(&caller.digest) {
            Ok(())
        } else {
            Err(Denied::Invalid)
        };
        Box::pin(std::future::ready(verdict))
    }
}

impl Admit for Keyring {
    fn admit(&self, caller: &Caller, operation: &Descriptor) -> Result<(), OpError> {
        let wanted = operation.access.as_str();
        let now = self.now();
        let mut grants = now
            .iter()
            .filter(|(keys, _)| keys.holds(&caller.digest))
            .flat_map(|(_, grants)| grants);
        if grants.any(|grant| covers(grant, wanted)) {
            return Ok(());
        }
        Err(OpError::Forbidden(
            format!("the key is not granted {wanted}").into(),
        ))
    }
}

fn covers(grant: &str, wanted: &str) -> bool {
    let (Some((resource, verb)), Some((wanted_resource, wanted_verb))) =
        (grant.split_once(':'), wanted.split_once(':'))
    else {
        return false;
    };
    (resource == "*" || resource == wanted_resource) && (verb == "*" || verb == wanted_verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_covers_what_it_names() {
        for (grant, wanted, covered) in [
            ("groups:read", "groups:read", true),
            ("groups:*", "groups:write", true),
            ("*:read", "calls:read", true),
            ("*:*", "keys:rotate", true),
            ("groups:read", "groups:write", false),
            ("*:read", "groups:write", false),
            ("groups", "groups:read", false),
            ("", "groups:read", false),
        ] {
            assert_eq!(covers(grant, wanted), covered, "{grant} {wanted}");
        }
    }
}
