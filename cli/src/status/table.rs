//! How groups look to people.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::view::{Detail, Entry, Summary};
use crate::output::{self, Colour, one_line, paint};
use crate::revision::{age, short};

/// What a list shows, as `kubectl get rmg` does, and the message.
const COLUMNS: [&str; 10] = [
    "NAMESPACE",
    "NAME",
    "READY",
    "REASON",
    "TOOLS",
    "ERRORS",
    "REVISION",
    "REPLICAS",
    "AGE",
    "MESSAGE",
];

/// The lines of a list.
pub(super) fn list(groups: &[Summary], namespaces: bool) -> String {
    let from = usize::from(!namespaces);
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| row(group).split_off(from))
        .collect();
    output::columns(&COLUMNS[from..], &rows)
}

/// The lines of a watch: columns that grew stay so, or the lines to come would not line up.
pub(super) struct Lines {
    from: usize,
    widths: Vec<usize>,
    begun: bool,
}

impl Lines {
    pub(super) fn new(namespaces: bool) -> Self {
        Self {
            from: usize::from(!namespaces),
            widths: COLUMNS.iter().map(|name| name.len()).collect(),
            begun: false,
        }
    }

    /// The line of a group, with the header before the first one.
    pub(super) fn line(&mut self, group: &Summary) -> String {
        let row = row(group);
        let header = (!std::mem::replace(&mut self.begun, true))
            .then(|| COLUMNS.map(str::to_owned).to_vec());
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.chars().count());
        }
        let lines = header.into_iter().chain([row]).map(|row| {
            let cells = row.iter().zip(&self.widths).skip(self.from);
            let cells: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("   ").trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn row(group: &Summary) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        group.namespace.clone(),
        group.name.clone(),
        group.status.clone(),
        or_dash(Some(group.reason.clone()).filter(|reason| !reason.is_empty())),
        or_dash(group.tools.map(|tools| tools.to_string())),
        group.errors_total.to_string(),
        or_dash(group.revision.serving.as_deref().map(short)),
        or_dash(group.replicas.clone()),
        or_dash(group.created.as_ref().map(since)),
        one_line(&group.message),
    ]
}

/// Everything about one group.
pub(super) fn detail(detail: &Detail, colour: bool) -> String {
    let group = &detail.group;
    let shade = if group.ready {
        Colour::Green
    } else {
        Colour::Red
    };
    let mut blocks = vec![
        format!(
            "{}/{}  {}  {}\n{}",
            group.namespace,
            group.name,
            paint(
                colour,
                shade,
                if group.ready { "ready" } else { "not ready" }
            ),
            group.reason,
            one_line(&group.message)
        )
        .trim_end()
        .to_owned(),
    ];
    blocks.push(facts(detail));
    if !detail.errors.is_empty() {
        blocks.push(errors(detail, colour));
    }
    if !detail.pods.is_empty() {
        blocks.push(pods(detail));
    }
    blocks.push(conditions(detail));
    if !detail.events.is_empty() {
        blocks.push(events(detail));
    }
    for unread in &detail.unread {
        blocks.push(format!("not read: {unread}"));
    }
    blocks
        .iter()
        .map(|block| block.trim_end())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Names and values: revisions, the deploy, packages, who asked.
fn facts(detail: &Detail) -> String {
    let revision = &detail.group.revision;
    let mut rows: Vec<(&str, String)> = vec![("source", detail.url.clone())];
    for (name, value) in [
        ("serving", &revision.serving),
        ("attempted", &revision.attempted),
        ("observed", &revision.observed),
    ] {
        rows.push((name, value.clone().unwrap_or_else(|| "-".to_owned())));
    }
    if let Some(deploy) = &detail.last_deploy {
        let timings = &deploy.timings;
        let parts = [
            ("fetch", timings.fetch_ms),
            ("resolve", timings.resolve_ms),
            ("install", timings.install_ms),
            ("import", timings.import_ms),
            ("tests", timings.tests_ms),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, ms)| *ms > 0)
            .map(|(name, ms)| format!("{name} {}", seconds(*ms)))
            .collect();
        let took = seconds(timings.total_ms);
        rows.push((
            "last deploy",
            format!(
                "{}: {} in {took} ({})",
                short(&deploy.revision),
                deploy.outcome,
                parts.join(", ")
            ),
        ));
    }
    rows.push(("packages", packages(detail)));
    if let Some(at) = &detail.asked.hinted {
        rows.push(("last hook", at.clone()));
    }
    if let Some(at) = &detail.asked.requested {
        let done = detail.asked.acted_on.as_ref() == Some(at);
        let done = if done { "acted on" } else { "not acted on yet" };
        rows.push(("requested", format!("{at}, {done}")));
    }
    let rows = rows
        .into_iter()
        .map(|(name, value)| format!("{name:13}{value}"));
    rows.collect::<Vec<_>>().join("\n")
}

