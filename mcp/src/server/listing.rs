//! Lists: rendered once, sorted by name, cut into pages by copying bytes.

use serde::Serialize;

use super::reply::Output;
use crate::cursor;
use crate::envelope::text;
use crate::era::Era;
use crate::error::McpError;
use crate::model::Tool;

/// One kind of list, for both eras.
pub(super) struct Listing {
    /// The names, sorted.
    keys: Vec<String>,
    legacy: Column,
    /// Only where the modern form differs.
    modern: Option<Column>,
}

/// Entries as JSON, each followed by a comma.
#[derive(Default)]
struct Column {
    bytes: Vec<u8>,
    /// Where each entry ends, its comma included.
    ends: Vec<usize>,
}

/// A piece of a list.
pub(super) struct Page<'l> {
    /// Entries as JSON with commas between.
    pub(super) items: &'l [u8],
    /// Where to go on, unless this is the end.
    pub(super) next: Option<String>,
}

impl Listing {
    /// A list whose entries look alike in both eras.
    pub(super) fn new<T: Serialize>(entries: &[T], key: impl Fn(&T) -> &String) -> Self {
        let mut sorted: Vec<&T> = entries.iter().collect();
        sorted.sort_by_key(|entry| key(entry));
        let mut legacy = Column::default();
        for entry in &sorted {
            legacy.push(*entry);
        }
        Self {
            keys: sorted.into_iter().map(|entry| key(entry).clone()).collect(),
            legacy,
            modern: None,
        }
    }

    /// The tools: a legacy list shows an output schema only when it is one of an object.
    pub(super) fn tools(tools: &[Tool], outputs: &[Output]) -> Self {
        let all = Self::new(tools, |tool| &tool.name);
        if !outputs.contains(&Output::Value) {
            return all;
        }
        let reduced: Vec<Tool> = tools
            .iter()
            .zip(outputs)
            .map(|(tool, output)| match output {
                Output::Value => Tool {
                    output_schema: None,
                    ..tool.clone()
                },
                Output::None | Output::Object => tool.clone(),
            })
            .collect();
        let reduced = Self::new(&reduced, |tool| &tool.name);
        Self {
            keys: all.keys,
            legacy: reduced.legacy,
            modern: Some(all.legacy),
        }
    }

    /// The page that `cursor`, a JSON token, asks for.
    pub(super) fn page(
        &self,
        era: Era,
        cursor: Option<&str>,
        size: usize,
    ) -> Result<Page<'_>, McpError> {
        let start = match cursor.filter(|token| *token != "null") {
            None => 0,
            Some(token) => match text(token).and_then(|cursor| cursor::decode(&cursor)) {
                Some(None) => 0,
                Some(Some(last)) => self.keys.partition_point(|key| *key <= last),
                None => {
                    return Err(McpError::invalid_params(
                        "`cursor` is not one of this server",
                    ));
                }
            },
        };
        let end = start.saturating_add(size.max(1)).min(self.keys.len());
        let column = match (&self.modern, era) {
            (Some(modern), Era::Modern) => modern,
            _ => &self.legacy,
        };
        let next = (end < self.keys.len()).then(|| cursor::encode(&self.keys[end - 1]));
        Ok(Page {
            items: column.slice(start, end),
            next,
        })
    }
}

impl Column {
    fn push<T: Serialize>(&mut self, entry: &T) {
        super::answer::put_json(&mut self.bytes, entry);
        self.bytes.push(b',');
        self.ends.push(self.bytes.len());
    }

    fn slice(&self, start: usize, end: usize) -> &[u8] {
        if start >= end {
            return &[];
        }
        let from = if start == 0 { 0 } else { self.ends[start - 1] };
        &self.bytes[from..self.ends[end - 1] - 1]
    }
}
