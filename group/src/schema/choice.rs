//! `enum` and `const`, which hold both when both are there.

use crate::json::Node;

/// The values that are allowed.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// All of them strings.
    Strings(Vec<Box<str>>),
    /// Canonical forms of anything.
    Any(Vec<String>),
}

/// What is left of the allowed values, keyword by keyword.
#[derive(Default)]
pub(super) struct Choices(Option<Vec<Value>>);

/// One value: its canonical form, and its text when it is a string.
struct Value {
    canonical: String,
    text: Option<Box<str>>,
}

impl Choices {
    /// Takes one more list: only what is in all of them is allowed.
    pub(super) fn narrow(&mut self, items: &[Node<'_>]) {
        let mut values: Vec<Value> = items
            .iter()
            .map(|item| Value {
                canonical: item.canonical(),
                text: item.as_str().map(Box::from),
            })
            .collect();
        if let Some(before) = &self.0 {
            let known = |value: &Value| before.iter().any(|one| one.canonical == value.canonical);
            values.retain(known);
        }
        self.0 = Some(values);
    }

    pub(super) fn finish(self) -> Option<Choice> {
        let values = self.0?;
        if !values.is_empty() && values.iter().all(|value| value.text.is_some()) {
            let texts = values.into_iter().filter_map(|value| value.text);
            return Some(Choice::Strings(texts.collect()));
        }
        let canonical = values.into_iter().map(|value| value.canonical);
        Some(Choice::Any(canonical.collect()))
    }
}
