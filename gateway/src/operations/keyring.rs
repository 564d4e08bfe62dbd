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
    /// Of tokens, and of keys that have none of their own.
    pub rules: Vec<Rule>,
}

/// Keys of one operator, and what they may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who that is, in logs and in what was changed; empty: the key's fingerprint alone.
    pub name: String,
    /// The keys; several are valid at once.
    pub keys: KeySet,
    /// What is allowed with them; `None`: what the rules say that name them.
    pub rule: Option<Rule>,
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
        let mut here = known.about(caller);
        here.retain(|rule| rule.reaches(&group.namespace));
        if here.is_empty() {
            return Err(OpError::no_group(group));
        }
        if here.iter().any(|rule| rule.allows(operation, access)) {
            return Ok(());
        }
        let why = format!("you are not granted {operation} in {}", group.namespace);
        Err(OpError::Forbidden(why.into()))
    }
}

impl Known {
    /// Whose key it is. All keys are looked at, so that the time says nothing.
    fn owners(&self, digest: &KeyDigest) -> Vec<&Grant> {
        let grants = self.grants.iter();
        grants.filter(|grant| grant.keys.holds(digest)).collect()
    }

    /// All rules about a caller: about the token, or about the key.
    fn about(&self, caller: &Caller) -> Vec<&Rule> {
        if let Some(bearer) = &caller.bearer {
            let rules = self.rules.iter();
            return rules
                .filter(|rule| rule.is_about(&bearer.identity))
                .collect();
        }
        let owners = self.owners(&caller.digest);
        let own = owners.iter().filter_map(|owner| owner.rule.as_ref());
        let named = self.rules.iter().filter(|rule| {
            let mut limited = owners.iter().filter(|owner| owner.rule.is_none());
            limited.any(|owner| rule.is_about_keys(&owner.name))
        });
        own.chain(named).collect()
    }

    /// Whether a caller who was verified may come in now.
    fn welcome(&self, caller: &Caller) -> Result<(), Denied> {
        let valid = match &caller.bearer {
            None => !self.owners(&caller.digest).is_empty(),
            Some(bearer) => bearer.is_valid(),
        };
        if !valid {
            return Err(Denied::Invalid);
        }
        if self.about(caller).is_empty() {
            return Err(caller.not_allowed());
        }
        Ok(())
    }
}

impl Verify for Keyring {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        let digest = KeyDigest::of(token);
        let known = self.now();
        if let Some(owner) = known.owners(&digest).first() {
            let mut caller = Caller::of_key(digest);
            if !owner.name.is_empty() {
                caller.id = format!("{}/{}", owner.name, caller.id).into();
            }
            let welcome = known.welcome(&caller);
            return Box::pin(std::future::ready(welcome.map(|()| caller)));
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
        let (id, access) = (&operation.id, &operation.access);
        let known = self.now();
        let about = known.about(caller);
        if about.iter().any(|rule| rule.allows(id, access)) {
            return Ok(());
        }
        let why = format!("you are not granted {id}");
        Err(OpError::Forbidden(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Level;

    #[tokio::test]
    async fn a_caller_is_named_by_the_owner_and_the_fingerprint_of_the_key() {
        let keyring = Keyring::default();
        let grant = |name: &str, key: &str| Grant {
            name: name.to_owned(),
            keys: KeySet::from_lines(key),
            rule: Some(Rule::everywhere(Level::Read)),
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

    #[tokio::test]
    async fn a_key_without_a_level_is_held_to_the_rules_that_name_it() {
        let keyring = Keyring::default();
        let known = |rules: &str| Known {
            grants: vec![Grant {
                name: "lena".to_owned(),
                keys: KeySet::from_lines("rmk_l"),
                rule: None,
            }],
            rules: Rule::parse(rules).unwrap(),
        };
        let come = async |rules: &str| {
            keyring.replace(known(rules));
            keyring.verify(b"rmk_l").await
        };
        for nobody in [
            "rules: []",
            "rules: [{keys: [walt], level: write}]",
            "rules: [{subjects: ['*'], level: write}]",
        ] {
            assert_eq!(come(nobody).await.unwrap_err(), Denied::Forbidden);
        }
        let group = |namespace: &str| GroupName {
            namespace: namespace.to_owned(),
            name: "calc".to_owned(),
        };
        for whom in ["lena", "'*'"] {
            let rules = format!("rules: [{{keys: [{whom}], level: read, namespaces: [team-a]}}]");
            let lena = come(&rules).await.unwrap();
            let reach = |access: &str, namespace: &str| {
                let (access, group) = (Access::new(access), group(namespace));
                let reached = keyring.reach(&lena, "groups.any", &access, &group);
                reached.map_err(|error| error.code())
            };
            assert_eq!(reach("groups:read", "team-a"), Ok(()));
            assert_eq!(reach("groups:write", "team-a"), Err("forbidden"));
            assert_eq!(reach("groups:read", "team-b"), Err("not_found"));
            assert_eq!(reach("groups:write", "team-b"), Err("not_found"));
        }
    }
}
