//! What the operations answer: every field that one of the platforms gives, those that all give required. Where a value can
//! be missing it can be null, too.

use serde_json::{Value, json};

use crate::metrics::Outcome;

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

/// Others made it: it is handed on as it is.
fn any(description: &str) -> Value {
    json!({ "description": description })
}

/// The same, or null.
fn maybe(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn object(required: &[&str], properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn list(item: &Value, description: &str) -> Value {
    json!({ "type": "array", "items": item, "description": description })
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

/// One group in brief.
fn brief() -> Value {
    object(
        &["group", "ready"],
        &json!({
            "group": text("namespace/name"),
            "ready": flag("Whether it serves."),
            "message": maybe(text("What goes on or what is wrong.")),
            "revision": maybe(text("The revision that serves: branch@sha1:commit.")),
            "tools": number("How many tools serve."),
            "errors": number("How many entries groups.errors lists."),
            "suspended": flag("Whether its source is not looked at."),
            "reason": text("On a cluster: the reason of the condition Ready."),
            "replicas": maybe(text("On a cluster: ready and wanted pods.")),
            "workers": number("With a file of groups: how many workers there are."),
            "workersAside": number("With a file of groups: how many of them cannot be reached."),
        }),
    )
}

/// One group: in brief, and what else is known.
pub(super) fn group() -> Value {
    let mut group = brief();
    let more = json!({
        "upstreams": upstreams(),
        "namespace": text("`ramen up`: its namespace."),
        "name": text("`ramen up`: its name."),
        "resources": number("`ramen up`: how many resources serve."),
        "prompts": number("`ramen up`: how many prompts serve."),
        "attempted": maybe(text("`ramen up`: the revision that was tried last.")),
        "observed": maybe(text("`ramen up`: the revision that the source shows.")),
        "warnings": list(&finding(), "`ramen up`: what is not wrong and worth a look, as groups.errors tells what is."),
        "address": maybe(text("`ramen up`: where the worker listens.")),
        "url": maybe(text("`ramen up`: where MCP clients connect.")),
        "tookMs": maybe(number("`ramen up`: from the sight of the last change to its revision in service, in milliseconds.")),
        "generation": maybe(number("On a cluster: which version of the McpGroup this is.")),
        "observedGeneration": maybe(number("On a cluster: the version that the operator has seen.")),
        "source": source(),
        "revisions": revisions(),
        "packages": list(&package(), "On a cluster: the packages of the revision that serves."),
        "zones": list(&zone(), "On a cluster: its zones."),
        "lastDeploy": last_deploy(),
        "conditions": list(&condition(), "On a cluster: the conditions of its status."),
        "changedBy": maybe(text("On a cluster: who asked for the last change here.")),
        "changedAt": maybe(text("On a cluster: when.")),
    });
    if let (Some(known), Value::Object(more)) = (group["properties"].as_object_mut(), more) {
        known.extend(more);
    }
    group
}

fn upstreams() -> Value {
    let item = object(
        &["name", "state"],
        &json!({
            "name": text("Its name."),
            "state": text("up, connecting or down."),
            "why": text("Why it is down."),
            "sinceUnixMs": number("Since when, in milliseconds since 1970."),
            "tools": number("How many tools it lists."),
            "prompts": number("How many prompts."),
            "resources": number("How many resources."),
            "hides": list(&json!({ "type": "string" }), "What of the group's own its name hides."),
        }),
    );
    list(
        &item,
        "Other MCP servers that are offered with it, when there are any.",
    )
}

fn source() -> Value {
    let fields = object(
        &[],
        &json!({
            "url": text("The repository."),
            "ref": maybe(reference("What is followed; absent: its default branch.")),
            "path": maybe(text("The folder that holds mcp/.")),
        }),
    );
    described(fields, "On a cluster: where its code comes from.")
}

fn reference(description: &str) -> Value {
    let fields = ["branch", "tag", "semver", "commit", "name"].map(|field| {
        let value = json!({ "type": "string" });
        (field.to_owned(), value)
    });
    let fields: serde_json::Map<_, _> = fields.into_iter().collect();
    described(object(&[], &fields.into()), description)
}

fn revisions() -> Value {
    let fields = object(
        &[],
        &json!({
            "serving": text("What answers calls."),
            "attempted": text("What was tried last."),
            "previous": text("What a roll back goes to."),
            "observed": text("What the source shows."),
        }),
    );
    described(maybe(fields), "On a cluster: which revision is where.")
}

fn package() -> Value {
    object(
        &["kind", "name", "ok"],
        &json!({
            "kind": text("tool, resource or prompt."),
            "name": text("Its name."),
            "ok": flag("Whether it serves."),
        }),
    )
}

fn zone() -> Value {
    object(
        &["name"],
        &json!({
            "name": text("Its name."),
            "replicas": number("Wanted pods."),
            "ready": number("Pods that answer."),
            "updated": number("Pods that serve the wanted revision."),
        }),
    )
}

fn last_deploy() -> Value {
    let timings = ["fetch", "resolve", "install", "import", "tests", "total"].map(|phase| {
        let value = json!({ "type": "integer" });
        (format!("{phase}Ms"), value)
    });
    let timings: serde_json::Map<_, _> = timings.into_iter().collect();
    let timings = object(&[], &timings.into());
    let fields = object(
        &["revision", "outcome"],
        &json!({
            "revision": text("Of which revision."),
            "outcome": text("ok, partial or failed."),
            "timings": described(timings, "Milliseconds in each phase."),
        }),
    );
    described(maybe(fields), "On a cluster: the last deploy.")
}

fn condition() -> Value {
    object(
        &["type", "status"],
        &json!({
            "type": text("Such as Ready."),
            "status": text("True, False or Unknown."),
            "reason": text("In one word."),
            "message": text("In words."),
            "lastTransitionTime": text("Since when."),
            "observedGeneration": number("Of which version of the McpGroup."),
        }),
    )
}

/// All groups.
pub(super) fn groups() -> Value {
    list_of("groups", &brief())
}

fn finding() -> Value {
    object(
        &["reason", "message"],
        &json!({
            "package": maybe(text("Such as tools/calc; absent for the group as a whole.")),
            "reason": text("One word; the page of errors says what to do."),
            "message": text("In words."),
            "path": maybe(text("The file.")),
            "line": maybe(number("The line.")),
            "column": maybe(number("The column.")),
        }),
    )
}

/// An errors list.
pub(super) fn errors() -> Value {
    list_of("errors", &finding())
}

/// What happened.
pub(super) fn events() -> Value {
    let item = object(
        &["unixMs"],
        &json!({
            "unixMs": number("When, in milliseconds since 1970."),
            "message": maybe(text("In words.")),
            "ready": flag("`ramen up`: whether it serves since then."),
            "revision": maybe(text("`ramen up`: the revision that serves since then.")),
            "change": text("`ramen up`: which change was asked for."),
            "caller": text("`ramen up`: by whom."),
            "session": maybe(text("`ramen up`: in which session of an agent.")),
            "type": maybe(text("On a cluster: Normal or Warning.")),
            "reason": maybe(text("On a cluster: in one word.")),
            "count": number("On a cluster: how often."),
            "by": maybe(text("On a cluster: who tells it.")),
        }),
    );
    list_of("events", &item)
}

/// Tools as MCP lists them.
pub(super) fn tools() -> Value {
    let item = object(
        &["name", "inputSchema"],
        &json!({
            "name": text("The name to call it by."),
            "title": any("What people call it."),
            "description": any("What it does."),
            "inputSchema": any("JSON Schema of its arguments."),
            "outputSchema": any("JSON Schema of its structured result."),
            "annotations": any("Hints for clients."),
            "icons": any("Pictures of it."),
            "_meta": any("Marks of servers, such as that of an upstream that is down."),
        }),
    );
    list_of("tools", &item)
}

/// Calls of late.
pub(super) fn calls() -> Value {
    // What goes on is not remembered yet.
    let ended = |outcome: &Outcome| !matches!(outcome, Outcome::Stream | Outcome::Listening);
    let outcomes = Outcome::ALL.into_iter().filter(ended);
    let outcomes: Vec<_> = outcomes.map(Outcome::label).collect();
    let outcome = format!("How it ended: {}.", outcomes.join(", "));
    let item = object(
        &["unixMs", "group", "caller", "method", "outcome", "tookMs"],
        &json!({
            "unixMs": number("When it ended, in milliseconds since 1970."),
            "group": text("namespace/name"),
            "caller": text("Who called: the fingerprint of a key, or the subject of a token."),
            "method": text("The method of MCP."),
            "name": text("The tool, prompt or resource."),
            "outcome": text(&outcome),
            "status": number("The HTTP status; absent when the caller went away before."),
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
            "keyFile": text("`ramen up`, keys.rotate: the file that holds the new key."),
            "changedBy": text("On a cluster: who asked."),
            "generation": maybe(number("On a cluster: which version of the McpGroup it made.")),
            "source": maybe(reference("On a cluster: what is followed now.")),
            "suspended": flag("On a cluster: whether its source is not looked at now."),
        }),
    )
}

/// Members of an answer that its schema does not name, with their place.
#[cfg(test)]
pub(in crate::operations) fn untold(schema: &Value, answer: &Value, at: &str) -> Vec<String> {
    match (answer, &schema["properties"], &schema["items"]) {
        (Value::Object(members), Value::Object(known), _) => {
            let each = members.iter().flat_map(|(name, value)| {
                let place = format!("{at}.{name}");
                known.get(name).map_or_else(
                    || vec![place.clone()],
                    |schema| untold(schema, value, &place),
                )
            });
            each.collect()
        }
        (Value::Array(entries), _, item @ Value::Object(_)) => {
            let each = entries.iter().flat_map(|entry| untold(item, entry, at));
            each.collect()
        }
        _ => Vec::new(),
    }
}
