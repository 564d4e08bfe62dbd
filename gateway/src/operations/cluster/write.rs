//! Changes: each is a merge patch of an `McpGroup` that also says who asked for it, and an Event.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use ramen_crds::labels::{CHANGED_AT, CHANGED_BY, REQUESTED_AT, ROTATE_KEYS_AT};
use ramen_crds::{GitRef, McpGroup, RefSpec};
use serde_json::{Map, Value, json};

use super::trouble::{self, OrAnswer as _};
use super::{Cluster, PATIENCE, view};
use crate::groups::GroupName;
use crate::operations::OpError;
use crate::operations::platform::{Change, Who};

/// Field manager of what is changed, and reporter of the events.
const GATEWAY: &str = "ramen-gateway";
/// How often a change is made again on a group that somebody else changed in between.
const TRIES: u32 = 4;
/// Longest note of an event that an API server takes.
const MAX_NOTE: usize = 1024;

/// What to change: annotations besides the caller's, and the spec.
struct Wish {
    annotations: Vec<(&'static str, String)>,
    source: Value,
}

impl Cluster {
    /// Makes the change on the group as it is, or not at all: who changes it meanwhile is not
    /// overwritten by what was decided before.
    pub(super) async fn write(
        &self,
        name: &GroupName,
        change: &Change,
        who: &Who,
    ) -> Result<Value, OpError> {
        let groups: Api<McpGroup> = self.api(&name.namespace)?;
        let mut tries = 0;
        loop {
            let group = self.get(name).await?;
            let now = Timestamp::now().to_string();
            let patch = patch(&group, wish(&group, change, &now)?, who, &now);
            let params = PatchParams {
                field_manager: Some(GATEWAY.to_owned()),
                ..PatchParams::default()
            };
            let body = Patch::Merge(&patch);
            let patched = groups.patch(&name.name, &params, &body);
            let patched = match tokio::time::timeout(PATIENCE, patched).await {
                Err(_) => {
                    return Err(OpError::Unavailable(
                        "the API server does not answer in time; look whether the change was made"
                            .into(),
                    ));
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 && tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Ok(Err(error)) => return Err(trouble::answer(&error, "change", name)),
                Ok(Ok(patched)) => patched,
            };
            self.record(&patched, change, who).await;
            return Ok(json!({
                "group": view::name_of(&patched),
                "asked": change.name(),
                "changedBy": &*who.caller,
                "generation": patched.metadata.generation,
                "source": patched.spec.source.reference,
                "suspended": patched.spec.source.suspend,
            }));
        }
    }

    /// An Event for people. The change is made: what fails here is only logged.
    async fn record(&self, group: &McpGroup, change: &Change, who: &Who) {
        let event = event(group, change, who, &self.identity);
        let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        let name = view::name_of(group);
        let created = events.create(&params, &event);
        if let Err(error) = created.or_answer("record the change of", &name).await {
            tracing::warn!(group = name, %error, "a change has no Event");
        }
    }
}

/// What a change means for a group as it is.
fn wish(group: &McpGroup, change: &Change, now: &str) -> Result<Wish, OpError> {
    let look = vec![(REQUESTED_AT, now.to_owned())];
    let source = &group.spec.source;
    let awake = || {
        if source.suspend {
            return Err(OpError::Conflict(
                "the group is suspended, nothing new would be served: resume it first".into(),
            ));
        }
        Ok(())
    };
    let wish = match change {
        Change::Deploy { reference } => {
            awake()?;
            let reference = reference_of(source.reference.as_ref(), reference)?;
            Wish {
                annotations: look,
                source: json!({ "ref": reference }),
            }
        }
        Change::Rollback => {
            awake()?;
            let commit = before(group)?;
            Wish {
                annotations: look,
                source: json!({ "ref": only("commit", &commit) }),
            }
        }
        Change::Suspend => Wish {
            annotations: Vec::new(),
            source: json!({ "suspend": true }),
        },
        Change::Resume => Wish {
            annotations: look,
            source: json!({ "suspend": null }),
        },
        Change::RotateKeys => {
            if let Some(keys) = &group.spec.keys {
                let name = &keys.secret_ref.name;
                return Err(OpError::Conflict(
                    format!("the keys of this group come from its own Secret {name}: change that")
                        .into(),
                ));
            }
            Wish {
                annotations: vec![(ROTATE_KEYS_AT, now.to_owned())],
                source: json!({}),
            }
        }
    };
    Ok(wish)
}

/// `spec.source.ref` for a word: as it is when it follows that already.
fn reference_of(current: Option<&GitRef>, word: &str) -> Result<Value, OpError> {
    let follows = |field: &Option<String>| field.as_deref() == Some(word);
    if current.is_some_and(|current| follows(&current.branch) || follows(&current.tag)) {
        return Ok(json!({}));
    }
    let hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let field = if hex && matches!(word.len(), 40 | 64) {
        "commit"
    } else {
        "name"
    };
    let fields = only(field, word);
    let judged = serde_json::from_value::<GitRef>(fields.clone())
        .map_err(|error| error.to_string())
        .and_then(|reference| RefSpec::parse(Some(&reference)));
    match judged {
        Ok(_) => Ok(fields),
        Err(why) => Err(OpError::Invalid(format!("`ref`: {why}").into())),
    }
}

/// This field of `ref` and no other.
fn only(field: &str, value: &str) -> Value {
    let mut fields =
        json!({ "branch": null, "tag": null, "semver": null, "commit": null, "name": null });
    fields[field] = value.into();
    fields
}

/// The commit that served before.
fn before(group: &McpGroup) -> Result<String, OpError> {
    let revision = group
        .status
        .as_ref()
        .and_then(|status| status.revision.as_ref());
    let previous = revision.and_then(|revision| revision.previous.as_deref());
    let commit = previous
        .and_then(|label| label.rsplit_once(':'))
        .map(|(_, commit)| commit);
    commit.map(str::to_owned).ok_or_else(|| {
        OpError::Conflict(
            "no other revision is kept ready: `spec.history` says how many are".into(),
        )
    })
}

/// The whole patch. It only fits the object as it was read.
fn patch(group: &McpGroup, wish: Wish, who: &Who, now: &str) -> Value {
    let mut annotations = Map::new();
    annotations.insert(CHANGED_BY.to_owned(), (*who.caller).into());
    annotations.insert(CHANGED_AT.to_owned(), now.into());
    for (name, value) in wish.annotations {
        annotations.insert(name.to_owned(), value.into());
    }
    json!({
        "metadata": {
            "resourceVersion": group.metadata.resource_version,
            "annotations": annotations,
        },
        "spec": { "source": wish.source },
    })
}

fn event(group: &McpGroup, change: &Change, who: &Who, identity: &str) -> Event {
    let what = match change {
        Change::Deploy { reference } => format!("to deploy {reference}"),
        Change::Rollback => "to roll back".to_owned(),
        Change::Suspend => "to suspend the group".to_owned(),
        Change::Resume => "to resume the group".to_owned(),
        Change::RotateKeys => "for a new key".to_owned(),
    };
    let mut note = format!("{} asked {what}", who.caller);
    if let Some(session) = &who.session {
        note = format!("{note} (session {session})");
    }
    let meta = &group.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: meta.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some(reason(change).to_owned()),
        reason: Some(reason(change).to_owned()),
        note: Some(note.chars().take(MAX_NOTE).collect()),
        type_: Some("Normal".to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        reporting_controller: Some(format!("ramen.dev/{GATEWAY}")),
        reporting_instance: Some(identity.chars().take(128).collect()),
        regarding: Some(ObjectReference {
            api_version: Some(McpGroup::api_version(&()).into_owned()),
            kind: Some(McpGroup::kind(&()).into_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// The reason of the Event.
fn reason(change: &Change) -> &'static str {
    match change {
        Change::Deploy { .. } => "DeployAsked",
        Change::Rollback => "RollbackAsked",
        Change::Suspend => "SuspendAsked",
        Change::Resume => "ResumeAsked",
        Change::RotateKeys => "KeyRotationAsked",
    }
}
