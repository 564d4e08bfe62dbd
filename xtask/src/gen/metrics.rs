//! docs/reference/metrics.md, from the one file of each program in which its metrics are registered. Tests
//! of those programs hold the page to what they really expose.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, bail};

use crate::workspace::root;

/// Title, prefix of the names, file.
const SOURCES: &[(&str, &str, &str)] = &[
    (
        "The operator: `ramen-operator`, port 8080",
        "ramen_operator",
        "operator/src/metrics.rs",
    ),
    (
        "Workers: `ramen-worker serve`, port 9090",
        "ramen",
        "worker/src/metrics.rs",
    ),
    (
        "The gateway: `ramen-gateway`, the port of `RAMEN_METRICS_LISTEN`",
        "ramen_gateway",
        "gateway/src/metrics.rs",
    ),
];
const HEAD: &str = "# Metrics\n\n<!-- Written by `cargo xtask gen` from the metrics.rs of each program. Do not edit. -->\n\n\
Text of OpenMetrics at `/metrics`. No label has a value that a caller chose, and none that a group chose but its name: `group` is the namespace/name of a group that is served, of at most 1,000 of them, the others count as `other`, and requests for one that is not served as `unknown`. The chart brings rules for alerts and a dashboard.\n";

pub(crate) fn page() -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    for (title, prefix, source) in SOURCES {
        let text = std::fs::read_to_string(root().join(source))
            .with_context(|| format!("cannot read {source}"))?;
        let _ = write!(
            page,
            "\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        );
        for metric in metrics(&text).with_context(|| (*source).to_owned())? {
            let labels: Vec<_> = metric
                .labels
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let _ = writeln!(
                page,
                "| `{prefix}_{}` | {} | {} | {} |",
                metric.name,
                metric.kind,
                labels.join(", "),
                metric.help.replace('|', "\\|")
            );
        }
    }
    Ok(page)
}

#[derive(Debug, PartialEq, Eq)]
struct Metric {
    name: String,
    kind: &'static str,
    labels: Vec<String>,
    help: String,
}

/// All that are registered, in the order of the file.
fn metrics(text: &str) -> anyhow::Result<Vec<Metric>> {
    let labels = label_sets(text);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("registry.register") {
        let call = &text[at..];
        let call = &call[..call.find(");").context("a call has an end")?];
        let mut strings = call.split('"').skip(1).step_by(2);
        let (Some(name), Some(help)) = (strings.next(), strings.next()) else {
            bail!("a metric is registered without a name or a text: {call}");
        };
        let handle = handle(call).with_context(|| format!("{name} has no handle"))?;
        let typed = typed(text, handle).with_context(|| format!("{handle} has no type"))?;
        let (kind, suffix) = match typed {
            typed if typed.contains("Counter") => ("counter", "_total"),
            typed if typed.contains("Histogram") => ("histogram", ""),
            typed if typed.contains("Gauge") => ("gauge", ""),
            _ => bail!("{name} is of no known type: {typed}"),
        };
        let set = typed.split_once("Family").and_then(|(_, typed)| {
            let inner = typed.trim_start_matches("::").strip_prefix('<')?;
            Some(inner.split(',').next()?.trim())
        });
        let labels = match set {
            None => Vec::new(),
            Some(set) => labels
                .get(set)
                .with_context(|| format!("{name} has labels that are not here: {set}"))?
                .clone(),
        };
        let unit = if call.contains("Unit::Seconds") {
            "_seconds"
        } else {
            ""
        };
        found.push(Metric {
            name: format!("{name}{unit}{suffix}"),
            kind,
            labels,
            help: help.to_owned(),
        });
    }
    if found.is_empty() {
        bail!("no metric is registered");
    }
    Ok(found)
}

/// What is registered: `metrics.deploys.clone()` is `deploys`.
fn handle(call: &str) -> Option<&str> {
    let before = call.rsplit_once(".clone()")?.0;
    let start = before.rfind(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&before[start + 1..])
}

/// The type of a field, or of a variable that a value is given to.
fn typed<'t>(text: &'t str, handle: &str) -> Option<&'t str> {
    text.lines().map(str::trim).find_map(|line| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let field = line
            .strip_prefix(handle)
            .and_then(|rest| rest.strip_prefix(": "));
        let variable = line
            .strip_prefix("let ")
            .and_then(|rest| rest.strip_prefix(handle)?.strip_prefix(" = "));
        field
            .or(variable)
            .filter(|typed| {
                ["Family", "Counter", "Gauge", "Histogram"]
                    .iter()
                    .any(|one| typed.starts_with(one))
            })
            // Only a type names what is in a family.
            .filter(|typed| !typed.starts_with("Family::default"))
    })
}

/// The fields of every set of labels.
fn label_sets(text: &str) -> BTreeMap<&str, Vec<String>> {
    let mut sets = BTreeMap::new();
    for part in text.split("EncodeLabelSet)]\n").skip(1) {
        let Some((head, body)) = part.split_once('{') else {
            continue;
        };
        let name = head.trim().rsplit(' ').next().unwrap_or_default();
        let fields = body.split('}').next().unwrap_or_default().lines();
        let fields = fields.filter_map(|line| Some(line.trim().split_once(':')?.0.to_owned()));
        sets.insert(
            name,
            fields.filter(|field| !field.starts_with('/')).collect(),
        );
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_becomes_a_row_with_its_type_and_labels() {
        let text = "#[derive(Debug, EncodeLabelSet)]\nstruct ByKind {\n    kind: &'static str,\n    verb: &'static str,\n}\n\
                    struct Metrics {\n    writes: Family<ByKind, Counter>,\n    took: Histogram,\n}\n\
                    let open = Gauge::default();\n\
                    registry.register(\n    \"writes\",\n    \"Writes, by kind\",\n    metrics.writes.clone(),\n);\n\
                    registry.register_with_unit(\n    \"took\",\n    \"Time\",\n    Unit::Seconds,\n    metrics.took.clone(),\n);\n\
                    registry.register(\"open\", \"Open\", open.clone());\n";
        let found = metrics(text).unwrap();
        let row = |at: usize| {
            (
                found[at].name.as_str(),
                found[at].kind,
                found[at].labels.join(" "),
            )
        };
        assert_eq!(row(0), ("writes_total", "counter", "kind verb".to_owned()));
        assert_eq!(row(1), ("took_seconds", "histogram", String::new()));
        assert_eq!(row(2), ("open", "gauge", String::new()));
    }

    #[test]
    fn a_metric_of_an_unknown_type_is_a_fault() {
        assert!(metrics("registry.register(\"x\", \"y\", z.clone());").is_err());
    }
}
