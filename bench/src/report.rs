//! What comes out of a benchmark: JSON, and one table on stdout.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::stats;

/// What a measure is to reach.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
}

/// The id, unit and goal of every measure, in the order of the table.
pub type Goals = &'static [(&'static str, &'static str, Goal)];

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

/// One value with its goal.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Its name.
    pub id: String,
    /// What was found.
    pub value: f64,
    unit: String,
    target: String,
    met: bool,
    /// What each round gave; `value` is their median unless `note` says otherwise.
    rounds: Vec<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
}

/// All that a run found.
#[derive(Debug)]
pub struct Findings {
    goals: Goals,
    /// The measures, in the order in which they were taken until they are sorted.
    pub measures: Vec<Measure>,
    /// Further tables, printed above the measures.
    pub tables: Vec<String>,
    /// Parts that could not be measured, and why.
    pub missed: Vec<String>,
}

impl Findings {
    /// Nothing yet.
    pub fn new(goals: Goals) -> Self {
        Self {
            goals,
            measures: Vec::new(),
            tables: Vec::new(),
            missed: Vec::new(),
        }
    }

    /// Adds a measure whose value is the median of its rounds.
    pub fn add(&mut self, id: &str, rounds: Vec<f64>, note: impl Into<String>) {
        let value = stats::median(&rounds);
        self.add_value(id, value, rounds, note);
    }

    /// Adds a measure with its value.
    pub fn add_value(&mut self, id: &str, value: f64, rounds: Vec<f64>, note: impl Into<String>) {
        let Some((id, unit, goal)) = self.goals.iter().find(|(known, ..)| *known == id) else {
            self.missed.push(format!("{id}: no such measure"));
            return;
        };
        eprintln!("bench: {id} = {}", short(value));
        self.measures.push(Measure {
            id: (*id).to_owned(),
            value: rounded(value),
            unit: (*unit).to_owned(),
            target: goal.text(),
            met: goal.met(value),
            rounds: rounds.into_iter().map(rounded).collect(),
            note: note.into(),
        });
    }

    /// A part that could not be measured, with its reason.
    pub fn fail(&mut self, part: &str, error: &anyhow::Error) {
        eprintln!("bench: {part} failed: {error:#}");
        self.missed.push(format!("{part}: {error:#}"));
    }

    /// Table order.
    pub fn sort(&mut self) {
        let goals = self.goals;
        self.measures
            .sort_by_key(|m| goals.iter().position(|(id, ..)| *id == m.id));
    }

    /// For programs; `machine` describes what it ran on.
    pub fn json(&self, machine: &Value) -> Value {
        let mut json =
            json!({ "machine": machine, "measures": self.measures, "missed": self.missed });
        if !self.tables.is_empty() {
            json["tables"] = json!(self.tables);
        }
        json
    }

    /// Adds what another run wrote with [`Self::json`].
    pub fn join(&mut self, json: &Value) {
        let list = |name: &str| json[name].as_array().into_iter().flatten().cloned();
        let texts = |name| list(name).filter_map(|text| text.as_str().map(str::to_owned));
        self.measures
            .extend(list("measures").filter_map(|one| serde_json::from_value(one).ok()));
        self.tables.extend(texts("tables"));
        self.missed.extend(texts("missed"));
    }

    /// For people.
    pub fn table(&self) -> String {
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
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
