//! The operations of a Ramen platform, over whatever keeps the groups: `ramen up`, or a cluster.

mod input;
mod result;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use ramen_group::CidrSet;
use serde_json::{Value, json};

use self::input::{deploy, group_of, group_only, limit_of, optional_group};
use super::check::{Context, DefaultPolicy, Gate};
use super::config::{Config, ConfigError, DEFAULT_MAX_RESULT, Operations, new, plain_context};
use super::descriptor::{Access, Descriptor, Flags, Invoke, invoke};
use super::error::OpError;
use super::keyring::Keyring;
use crate::groups::{GroupName, Groups};
use crate::pool::Carried;
use crate::recent::Recent;

/// Who asks for a change, for the record.
#[derive(Debug, Clone)]
pub struct Who {
    /// The caller, as logs name it.
    pub caller: Arc<str>,
    /// The session that an agent says it acts in.
    pub session: Option<String>,
}

/// A change of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Serve this branch, tag or commit.
    Deploy {
        /// Which.
        reference: String,
    },
    /// Serve what served before.
    Rollback,
    /// Stop looking at the source; what serves goes on.
    Suspend,
    /// Look at the source again.
    Resume,
    /// Make a new key; the old one opens nothing any more.
    RotateKeys,
}

/// Whatever keeps the groups. Each answer is a JSON object.
pub trait Platform: Send + Sync {
    /// All groups, in brief.
    fn groups(&self) -> BoxFuture<'_, Result<Vec<Value>, OpError>>;
    /// One group.
    fn group<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Value, OpError>>;
    /// The errors list of the revision that was tried last.
    fn errors<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>>;
    /// What happened lately.
    fn events<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>>;
    /// Changes a group; answers what is known of it then.
    fn change<'a>(
        &'a self,
        name: &'a GroupName,
        change: Change,
        who: Who,
    ) -> BoxFuture<'a, Result<Value, OpError>>;
}

/// What the operations work on.
#[derive(Clone)]
struct Parts {
    platform: Arc<dyn Platform>,
    groups: Groups,
    recent: Arc<Recent>,
}

/// The endpoint with all operations, for whoever has a key of the ring and calls from the ranges.
pub fn mount(
    platform: Arc<dyn Platform>,
    groups: Groups,
    recent: Arc<Recent>,
    keyring: Arc<Keyring>,
    ranges: CidrSet,
    instructions: &str,
) -> Result<Operations, ConfigError> {
    let config = Config {
        gate: Gate {
            verify: Some(keyring.clone()),
            admit: Some(keyring),
            max_response: DEFAULT_MAX_RESULT,
        },
        context: Some(plain_context()),
        authorize: Some(Arc::new(DefaultPolicy)),
        guard: None,
        guarded: false,
        name: "ramen".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: instructions.to_owned(),
        max_result: 0,
        ranges,
    };
    new(config, descriptors(platform, groups, recent))
}

/// The descriptors of all operations.
pub fn descriptors(
    platform: Arc<dyn Platform>,
    groups: Groups,
    recent: Arc<Recent>,
) -> Vec<Descriptor> {
    let parts = Parts {
        platform,
        groups,
        recent,
    };
    let mut all = parts.that_read();
    all.extend(parts.that_change());
    all
}

/// What changes something, and doing it twice is doing it once.
const CHANGES: Flags = Flags {
    read_only: false,
    destructive: false,
    idempotent: true,
    agent_session: false,
};
/// What takes something away.
const TAKES: Flags = Flags {
    destructive: true,
    idempotent: false,
    ..CHANGES
};

fn reading(
    id: &str,
    summary: &str,
    access: &str,
    input: Value,
    result: Value,
    run: Invoke,
) -> Descriptor {
    Descriptor {
        id: id.to_owned(),
        summary: summary.to_owned(),
        access: Access::new(access),
        input,
        result,
        flags: Flags::READS,
        invoke: Some(run),
    }
}

fn changing(
    id: &str,
    summary: &str,
    access: &str,
    input: Value,
    flags: Flags,
    run: Invoke,
) -> Descriptor {
    Descriptor {
        id: id.to_owned(),
        summary: summary.to_owned(),
        access: Access::new(access),
        input,
        result: result::asked(),
        flags,
        invoke: Some(run),
    }
}

const READ: &str = "groups:read";
const WRITE: &str = "groups:write";

