//! The operations of a Ramen platform, over whatever keeps the groups: `ramen up`, or a cluster.

mod asked;
mod input;
pub(super) mod result;
mod tools;

use std::sync::Arc;

use futures::future::BoxFuture;
use ramen_group::CidrSet;
use serde_json::{Value, json};

use self::asked::{Asked, Parts};
use self::input::{deploy, group_of, group_only, limit_of, optional_group};
use self::tools::tools;
use super::MCP_PATH;
use super::check::{DefaultPolicy, Gate};
use super::config::{Config, ConfigError, DEFAULT_MAX_RESULT, Operations, new, plain_context};
use super::descriptor::{Access, Descriptor, Flags};
use super::error::OpError;
use super::fixed::Fixed;
use super::keyring::Keyring;
use crate::groups::{GroupName, Groups};
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

/// The endpoint with all operations, for those whom the ring knows and who call from the ranges.
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
            admit: Some(keyring.clone()),
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
    groups.reserve(MCP_PATH);
    new(config, descriptors(platform, groups, recent, keyring))
}

/// The descriptors of all operations. The ring says in which namespaces a caller may use each.
pub fn descriptors(
    platform: Arc<dyn Platform>,
    groups: Groups,
    recent: Arc<Recent>,
    keyring: Arc<Keyring>,
) -> Vec<Descriptor> {
    let parts = Parts {
        platform,
        groups,
        recent,
        keyring,
    };
    let mut all = parts.that_read();
    all.extend(parts.that_change());
    all
}

/// The descriptors of all operations, for whoever only reads them: what they work on is empty.
pub(super) fn described() -> Vec<Descriptor> {
    let groups = Groups::default();
    let keeper = Arc::new(Fixed::new(groups.clone()));
    descriptors(keeper, groups, Arc::default(), Arc::default())
}

/// The names of all operations.
pub(super) fn ids() -> Vec<String> {
    described().into_iter().map(|one| one.id).collect()
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

/// What an operation is called, says of itself and asks for.
struct About<'a> {
    id: &'a str,
    summary: &'a str,
    access: &'a str,
    input: Value,
}

const READ: &str = "groups:read";
const WRITE: &str = "groups:write";

impl Parts {
    fn that_read(&self) -> Vec<Descriptor> {
        vec![
            self.reading(
                About {
                    id: "groups.list",
                    summary: "Lists all groups with their state in brief.",
                    access: READ,
                    input: input::nothing(),
                },
                result::groups(),
                |asked, _| async move {
                    let groups = asked.parts.platform.groups().await?;
                    Ok(json!({ "groups": asked.only_reached(groups) }))
                },
            ),
            self.reading(
                About {
                    id: "groups.get",
                    summary: "Shows one group: its state and revisions, its upstreams, and what else is known where it is kept.",
                    access: READ,
                    input: group_only(),
                },
                result::group(),
                |asked, input| async move {
                    let (parts, name) = (&asked.parts, group_of(&input)?);
                    let mut group = parts.platform.group(&name).await?;
                    let served = parts.groups.get(&name.namespace, &name.name);
                    let upstreams = served.map(|served| served.upstreams.status());
                    if let Some(upstreams) = upstreams.filter(|upstreams| !upstreams.is_empty()) {
                        group["upstreams"] = upstreams.into();
                    }
                    Ok(group)
                },
            ),
            self.reading(
                About {
                    id: "groups.errors",
                    summary: "Lists what is wrong with the revision of a group that was tried last.",
                    access: READ,
                    input: group_only(),
                },
                result::errors(),
                |asked, input| async move {
                    Ok(json!({ "errors": asked.parts.platform.errors(&group_of(&input)?).await? }))
                },
            ),
            self.reading(
                About {
                    id: "groups.events",
                    summary: "Lists what happened to a group lately, newest first.",
                    access: READ,
                    input: group_only(),
                },
                result::events(),
                |asked, input| async move {
                    Ok(json!({ "events": asked.parts.platform.events(&group_of(&input)?).await? }))
                },
            ),
            self.reading(
                About {
                    id: "tools.list",
                    summary: "Lists the tools that a group serves now, those of its upstreams too, as clients see them.",
                    access: READ,
                    input: group_only(),
                },
                result::tools(),
                |asked, input| async move {
                    let (parts, name) = (&asked.parts, group_of(&input)?);
                    Ok(json!({ "tools": tools(&*parts.platform, &parts.groups, &name).await? }))
                },
            ),
            self.reading(
                About {
                    id: "calls.recent",
                    summary: "Lists calls of late at this replica of the gateway, newest first: who, what, how it ended. Arguments and results are not kept.",
                    access: "calls:read",
                    input: optional_group(),
                },
                result::calls(),
                |asked, input| async move {
                    let group = input.get("group").map(|_| group_of(&input)).transpose()?;
                    let shown = |of: &GroupName| {
                        group.as_ref().is_none_or(|group| group == of) && asked.reach(of).is_ok()
                    };
                    Ok(json!({ "calls": asked.parts.recent.newest(shown, limit_of(&input)) }))
                },
            ),
        ]
    }

