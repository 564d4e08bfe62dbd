//! What is known about each group, and how it is shown: a line for each change, as `kubectl get -w` does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar};
use ramen_group::Finding;
use serde::Serialize;
use tokio::time::Instant;

use crate::output::{self, Colour, Format, paint};
use crate::revision::{age, short};
use crate::validate::findings;

/// The state of one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) namespace: String,
    pub(super) name: String,
    /// A revision serves.
    pub(super) ready: bool,
    pub(super) tools: u32,
    pub(super) resources: u32,
    pub(super) prompts: u32,
    /// The revision that serves.
    pub(super) revision: Option<String>,
    /// The revision that was tried last.
    pub(super) attempted: Option<String>,
    /// The revision that the source shows.
    pub(super) observed: Option<String>,
    /// What goes on or what is wrong, in a few words.
    pub(super) message: String,
    /// The errors list of the revision that was tried last.
    pub(super) errors: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    /// Where the worker listens.
    pub(super) address: Option<String>,
    /// Where MCP clients connect over HTTP.
    pub(super) url: Option<String>,
    /// Milliseconds from the sight of a change to the new revision in service.
    pub(super) took_ms: Option<u64>,
    /// When the revision that serves began to.
    #[serde(skip)]
    pub(super) since: Option<Instant>,
}

impl Status {
    /// A group of which nothing is known yet.
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The state as it is shown: what a group serves is only there while it serves. The revision that is remembered
    /// from before is what it will serve first, not what answers now.
    pub(super) fn serving(&self, remembered: Option<String>) -> Self {
        let status = self.clone();
        if self.ready {
            return Self {
                revision: remembered,
                ..status
            };
        }
        Self {
            revision: None,
            tools: 0,
            resources: 0,
            prompts: 0,
            ..status
        }
    }

    fn row(&self, called: &str) -> [String; 7] {
        let age = self
            .since
            .filter(|_| self.ready)
            .map_or_else(|| "-".to_owned(), |since| age(since.elapsed()));
        let revision = self
            .revision
            .as_deref()
            .map_or_else(|| "-".to_owned(), short);
        [
            called.to_owned(),
            if self.ready { "True" } else { "False" }.to_owned(),
            self.tools.to_string(),
            self.errors.len().to_string(),
            revision,
            age,
            if self.message.is_empty() {
                "starting".to_owned()
            } else {
                self.message.clone()
            },
        ]
    }
}

/// Everything that `ramen up` prints.
pub(super) struct Board {
    format: Format,
    colour: bool,
    shown: BTreeMap<(String, String), Status>,
    /// Namespaces and names that there ever were to show.
    expected: BTreeSet<(String, String)>,
    widths: [usize; 7],
    header: bool,
    bars: MultiProgress,
    progress: BTreeMap<(String, String), ProgressBar>,
}

const HEADER: [&str; 7] = [
    "NAME", "READY", "TOOLS", "ERRORS", "REVISION", "AGE", "MESSAGE",
];

