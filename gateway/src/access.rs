//! Who may call a group, and what of it: keys of the group and tokens of the issuers that the gateway trusts, held to the
//! group's access rules.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ramen_group::Allowed;
use ramen_redact::KeyDigest;
use tokio::sync::watch;

use crate::door::{Caller, Denied, Verify};
use crate::endpoint::Target;
use crate::groups::{Access, Group};
use crate::oidc::Oidc;

/// The credentials that open one group. One that is not there has none, so that nobody learns that it is not there.
#[derive(Debug)]
pub struct Entry<'e> {
    /// Who may call it.
    pub access: Option<&'e Access>,
    /// Who judges tokens.
    pub oidc: Option<&'e Oidc>,
    /// Where it is served.
    pub path: &'e str,
}

impl Verify for Entry<'_> {
    fn verify<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Caller, Denied>> {
        // Once, whatever it turns out to be, and whether the group is there or not.
        let digest = KeyDigest::of(token);
        let opened = self.access.filter(|access| access.keys.holds(&digest));
        if let Some(access) = opened {
            let mut caller = Caller::of_key(digest);
            let verdict = access.admit(&caller).map(|allowed| {
                caller.allowed = allowed;
                caller
            });
            return Box::pin(ready(verdict));
        }
        let Some(oidc) = self.oidc.filter(|_| is_token(token)) else {
            return Box::pin(ready(Err(Denied::Invalid)));
        };
        Box::pin(async move {
            let bearer = oidc.identify(token, digest, self.path).await?;
            let mut caller = Caller::of_bearer(digest, bearer);
            caller.allowed = match self.access {
                Some(access) => access.admit(&caller)?,
                None => return Err(Denied::Forbidden),
            };
            Ok(caller)
        })
    }
}

/// Three parts with dots between: anything else is no token that can be verified, and costs nothing.
pub(crate) fn is_token(token: &[u8]) -> bool {
    token.split(|byte| *byte == b'.').count() == 3
}

impl Access {
    /// What a caller whose credential was verified may use now. A credential that is over is none.
    pub(crate) fn admit(&self, caller: &Caller) -> Result<Allowed, Denied> {
        let allowed = match &caller.bearer {
            Some(bearer) if !bearer.is_valid() => return Err(Denied::Invalid),
            Some(bearer) => {
                let rules = self.rules.as_ref();
                rules.and_then(|rules| rules.of_identity(&bearer.identity))
            }
            None if !self.keys.holds(&caller.digest) => return Err(Denied::Invalid),
            None => match &self.rules {
                None => Some(Allowed::EVERYTHING),
                Some(rules) => rules.of_key(self.keys.name_of(&caller.digest)),
            },
        };
        allowed.ok_or(Denied::Forbidden)
    }
}

/// A caller's welcome at a group, as long as it lasts.
pub(crate) struct Welcome {
    group: Arc<Group>,
    caller: Caller,
    target: Option<Target>,
    changes: watch::Receiver<Arc<Access>>,
}

impl Welcome {
    /// A caller who was let in, for something that they were let to.
    pub(crate) fn new(group: &Arc<Group>, caller: &Caller, target: Option<Target>) -> Self {
        Self {
            group: Arc::clone(group),
            caller: caller.clone(),
            target,
            changes: group.watch_access(),
        }
    }

    /// Whether the caller would still be let in.
    pub(crate) fn holds(&self) -> bool {
        let allowed = self.group.access().admit(&self.caller);
        let target = self.target.as_ref();
        allowed.is_ok_and(|allowed| target.is_none_or(|target| target.is_in(&allowed)))
    }

    /// Comes back when the caller would not be let in any more: a key that is taken back, rules that changed, a token
    /// that ran out.
    pub(crate) async fn over(&mut self) {
        loop {
            self.changes.borrow_and_update();
            if !self.holds() {
                return;
            }
            let bearer = self.caller.bearer.as_ref();
            let left = bearer.map_or(Duration::MAX, |bearer| bearer.left());
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(left.min(LONGEST)) => {}
            }
        }
    }
}

/// Clocks that are set are noticed after so long.
const LONGEST: Duration = Duration::from_mins(1);
