//! Operators of the platform: which key, and whose token, may do what. Replaced whole when the files
//! change.

use std::sync::{Arc, PoisonError, RwLock};

use futures::future::BoxFuture;
use ramen_redact::{KeyDigest, KeySet};

use super::MCP_PATH;
use super::check::Admit;
use super::descriptor::{Access, Descriptor};
use super::error::OpError;
use super::rules::Rule;
use crate::access::is_token;
use crate::door::{Caller, Denied, Recheck, Verify};
use crate::groups::GroupName;
use crate::oidc::Oidc;

/// Who may do what. Without keys and rules nobody gets in.
#[derive(Debug, Default)]
pub struct Keyring {
    known: RwLock<Arc<Known>>,
    /// Who judges tokens.
    oidc: Option<Arc<Oidc>>,
}

/// What the files say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of keys.
    pub grants: Vec<Grant>,
    /// Of tokens.
    pub rules: Vec<Rule>,
}

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
    /// One for keys, and for the tokens of these issuers.
    pub fn trusting(oidc: Option<Arc<Oidc>>) -> Self {
        Self {
            known: RwLock::default(),
            oidc,
        }
    }

    /// From now on these keys are valid, and no token is.
    pub fn set(&self, grants: Vec<Grant>) {
        self.replace(Known {
            grants,
            rules: Vec::new(),
        });
    }

    /// From now on this counts.
    pub fn replace(&self, known: Known) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    fn now(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the caller may do in the groups of a namespace.
    ///
    /// A namespace that no rule about the caller reaches answers as a group that is not there.
    pub(super) fn reach(
        &self,
        caller: &Caller,
        operation: &str,
        access: &Access,
        group: &GroupName,
    ) -> Result<(), OpError> {
        let known = self.now();
        let Some(mut rules) = known.about(caller) else {
            return Ok(());
        };
        let mut seen = false;
        let allowed = rules.any(|rule| {
            let reaches = rule.reaches(&group.namespace);
            seen |= reaches;
            reaches && rule.allows(operation, access)
        });
        match (allowed, seen) {
            (true, _) => Ok(()),
            (false, true) => Err(OpError::Forbidden(
                format!(
                    "no rule about you allows {operation} in {}",
                    group.namespace
                )
                .into(),
            )),
            (false, false) => Err(OpError::no_group(group)),
        }
    }
}

impl Known {
    /// Whose key it is. All keys are looked at, so that the time says nothing.
    fn owner(&self, digest: &KeyDigest) -> Option<String> {
        let mut owner = None;
        for grant in &self.grants {
            if grant.keys.holds(digest) && owner.is_none() {
                owner = Some(grant.name.clone());
            }
        }
        owner
    }

    /// The rules about a caller with a token; `None` for one with a key.
    fn about<'k>(&'k self, caller: &'k Caller) -> Option<impl Iterator<Item = &'k Rule>> {
        let identity = &caller.bearer.as_ref()?.identity;
        Some(self.rules.iter().filter(|rule| rule.is_about(identity)))
    }

    /// Whether a caller who was verified may come in now.
    fn welcome(&self, caller: &Caller) -> Result<(), Denied> {
        match &caller.bearer {
            None => self
                .owner(&caller.digest)
                .map(|_| ())
                .ok_or(Denied::Invalid),
            Some(bearer) if !bearer.is_valid() => Err(Denied::Invalid),
            Some(_) => {
                let mut rules = self.about(caller).into_iter().flatten();
                rules.next().map(|_| ()).ok_or(Denied::Forbidden)
            }
        }
    }
}

impl Verify for Keyring {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let digest = KeyDigest::of(token);
        if let Some(name) = self.now().owner(&digest) {
            let mut caller = Caller::of_key(digest);
            if !name.is_empty() {
                caller.id = format!("{name}/{}", caller.id).into();
            }
            return Box::pin(std::future::ready(Ok(caller)));
        }
        let Some(oidc) = self.oidc.as_deref().filter(|_| is_token(token)) else {
            return Box::pin(std::future::ready(Err(Denied::Invalid)));
        };
        Box::pin(async move {
            let bearer = oidc.identify(token, digest, MCP_PATH).await?;
            let caller = Caller::of_bearer(digest, bearer);
            self.now().welcome(&caller)?;
            Ok(caller)
        })
    }

    fn rechecker(&self) -> Option<&dyn Recheck> {
        Some(self)
    }
}

impl Recheck for Keyring {
    fn recheck<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<(), Denied>> {
        Box::pin(std::future::ready(self.now().welcome(caller)))
    }
}

impl Admit for Keyring {
    fn admit(&self, caller: &Caller, operation: &Descriptor) -> Result<(), OpError> {
        let known = self.now();
        if let Some(mut rules) = known.about(caller) {
            let (id, access) = (&operation.id, &operation.access);
            if rules.any(|rule| rule.allows(id, access)) {
                return Ok(());
            }
            let why = format!("no rule about you allows {id}");
            return Err(OpError::Forbidden(why.into()));
        }
        let wanted = operation.access.as_str();
        let own = known.grants.iter();
        let mut granted = own
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

/// Whether a grant covers an access.
pub(super) fn covers(grant: &str, wanted: &str) -> bool {
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
