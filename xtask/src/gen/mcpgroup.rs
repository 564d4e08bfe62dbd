//! docs/reference/mcpgroup.md: the kind field by field, from its schema.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::Value;

const HEAD: &str = "# McpGroup\n\n<!-- Written by `cargo xtask gen` from crds/src. Do not edit. -->\n\n\
`ramen.dev/v1alpha1`, plural `mcpgroups`, short name `rmg`, namespaced. One git repository of Python functions, served to MCP clients.\n\n\
```yaml\napiVersion: ramen.dev/v1alpha1\nkind: McpGroup\nmetadata:\n  name: calc\nspec:\n  source:\n    url: https://git.example/team/tools\n  network:\n    allowedCIDRs: [10.0.0.0/8]\n```\n\n\
Fields with `*` must be given. Times are written like `30s`, `5m` or `1h30m`.\n";

/// Types of Kubernetes itself.
const FOREIGN: &[(&str, &str)] = &[
    ("tolerations", "list of Toleration"),
    ("resources", "ResourceRequirements"),
    ("conditions", "list of Condition"),
];

pub(crate) fn page() -> anyhow::Result<String> {
    let crd = serde_json::to_value(ramen_crds::crd())?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = HEAD.to_owned();
    let rules = |page: &mut String, path: &str, schema: &Value| {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let message = rule["message"].as_str().unwrap_or_default();
            let _ = writeln!(page, "| `{path}` | {} |", cell(message));
        }
    };
    for (title, part) in [("Spec", "spec"), ("Status", "status")] {
        let _ = writeln!(page, "\n## {title}\n\n| field | type | |\n|---|---|---|");
        fields(&mut page, "", schema["properties"].get(part).context(part)?);
    }
    page.push_str("\n## What the API server refuses\n\nBesides lengths and ranges of the fields above.\n\n| where | rule |\n|---|---|\n");
    rules(&mut page, "metadata.name", schema);
    each(&mut page, "spec", &schema["properties"]["spec"], &rules);
    page.push_str("\n## Columns\n\n");
    let columns = &crd["spec"]["versions"][0]["additionalPrinterColumns"];
    let columns: Vec<String> = columns
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| {
            format!(
                "`{}`",
                column["name"].as_str().unwrap_or_default().to_uppercase()
            )
        })
        .collect();
    let _ = writeln!(page, "`kubectl get rmg` shows {}.", columns.join(", "));
    Ok(page)
}

fn each(page: &mut String, path: &str, schema: &Value, act: &impl Fn(&mut String, &str, &Value)) {
    let name = path.rsplit('.').next().unwrap_or_default();
    if foreign(name, schema).is_some() {
        return;
    }
    act(page, path, schema);
    if schema["items"].is_object() {
        each(page, &format!("{path}[]"), &schema["items"], act);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        each(page, &format!("{path}.{name}"), inner, act);
    }
}

fn fields(page: &mut String, path: &str, schema: &Value) {
    let required = |name: &str| {
        let list = schema["required"].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).any(|field| field == name)
    };
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let mark = if required(name) { "*" } else { "" };
        let description = inner["description"].as_str().unwrap_or_default();
        let _ = writeln!(
            page,
            "| `{path}`{mark} | {} | {} |",
            kind(name, inner),
            cell(description)
        );
        if foreign(name, inner).is_some() {
            continue;
        }
        fields(page, &path, inner);
        if inner["items"]["properties"].is_object() {
            fields(page, &format!("{path}[]"), &inner["items"]);
        }
    }
}

/// The type of Kubernetes that a field has; a list of strings is ours, whatever its name.
fn foreign(name: &str, schema: &Value) -> Option<&'static str> {
    let known = FOREIGN.iter().find(|(foreign, _)| *foreign == name);
    let ours = schema["items"]["type"] == "string";
    known.filter(|_| !ours).map(|(_, kind)| *kind)
}

/// The type with its bounds.
fn kind(name: &str, schema: &Value) -> String {
    if let Some(kind) = foreign(name, schema) {
        return kind.to_owned();
    }
    let word = schema["type"].as_str().unwrap_or("object");
    let bound = |key: &str| schema[key].as_f64();
    let text = match word {
        "array" => {
            let inner = kind("", &schema["items"]);
            let inner = inner.split(',').next().unwrap_or_default();
            let most = bound("maxItems").map(|n| format!(", at most {n}"));
            format!("list of {inner}{}", most.unwrap_or_default())
        }
        "object" if schema["additionalProperties"].is_object() => "map of string".to_owned(),
        "string" => match bound("maxLength") {
            Some(most) => format!("string, at most {most}"),
            None => "string".to_owned(),
        },
        "integer" => match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(most)) => format!("integer, {least} to {most}"),
            _ => "integer".to_owned(),
        },
        word => word.to_owned(),
    };
    match &schema["default"] {
        Value::Null => text,
        default if default.is_object() => text,
        default => format!("{text}; `{default}` when absent"),
    }
}

/// A text in one cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
