//! docs/reference/operations.md, made of the same descriptors that are served.

use std::fmt::Write as _;

use serde_json::Value;

use super::descriptor::{Descriptor, tool_name};
use super::error::OpError;
use super::{openapi, platform};

const HEAD: &str = "# Operations

<!-- Written by `cargo xtask gen` from the descriptors of the gateway. Do not edit. -->

The platform's own operations, each served twice behind the same gate: as JSON under `/api/v1/`, and as a tool of the MCP
server at `/api/v1/mcp`. Who may use them and how they are switched on is in [the gateway's page](gateway.md#operations).

```sh
curl -H \"Authorization: Bearer $KEY\" \"$URL/api/v1/groups/errors?group=team-a/calc\"
curl -H \"Authorization: Bearer $KEY\" --json '{\"group\":\"team-a/calc\",\"ref\":\"v1.2\"}' \"$URL/api/v1/groups/deploy\"
curl -H \"Authorization: Bearer $KEY\" \"$URL/api/v1/openapi.json\"
```

An operation that only reads answers GET too, with its input in the query. `GET /api/v1/openapi.json` is OpenAPI 3.1 of
what the caller may use.
";

/// The page.
pub fn reference_page() -> String {
    let all = platform::described();
    let mut page = HEAD.to_owned();
    page.push_str("\n| operation | access | what it does |\n|---|---|---|\n");
    for one in &all {
        let anchor = one.id.replace('.', "");
        let row = format!(
            "| [`{}`](#{anchor}) | `{}` | {} |",
            one.id,
            one.access.as_str(),
            one.summary
        );
        let _ = writeln!(page, "{row}");
    }
    for one in &all {
        describe(&mut page, one);
    }
    errors(&mut page);
    page
}

fn describe(page: &mut String, one: &Descriptor) {
    let flags = one.flags;
    let verbs = if flags.read_only {
        "GET or POST"
    } else {
        "POST"
    };
    let mut hints = Vec::new();
    for (set, hint) in [
        (flags.read_only, "changes nothing"),
        (flags.destructive, "takes something away"),
        (flags.idempotent && !flags.read_only, "twice is once"),
        (flags.agent_session, "needs `Ramen-Agent-Session`"),
    ] {
        if set {
            hints.push(hint);
        }
    }
    let _ = write!(
        page,
        "\n## {}\n\n{}\n\n`{verbs} {}`, tool `{}`, access `{}`; {}.\n",
        one.id,
        one.summary,
        openapi::path_of(&one.id),
        tool_name(&one.id),
        one.access.as_str(),
        hints.join(", ")
    );
    fields(page, "input", &one.input);
    fields(page, "result", &one.result);
}

/// The fields of an object, and of the objects in it.
fn fields(page: &mut String, title: &str, schema: &Value) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    if properties.is_empty() {
        return;
    }
    let _ = write!(page, "\n| {title} | type | |\n|---|---|---|\n");
    rows(page, "", schema);
}

fn rows(page: &mut String, within: &str, schema: &Value) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{within}{name}");
        row(page, &place, field, schema);
        rows(page, &format!("{place}."), field);
        rows(page, &format!("{place}[]."), &field["items"]);
    }
}

fn row(page: &mut String, name: &str, field: &Value, within: &Value) {
    let kinds: Vec<&str> = match &field["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => vec![kind.as_str().unwrap_or("any")],
    };
    let own = name.rsplit('.').next().unwrap_or(name);
    let required = within["required"].as_array();
    let required = required.is_some_and(|names| names.iter().any(|known| known == own));
    let optional = if required { "" } else { ", optional" };
    let mut words = field["description"].as_str().unwrap_or_default().to_owned();
    if let (Some(from), Some(to)) = (field["minimum"].as_u64(), field["maximum"].as_u64()) {
        words.push_str(if words.is_empty() { "" } else { " " });
        let _ = write!(words, "{from} to {to}.");
    }
    let _ = writeln!(
        page,
        "| `{name}` | {}{optional} | {words} |",
        kinds.join(" or ")
    );
}

fn errors(page: &mut String) {
    page.push_str(
        "\n## Errors\n\nA refusal is `{\"error\":{\"code\",\"message\",\"ref\"?}}`; over MCP it is the text of a tool error. \
         What the gate turns away before that is in [the gateway's page](gateway.md#the-gate).\n\n| code | status | when |\n|---|---|---|\n",
    );
    let text = std::borrow::Cow::Borrowed("");
    for (error, when) in [
        (
            OpError::Forbidden(text.clone()),
            "the caller is not granted the access, or not in this namespace, or the cluster refuses the gateway",
        ),
        (
            OpError::NotFound(text.clone()),
            "there is no such group or operation, or none that the caller may know of",
        ),
        (
            OpError::Invalid(text.clone()),
            "the input does not fit, or the cluster's admission refuses what it would make",
        ),
        (
            OpError::Conflict(text.clone()),
            "it does not fit the state of the group: suspended, nothing to go back to, keys of its own, or changed by somebody else in the same moment",
        ),
        (
            OpError::Unavailable(text.clone()),
            "a worker or the API server cannot be asked now",
        ),
        (OpError::TooLarge(0), "the result has more than 2 MiB"),
        (
            OpError::Internal(text),
            "something failed on our side; `ref` is in the log",
        ),
    ] {
        let status = error.status().as_u16();
        let _ = writeln!(page, "| `{}` | {status} | {when} |", error.code());
    }
}
