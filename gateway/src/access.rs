//! Who may call a group, from where, and what of it: keys of the group and tokens of the issuers that the gateway trusts,
//! held to the group's access rules.

use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ramen_group::Allowed;
use ramen_redact::KeyDigest;
use tokio::sync::watch;

use crate::answer::Refusal;
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
                None => return Err(caller.not_allowed()),
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
        allowed.ok_or_else(|| caller.not_allowed())
    }

    /// What a caller who was let in may use now, from where it is and with what it asked for.
    pub(crate) fn judge(
        &self,
        caller: &Caller,
        address: IpAddr,
        target: Option<&Target>,
    ) -> Result<Allowed, Refusal> {
        let allowed = self.admit(caller)?;
        if target.is_some_and(|target| !target.is_in(&allowed)) {
            return Err(caller.not_allowed().into());
        }
        if !self.ranges.contains(address) {
            return Err(Refusal::Address);
        }
        Ok(allowed)
    }
}

/// A caller's welcome at a group, as long as it lasts.
pub(crate) struct Welcome {
    group: Arc<Group>,
    caller: Caller,
    address: IpAddr,
    target: Option<Target>,
    changes: watch::Receiver<Arc<Access>>,
}

impl Welcome {
    /// A caller who was let in, for something that they were let to.
    pub(crate) fn new(
        group: &Arc<Group>,
        caller: &Caller,
        address: IpAddr,
        target: Option<Target>,
    ) -> Self {
        Self {
            group: Arc::clone(group),
            caller: caller.clone(),
            address,
            target,
            changes: group.watch_access(),
        }
    }

    /// Judges again, as of now.
    pub(crate) fn judge(&self) -> Result<Allowed, Refusal> {
        let access = self.group.access();
        access.judge(&self.caller, self.address, self.target.as_ref())
    }

    /// Comes back when the caller would not be let in any more: a key that is taken back, rules or ranges that changed, a
    /// token that ran out.
    pub(crate) async fn over(&mut self) -> Refusal {
        loop {
            self.changes.borrow_and_update();
            if let Err(refusal) = self.judge() {
                return refusal;
            }
            let bearer = self.caller.bearer.as_ref();
            let left = bearer.map_or(Duration::MAX, |bearer| bearer.left());
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() {
                    return Refusal::Credential;
                },
                () = tokio::time::sleep(left.min(LONGEST)) => {}
            }
        }
    }
}

/// Clocks that are set are noticed after so long.
const LONGEST: Duration = Duration::from_mins(1);
