//! The inputs of the operations: their schemas, and how they are read.

use serde_json::{Value, json};

use super::super::error::OpError;
use crate::groups::GroupName;

/// Calls that are listed unless the input says otherwise.
const FEW: usize = 50;

/// No input.
pub(super) fn nothing() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

fn group() -> Value {
    json!({
        "type": "string",
        "description": "The group: namespace/name, or its name in the namespace default.",
        "pattern": "^([a-z0-9-]{1,63}/)?[a-z0-9-]{1,63}$",
    })
}

/// Which group.
pub(super) fn group_only() -> Value {
    json!({
        "type": "object",
        "properties": { "group": group() },
        "required": ["group"],
        "additionalProperties": false,
    })
}

/// Which group, and what to deploy.
pub(super) fn deploy() -> Value {
    let reference = json!({
        "type": "string",
        "description": "A branch, a tag, or a commit of 40 hex digits.",
        "minLength": 1,
        "maxLength": 255,
    });
    json!({
        "type": "object",
        "properties": { "group": group(), "ref": reference },
        "required": ["group", "ref"],
        "additionalProperties": false,
    })
}

/// Maybe a group, and how many.
pub(super) fn optional_group() -> Value {
    json!({
        "type": "object",
        "properties": {
            "group": group(),
            "limit": { "type": "integer", "minimum": 1, "maximum": 1000 },
        },
        "additionalProperties": false,
    })
}

/// The group that an input names.
pub(super) fn group_of(input: &Value) -> Result<GroupName, OpError> {
    let text = input["group"]
        .as_str()
        .ok_or_else(|| OpError::Invalid("`group` is missing".into()))?;
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    Ok(GroupName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// How many an input asks for.
pub(super) fn limit_of(input: &Value) -> usize {
    let limit = input["limit"]
        .as_u64()
        .and_then(|limit| usize::try_from(limit).ok());
    limit.unwrap_or(FEW)
}