    fn that_change(&self) -> Vec<Descriptor> {
        vec![
            self.changing(
                About {
                    id: "groups.deploy",
                    summary: "Serves a branch, tag or commit of the group's repository. A revision of which nothing loads never replaces the one that serves; of a partly broken one the rest serves.",
                    access: WRITE,
                    input: deploy(),
                },
                CHANGES,
                |input| {
                    let reference = input["ref"].as_str().unwrap_or_default().to_owned();
                    Change::Deploy { reference }
                },
            ),
            self.changing(
                About {
                    id: "groups.rollback",
                    summary: "Serves the revision that served before.",
                    access: WRITE,
                    input: group_only(),
                },
                TAKES,
                |_| Change::Rollback,
            ),
            self.changing(
                About {
                    id: "groups.suspend",
                    summary: "Stops looking at the source of a group; what serves goes on.",
                    access: WRITE,
                    input: group_only(),
                },
                CHANGES,
                |_| Change::Suspend,
            ),
            self.changing(
                About {
                    id: "groups.resume",
                    summary: "Looks at the source of a group again.",
                    access: WRITE,
                    input: group_only(),
                },
                CHANGES,
                |_| Change::Resume,
            ),
            self.changing(
                About {
                    id: "keys.rotate",
                    summary: "Makes a new key for the callers of a group; the old one opens nothing any more. The key itself is not shown.",
                    access: "keys:write",
                    input: group_only(),
                },
                TAKES,
                |_| Change::RotateKeys,
            ),
        ]
    }

    fn reading<F>(
        &self,
        about: About<'_>,
        result: Value,
        run: impl Fn(Asked, Value) -> F + Send + Sync + 'static,
    ) -> Descriptor
    where
        F: Future<Output = Result<Value, OpError>> + Send + 'static,
    {
        self.descriptor(about, result, Flags::READS, run)
    }

    fn changing(
        &self,
        about: About<'_>,
        flags: Flags,
        change: impl Fn(&Value) -> Change + Send + Sync + 'static,
    ) -> Descriptor {
        self.descriptor(about, result::asked(), flags, move |asked, input| {
            let change = change(&input);
            async move { asked.change(&group_of(&input)?, change).await }
        })
    }

    fn descriptor<F>(
        &self,
        about: About<'_>,
        result: Value,
        flags: Flags,
        run: impl Fn(Asked, Value) -> F + Send + Sync + 'static,
    ) -> Descriptor
    where
        F: Future<Output = Result<Value, OpError>> + Send + 'static,
    {
        let access = Access::new(about.access);
        Descriptor {
            id: about.id.to_owned(),
            summary: about.summary.to_owned(),
            invoke: Some(self.within_reach(about.id, &access, run)),
            access,
            input: about.input,
            result,
            flags,
        }
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