/// `3 tools, 1 prompt; left out: tools/bad`.
fn packages(detail: &Detail) -> String {
    let mut parts = Vec::new();
    for kind in ["tool", "resource", "prompt"] {
        let serve = detail
            .packages
            .iter()
            .filter(|p| p.kind == kind && p.ok)
            .count();
        if serve > 0 {
            parts.push(format!(
                "{serve} {kind}{}",
                if serve == 1 { "" } else { "s" }
            ));
        }
    }
    let mut text = if parts.is_empty() {
        "none serve".to_owned()
    } else {
        parts.join(", ")
    };
    let out: Vec<String> = detail
        .packages
        .iter()
        .filter(|package| !package.ok)
        .map(|package| format!("{}s/{}", package.kind, package.name))
        .collect();
    if !out.is_empty() {
        text = format!("{text}; left out: {}", out.join(", "));
    }
    text
}

/// The errors list, each entry with what to do.
fn errors(detail: &Detail, colour: bool) -> String {
    let mut lines = Vec::new();
    for Entry { told, fix, see } in &detail.errors {
        let place = match (&told.path, told.line, &told.package) {
            (Some(path), Some(line), _) => format!("{path}:{line}: "),
            (Some(path), None, _) => format!("{path}: "),
            (None, _, Some(package)) => format!("{package}: "),
            (None, _, None) => String::new(),
        };
        let word = paint(colour, Colour::Red, "error");
        lines.push(format!(
            "{word} {place}{}: {}",
            told.reason,
            one_line(&told.message)
        ));
        let see = see
            .as_ref()
            .map_or_else(String::new, |see| format!(" ({see})"));
        lines.push(paint(colour, Colour::Dim, &format!("  fix: {fix}{see}")));
    }
    let shown = u32::try_from(detail.errors.len()).unwrap_or(u32::MAX);
    let more = detail.group.errors_total.saturating_sub(shown);
    if more > 0 {
        lines.push(format!(
            "and {more} more: `ramen validate` in the repository lists all of them"
        ));
    }
    lines.join("\n")
}

fn pods(detail: &Detail) -> String {
    let rows: Vec<Vec<String>> = detail
        .pods
        .iter()
        .map(|pod| {
            vec![
                pod.name.clone(),
                pod.zone.clone(),
                pod.ready.to_string(),
                pod.revision
                    .as_deref()
                    .map_or_else(|| "-".to_owned(), short),
                pod.restarts.to_string(),
                pod.created.as_ref().map_or_else(|| "-".to_owned(), since),
                one_line(&pod.message),
            ]
        })
        .collect();
    output::columns(
        &[
            "POD", "ZONE", "READY", "REVISION", "RESTARTS", "AGE", "MESSAGE",
        ],
        &rows,
    )
}

fn conditions(detail: &Detail) -> String {
    if detail.conditions.is_empty() {
        return "no conditions: nothing has looked at the group yet".to_owned();
    }
    let rows: Vec<Vec<String>> = detail
        .conditions
        .iter()
        .map(|condition| {
            vec![
                condition.type_.clone(),
                condition.status.clone(),
                condition.reason.clone(),
                since(&condition.last_transition_time),
                one_line(&condition.message),
            ]
        })
        .collect();
    output::columns(
        &["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"],
        &rows,
    )
}

fn events(detail: &Detail) -> String {
    let rows: Vec<Vec<String>> = detail
        .events
        .iter()
        .map(|event| {
            let ago = event
                .at
                .map_or_else(|| "-".to_owned(), |at| since(&Time(at)));
            let times = if event.count > 1 {
                format!("{} (x{})", event.reason, event.count)
            } else {
                event.reason.clone()
            };
            vec![ago, event.kind.clone(), times, one_line(&event.message)]
        })
        .collect();
    output::columns(&["EVENT", "TYPE", "REASON", "MESSAGE"], &rows)
}

/// `1.24 s`.
fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1000, ms % 1000 / 10)
}

/// How long ago; nothing is in the future, whatever two clocks say.
fn since(time: &Time) -> String {
    let elapsed = Timestamp::now().duration_since(time.0);
    age(Duration::try_from(elapsed).unwrap_or_default())
}

#[cfg(test)]
mod tests;
