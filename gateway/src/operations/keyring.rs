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
pub struct Keyring(RwLock<Arc<Vec<Grant>>>);

/// Keys of one operator, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who that is, in logs and in what was changed; empty: the key's fingerprint alone.
    pub name: String,
    /// The keys; several are valid at once.
    pub keys: KeySet,
    /// An access (`groups:read`), all verbs of a resource (`groups:*`), a verb of all resources
    /// (`*:read`), or everything (`*:*`).
    pub access: Vec<String>,
}

impl Keyring {
    /// From now on these keys are valid.
    pub fn set(&self, grants: Vec<Grant>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(grants);
    }

    fn now(&self) -> Arc<Vec<Grant>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whose key it is. All keys are looked at, so that the time says nothing.
    fn owner(&self, digest: &KeyDigest) -> Option<String> {
        let mut owner = None;
        for grant in self.now().iter() {
            if grant.keys.holds(digest) && owner.is_none() {
                owner = Some(grant.name.clone());
            }
        }
        owner
    }
}

impl Verify for Keyring {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let digest = KeyDigest::of(token);
        let verdict = self.owner(&digest).map(|name| {
            let mut caller = Caller::of_key(digest);
            if !name.is_empty() {
                caller.id = format!("{name}/{}", caller.id).into();
            }
            caller
        });
        Box::pin(std::future::ready(verdict.ok_or(Denied::Invalid)))
    }

    fn rechecker(&self) -> Option<&dyn Recheck> {
        Some(self)
    }
}

impl Recheck for Keyring {
    fn recheck<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<(), Denied>> {
        let verdict = self.owner(&caller.digest).map(|_| ());
        Box::pin(std::future::ready(verdict.ok_or(Denied::Invalid)))
    }
}

impl Admit for Keyring {
    fn admit(&self, caller: &Caller, operation: &Descriptor) -> Result<(), OpError> {
        let wanted = operation.access.as_str();
        let now = self.now();
        let mut granted = now
            .iter()
            .filter(|grant| grant.keys.holds(&caller.digest))
            .flat_map(|grant| &grant.access);
        if granted.any(|access| covers(access, wanted)) {
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

    #[tokio::test]
    async fn a_caller_is_named_by_the_owner_and_the_fingerprint_of_the_key() {
        let keyring = Keyring::default();
        let grant = |name: &str, key: &str| Grant {
            name: name.to_owned(),
            keys: KeySet::from_lines(key),
            access: Vec::new(),
        };
        keyring.set(vec![grant("alice", "rmk_a"), grant("", "rmk_b")]);
        let id = async |key: &str| keyring.verify(key.as_bytes()).await.map(|caller| caller.id);
        let fingerprint = |key: &str| format!("key:{}", KeyDigest::of(key).fingerprint());
        assert_eq!(
            &*id("rmk_a").await.unwrap(),
            format!("alice/{}", fingerprint("rmk_a"))
        );
        assert_eq!(&*id("rmk_b").await.unwrap(), fingerprint("rmk_b"));
        assert_eq!(id("rmk_c").await.unwrap_err(), Denied::Invalid);
        let caller = keyring.verify(b"rmk_a").await.unwrap();
        keyring.set(Vec::new());
        assert_eq!(keyring.recheck(&caller).await, Err(Denied::Invalid));
    }
}
