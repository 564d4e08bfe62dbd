//! What the operations answer: the fields that every platform gives. Others may come on top.

use serde_json::{Value, json};

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "description": description })
}

fn maybe_text(description: &str) -> Value {
    json!({ "type": ["string", "null"], "description": description })
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// An object with one list.
fn list_of(name: &str, item: &Value) -> Value {
    json!({
        "type": "object",
        "properties": { name: { "type": "array", "items": item } },
        "required": [name],
        "additionalProperties": false,
    })
}

/// One group.
pub(super) fn group() -> Value {
    object(
        &["group", "ready"],
        &json!({
            "group": text("namespace/name"),
            "ready": { "type": "boolean", "description": "Whether it serves." },
            "message": maybe_text("What goes on or what is wrong."),
            "revision": maybe_text("The revision that serves: branch@sha1:commit."),
            "tools": number("How many tools serve."),
            "suspended": { "type": "boolean", "description": "Whether its source is not looked at." },
        }),
    )
}

/// All groups.
pub(super) fn groups() -> Value {
    list_of("groups", &group())
}

/// An errors list.
pub(super) fn errors() -> Value {
    let item = object(
        &["reason", "message"],
        &json!({
            "package": maybe_text("Such as tools/calc; absent for the group as a whole."),
            "reason": text("One word; the page of errors says what to do."),
            "message": text("In words."),
            "path": maybe_text("The file."),
            "line": { "type": ["integer", "null"], "description": "The line." },
        }),
    );
    list_of("errors", &item)
}

/// What happened.
pub(super) fn events() -> Value {
    let item = object(
        &["unixMs"],
        &json!({ "unixMs": number("When, in milliseconds since 1970.") }),
    );
    list_of("events", &item)
}

/// Tools as MCP lists them.
pub(super) fn tools() -> Value {
    let item = object(
        &["name", "inputSchema"],
        &json!({
            "name": text("The name to call it by."),
            "description": text("What it does."),
            "inputSchema": { "type": "object", "description": "JSON Schema of its arguments." },
        }),
    );
    list_of("tools", &item)
}

/// Calls of late.
pub(super) fn calls() -> Value {
    let item = object(
        &["unixMs", "group", "caller", "method", "status", "tookMs"],
        &json!({
            "unixMs": number("When it ended, in milliseconds since 1970."),
            "group": text("namespace/name"),
            "caller": text("Who called: the fingerprint of a key, or the subject of a token."),
            "method": text("The method of MCP."),
            "name": text("The tool, prompt or resource."),
            "status": number("The HTTP status."),
            "tookMs": number("How long it took, in milliseconds."),
        }),
    );
    list_of("calls", &item)
}

/// A change that was asked for: it is made when the group shows it.
pub(super) fn asked() -> Value {
    object(
        &["group", "asked"],
        &json!({
            "group": text("namespace/name"),
            "asked": text("Which change."),
        }),
    )
}