impl Board {
    pub(super) fn new(format: Format) -> Self {
        let bars = MultiProgress::new();
        if !std::io::stderr().is_terminal() {
            bars.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        Self {
            format,
            colour: output::colours(),
            shown: BTreeMap::new(),
            expected: BTreeSet::new(),
            // A revision: `folder@` and ten digits.
            widths: [8, 5, 5, 6, 17, 4, 0],
            header: false,
            bars,
            progress: BTreeMap::new(),
        }
    }

    /// Makes room for a group, so that the lines of all groups line up from the first on.
    pub(super) fn expect(&mut self, key: &(String, String)) {
        self.expected.insert(key.clone());
        let names = self.expected.iter().map(|(namespace, name)| {
            let called = self.called(namespace, name);
            called.chars().count()
        });
        self.widths[0] = names.max().unwrap_or_default().max(self.widths[0]);
    }

    /// What a group is called: with its namespace as soon as there are several.
    pub(super) fn called(&self, namespace: &str, name: &str) -> String {
        if self.expected.iter().any(|(other, _)| other != namespace) {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Shows a state when it differs from the one shown before.
    pub(super) fn update(&mut self, status: &Status) {
        let key = (status.namespace.clone(), status.name.clone());
        let before = self.shown.get(&key);
        if before == Some(status) {
            return;
        }
        let news =
            before.is_none_or(|b| b.errors != status.errors || b.warnings != status.warnings);
        let listed = news && !(status.errors.is_empty() && status.warnings.is_empty());
        let mut lines = Vec::new();
        match self.format {
            Format::Json => {
                lines.push(serde_json::to_string(&WithFixes::of(status)).unwrap_or_default());
            }
            Format::Yaml => {
                let text = serde_saphyr::to_string(&WithFixes::of(status)).unwrap_or_default();
                lines.push(format!("---\n{}", text.trim_end()));
            }
            Format::Table => {
                let called = self.called(&status.namespace, &status.name);
                let row = status.row(&called);
                // The age grows by itself, and what the table does not show is no news.
                let same = before.is_some_and(|b| {
                    let old = b.row(&called);
                    (0..row.len()).filter(|i| *i != 5).all(|i| old[i] == row[i])
                });
                if (same && !listed)
                    || (before.is_none() && *status == Status::new(&status.namespace, &status.name))
                {
                    self.shown.insert(key, status.clone());
                    return;
                }
                if !self.header {
                    lines.push(self.line(&HEADER.map(str::to_owned), None));
                    self.header = true;
                }
                lines.push(self.line(&row, Some(status)));
                if listed {
                    lines.extend(
                        findings(&status.errors, &status.warnings, self.colour)
                            .iter()
                            .map(|line| format!("  {line}")),
                    );
                }
            }
        }
        self.shown.insert(key, status.clone());
        self.print(&lines);
    }

    /// A remark for people; nothing when the output is for programs.
    pub(super) fn remark(&self, text: &str) {
        self.bars.suspend(|| output::note(text));
    }

    /// What a group is busy with; an empty text ends it.
    pub(super) fn progress(&mut self, key: &(String, String), text: &str) {
        if text.is_empty() {
            if let Some(bar) = self.progress.remove(key) {
                bar.finish_and_clear();
                self.bars.remove(&bar);
            }
            return;
        }
        let called = self.called(&key.0, &key.1);
        let bars = &self.bars;
        let bar = self.progress.entry(key.clone()).or_insert_with(|| {
            let bar = bars.add(ProgressBar::new_spinner());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        bar.set_message(format!("{called}: {text}"));
    }

    /// Forgets a group.
    pub(super) fn forget(&mut self, key: &(String, String)) {
        self.progress(key, "");
        if let Some(status) = self.shown.remove(key) {
            self.remark(&format!(
                "{}/{} is no longer served",
                status.namespace, status.name
            ));
        }
    }

    fn line(&mut self, row: &[String; 7], status: Option<&Status>) -> String {
        let mut out = String::new();
        for (i, cell) in row.iter().enumerate() {
            let cell = &output::one_line(cell);
            let width = cell.chars().count();
            // A column that grew stays so, or the lines to come would not line up.
            self.widths[i] = self.widths[i].max(width);
            let shade = match (i, status) {
                (1, Some(status)) if status.ready => Some(Colour::Green),
                (1, Some(_)) => Some(Colour::Yellow),
                (3, Some(status)) if !status.errors.is_empty() => Some(Colour::Red),
                _ => None,
            };
            out.push_str(
                &shade.map_or_else(|| cell.clone(), |shade| paint(self.colour, shade, cell)),
            );
            if i + 1 < row.len() {
                out.extend(std::iter::repeat_n(' ', self.widths[i] - width + 3));
            }
        }
        out.trim_end().to_owned()
    }

    fn print(&self, lines: &[String]) {
        self.bars
            .suspend(|| lines.iter().for_each(|line| output::line(line)));
    }
}

/// A status for programs: each finding with its fix.
#[derive(Serialize)]
struct WithFixes<'a> {
    #[serde(flatten)]
    status: &'a Status,
    fixes: BTreeMap<&'static str, &'static str>,
}

impl<'a> WithFixes<'a> {
    fn of(status: &'a Status) -> Self {
        let reasons = status
            .errors
            .iter()
            .chain(&status.warnings)
            .map(|finding| finding.reason);
        Self {
            status,
            fixes: reasons
                .map(|reason| (reason.as_str(), reason.fix()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_not_shown_as_serving() {
        let remembered = || Some("main@sha1:0123456789".to_owned());
        let mut status = Status {
            tools: 7,
            since: Some(Instant::now()),
            ..Status::new("default", "demo")
        };
        let shown = status.serving(remembered());
        assert_eq!((shown.revision.as_ref(), shown.tools), (None, 0));
        assert_eq!(
            shown.row("demo")[..6],
            ["demo", "False", "0", "0", "-", "-"]
        );
        status.ready = true;
        let shown = status.serving(remembered());
        assert_eq!((shown.revision, shown.tools), (remembered(), 7));
    }

    #[test]
    fn columns_never_shrink() {
        let mut board = Board::new(Format::Table);
        let status = Status {
            ready: true,
            ..Status::default()
        };
        let row = status.row("a-long-name");
        let first = board.line(&row, None);
        let second = board.line(&status.row("b"), None);
        assert_eq!(first.find("True"), second.find("True"));
    }

    #[test]
    fn groups_of_several_namespaces_are_called_with_them_and_line_up() {
        let key = |namespace: &str| (namespace.to_owned(), "calc".to_owned());
        let mut board = Board::new(Format::Table);
        board.expect(&key("default"));
        assert_eq!(board.called("default", "calc"), "calc");
        board.expect(&key("team-a"));
        assert_eq!(board.called("default", "calc"), "default/calc");
        assert_eq!(board.called("team-a", "calc"), "team-a/calc");
        assert_eq!(board.widths[0], "default/calc".len());
    }
}
