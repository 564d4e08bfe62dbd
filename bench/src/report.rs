//! What comes out: worker.json, and one table on stdout.

use std::fmt::Write as _;

use serde::Serialize;

use crate::lab::Lab;
use crate::stats;

/// What a measure is to reach.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::AtLeast(goal) => format!(">= {goal}"),
            Self::AtMost(goal) => format!("<= {goal}"),
            Self::Below(goal) => format!("< {goal}"),
        }
    }

    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(goal) => value >= goal,
            Self::AtMost(goal) => value <= goal,
            Self::Below(goal) => value < goal,
        }
    }
}

/// The id, unit and goal of every measure, in the order of the table.
pub(crate) const GOALS: &[(&str, &str, Goal)] = &[
    ("x_grpcio", "ratio", Goal::AtLeast(9.0)),
    ("x_sdk", "ratio", Goal::AtLeast(45.0)),
    ("x_fastmcp", "ratio", Goal::AtLeast(75.0)),
    ("x_null", "ratio", Goal::AtLeast(0.65)),
    ("p50_x_null", "ratio", Goal::AtMost(1.3)),
    ("beside_spin", "ratio", Goal::AtLeast(0.6)),
    ("blocked_p99_ms", "ms", Goal::Below(5.0)),
    ("push_s", "s", Goal::Below(1.0)),
    ("deps_s", "s", Goal::Below(4.0)),
    ("reload_failed", "calls", Goal::AtMost(0.0)),
    ("reload_rss_pct", "%", Goal::AtMost(5.0)),
    ("front_mib", "MiB", Goal::Below(15.0)),
    ("host_mib", "MiB", Goal::Below(14.0)),
    ("respawn_ms", "ms", Goal::Below(100.0)),
];

#[derive(Serialize)]
pub(crate) struct Measure {
    pub(crate) id: &'static str,
    pub(crate) value: f64,
    unit: &'static str,
    target: String,
    met: bool,
    /// What each round gave; `value` is their median unless `note` says otherwise.
    rounds: Vec<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// All that a run found.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) measures: Vec<Measure>,
    /// Further tables, printed and kept beside the measures.
    pub(crate) tables: Vec<String>,
    pub(crate) missed: Vec<String>,
}

impl Findings {
    /// Adds a measure whose value is the median of its rounds.
    pub(crate) fn add(&mut self, id: &str, rounds: Vec<f64>, note: impl Into<String>) {
        let value = stats::median(&rounds);
        self.add_value(id, value, rounds, note);
    }

    /// Adds a measure with its value.
    pub(crate) fn add_value(
        &mut self,
        id: &str,
        value: f64,
        rounds: Vec<f64>,
        note: impl Into<String>,
    ) {
        let Some((id, unit, goal)) = GOALS.iter().find(|(known, ..)| *known == id) else {
            self.missed.push(format!("{id}: no such measure"));
            return;
        };
        eprintln!("bench: {id} = {}", short(value));
        self.measures.push(Measure {
            id,
            value: rounded(value),
            unit,
            target: goal.text(),
            met: goal.met(value),
            rounds: rounds.into_iter().map(rounded).collect(),
            note: note.into(),
        });
    }

    /// A part that could not be measured, with its reason.
    pub(crate) fn fail(&mut self, part: &str, error: &anyhow::Error) {
        eprintln!("bench: {part} failed: {error:#}");
        self.missed.push(format!("{part}: {error:#}"));
    }

    /// Table order.
    pub(crate) fn sort(&mut self) {
        self.measures
            .sort_by_key(|m| GOALS.iter().position(|(id, ..)| *id == m.id));
    }

    pub(crate) fn json(&self, lab: &Lab) -> serde_json::Value {
        let mut machine = crate::processes::machine();
        machine["python"] = lab.python_version.clone().into();
        machine["full"] = lab.is_full().into();
        serde_json::json!({ "machine": machine, "measures": self.measures, "missed": self.missed })
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let _ = writeln!(text, "{table}");
        }
        let _ = writeln!(
            text,
            "{:<16} {:>10} {:<6} {:>8}  {:<5} rounds",
            "id", "value", "unit", "goal", "met"
        );
        for m in &self.measures {
            let rounds: Vec<String> = m.rounds.iter().take(8).map(|r| short(*r)).collect();
            let more = if m.rounds.len() > 8 { " …" } else { "" };
            let met = if m.met { "yes" } else { "NO" };
            let _ = writeln!(
                text,
                "{:<16} {:>10} {:<6} {:>8}  {met:<5} {}{more}",
                m.id,
                short(m.value),
                m.unit,
                m.target,
                rounds.join(" ")
            );
            if !m.note.is_empty() {
                let _ = writeln!(text, "{:<16} {}", "", m.note);
            }
        }
        for missed in &self.missed {
            let _ = writeln!(text, "not measured: {missed}");
        }
        text
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Three significant places are enough to read.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