impl Parts {
    fn that_read(&self) -> Vec<Descriptor> {
        let groups = self.run(|parts, _, _| async move {
            Ok(json!({ "groups": parts.platform.groups().await? }))
        });
        let group = self.run(|parts, _, input| async move {
            let name = group_of(&input)?;
            let mut group = parts.platform.group(&name).await?;
            let served = parts.groups.get(&name.namespace, &name.name);
            let upstreams = served.map(|served| served.upstreams.status());
            if let Some(upstreams) = upstreams.filter(|upstreams| !upstreams.is_empty()) {
                group["upstreams"] = upstreams.into();
            }
            Ok(group)
        });
        let errors = self.run(|parts, _, input| async move {
            Ok(json!({ "errors": parts.platform.errors(&group_of(&input)?).await? }))
        });
        let events = self.run(|parts, _, input| async move {
            Ok(json!({ "events": parts.platform.events(&group_of(&input)?).await? }))
        });
        let listed = self.run(|parts, _, input| async move {
            Ok(json!({ "tools": tools(&parts.groups, &group_of(&input)?).await? }))
        });
        let calls = self.run(|parts, _, input| async move {
            let group = input.get("group").map(|_| group_of(&input)).transpose()?;
            Ok(json!({ "calls": parts.recent.newest(group.as_ref(), limit_of(&input)) }))
        });
        vec![
            reading(
                "groups.list",
                "Lists all groups with their state in brief.",
                READ,
                input::nothing(),
                result::groups(),
                groups,
            ),
            reading(
                "groups.get",
                "Shows one group: revisions, state, packages, upstreams.",
                READ,
                group_only(),
                result::group(),
                group,
            ),
            reading(
                "groups.errors",
                "Lists what is wrong with the revision of a group that was tried last.",
                READ,
                group_only(),
                result::errors(),
                errors,
            ),
            reading(
                "groups.events",
                "Lists what happened to a group lately, newest first.",
                READ,
                group_only(),
                result::events(),
                events,
            ),
            reading(
                "tools.list",
                "Lists the tools that a group serves now.",
                READ,
                group_only(),
                result::tools(),
                listed,
            ),
            reading(
                "calls.recent",
                "Lists calls of late at this replica of the gateway, newest first: who, what, how it ended. Arguments and results are not kept.",
                "calls:read",
                optional_group(),
                result::calls(),
                calls,
            ),
        ]
    }

    fn that_change(&self) -> Vec<Descriptor> {
        let deploys = self.run(|parts, context, input| async move {
            let reference = input["ref"].as_str().unwrap_or_default().to_owned();
            parts
                .change(&context, &input, Change::Deploy { reference })
                .await
        });
        let one = |change: Change| {
            self.run(move |parts, context, input| {
                let change = change.clone();
                async move { parts.change(&context, &input, change).await }
            })
        };
        vec![
            changing(
                "groups.deploy",
                "Serves a branch, tag or commit of the group's repository. A revision that does not load never replaces the one that serves.",
                WRITE,
                deploy(),
                CHANGES,
                deploys,
            ),
            changing(
                "groups.rollback",
                "Serves the revision that served before.",
                WRITE,
                group_only(),
                TAKES,
                one(Change::Rollback),
            ),
            changing(
                "groups.suspend",
                "Stops looking at the source of a group; what serves goes on.",
                WRITE,
                group_only(),
                CHANGES,
                one(Change::Suspend),
            ),
            changing(
                "groups.resume",
                "Looks at the source of a group again.",
                WRITE,
                group_only(),
                CHANGES,
                one(Change::Resume),
            ),
            changing(
                "keys.rotate",
                "Makes a new key for the callers of a group; the old one opens nothing any more. The key itself is not shown.",
                "keys:write",
                group_only(),
                TAKES,
                one(Change::RotateKeys),
            ),
        ]
    }

    fn run<F>(&self, run: impl Fn(Self, Context, Value) -> F + Send + Sync + 'static) -> Invoke
    where
        F: Future<Output = Result<Value, OpError>> + Send + 'static,
    {
        let parts = self.clone();
        invoke(move |context, input| run(parts.clone(), context, input))
    }

    async fn change(
        &self,
        context: &Context,
        input: &Value,
        change: Change,
    ) -> Result<Value, OpError> {
        let group = group_of(input)?;
        let who = Who {
            caller: context
                .actor
                .as_ref()
                .map_or_else(|| "nobody".into(), |actor| actor.id.clone()),
            session: context.agent_session.clone(),
        };
        tracing::info!(%group, caller = &*who.caller, session = who.session.as_deref(), change = change.name(), "a change was asked for");
        self.platform.change(&group, change, who).await
    }
}

impl Change {
    /// Its name, for the record.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Deploy { .. } => "deploy",
            Self::Rollback => "rollback",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::RotateKeys => "rotate keys",
        }
    }
}

/// How long a worker may take to list its tools.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Pages of a list.
const MAX_PAGES: usize = 100;

/// The tools of a group, as its workers list them.
async fn tools(groups: &Groups, name: &GroupName) -> Result<Vec<Value>, OpError> {
    let group = groups
        .get(&name.namespace, &name.name)
        .ok_or_else(|| OpError::NotFound("no such group is served".into()))?;
    let keys = group.access().worker.clone();
    let keys = keys.ok_or_else(|| OpError::Internal("no usable key for the workers".into()))?;
    let carried = Carried {
        caller: tonic::metadata::AsciiMetadataValue::from_static("gateway"),
        copies: Vec::new(),
        zone: None,
    };
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    for _ in 0..MAX_PAGES {
        let params = cursor
            .take()
            .map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params });
        let body = Bytes::from(body.to_string());
        let reply = group.pool.call(&keys, &carried, body, LIST_LIMIT).await;
        let reply =
            reply.map_err(|status| OpError::Unavailable(status.message().to_owned().into()))?;
        let mut reply: Value = serde_json::from_slice(&reply).map_err(|error| {
            OpError::Internal(format!("a worker's list is no JSON: {error}").into())
        })?;
        let Value::Array(page) = reply["result"]["tools"].take() else {
            return Err(OpError::Internal("a worker lists no tools".into()));
        };
        tools.extend(page);
        match reply["result"]["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(tools),
        }
    }
    Err(OpError::Internal("a worker's list does not end".into()))
}
