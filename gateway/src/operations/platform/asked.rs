//! An operation that was asked for: by whom, and in which groups they may.

use std::sync::Arc;

use serde_json::Value;

use super::input::group_of;
use super::{Change, Platform, Who};
use crate::groups::{GroupName, Groups};
use crate::operations::check::Context;
use crate::operations::descriptor::{Access, Invoke, invoke};
use crate::operations::{Keyring, OpError};
use crate::recent::Recent;

/// What the operations work on.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) platform: Arc<dyn Platform>,
    pub(super) groups: Groups,
    pub(super) recent: Arc<Recent>,
    pub(super) keyring: Arc<Keyring>,
}

/// One operation under way.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) parts: Parts,
    context: Context,
    operation: Arc<str>,
    access: Access,
}

impl Parts {
    /// Runs an operation for callers who may in the group that its input names, as it begins and as its
    /// answer goes out.
    pub(super) fn within_reach<F>(
        &self,
        operation: &str,
        access: &Access,
        run: impl Fn(Asked, Value) -> F + Send + Sync + 'static,
    ) -> Invoke
    where
        F: Future<Output = Result<Value, OpError>> + Send + 'static,
    {
        let (parts, run) = (self.clone(), Arc::new(run));
        let (operation, access) = (Arc::<str>::from(operation), access.clone());
        invoke(move |context, input| {
            let run = Arc::clone(&run);
            let asked = Asked {
                parts: parts.clone(),
                context,
                operation: Arc::clone(&operation),
                access: access.clone(),
            };
            async move {
                let group = input.get("group").map(|_| group_of(&input)).transpose()?;
                let reach = || group.as_ref().map_or(Ok(()), |group| asked.reach(group));
                reach()?;
                let outcome = run(asked.clone(), input).await;
                reach()?;
                outcome
            }
        })
    }
}

impl Asked {
    /// Whether the caller may do this in a group.
    pub(super) fn reach(&self, group: &GroupName) -> Result<(), OpError> {
        let Some(actor) = &self.context.actor else {
            return Err(OpError::Internal(
                "an operation was asked for by nobody".into(),
            ));
        };
        let keyring = &self.parts.keyring;
        keyring.reach(actor, &self.operation, &self.access, group)
    }

    /// Those of a list of groups that the caller may know of.
    pub(super) fn only_reached(&self, mut groups: Vec<Value>) -> Vec<Value> {
        groups.retain(|group| group_of(group).is_ok_and(|name| self.reach(&name).is_ok()));
        groups
    }

    /// Makes a change, with the caller on record.
    pub(super) async fn change(&self, group: &GroupName, change: Change) -> Result<Value, OpError> {
        let actor = self.context.actor.as_ref();
        let who = Who {
            caller: actor.map_or_else(|| "nobody".into(), |actor| actor.id.clone()),
            session: self.context.agent_session.clone(),
        };
        tracing::info!(%group, caller = &*who.caller, session = who.session.as_deref(), change = change.name(), "a change was asked for");
        self.parts.platform.change(group, change, who).await
    }
}
