//! The subset of JSON Schema 2020-12 that Ramen checks itself: compiled once, then run over raw
//! JSON without building values.
//!
//! Checked: `type`, `enum`, `const`, `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`,
//! `multipleOf`, `minLength`, `maxLength`, `pattern`, `items`, `prefixItems`, `minItems`,
//! `maxItems`, `uniqueItems`, `properties`, `required`, `additionalProperties`, `minProperties`,
//! `maxProperties`, `allOf`, `anyOf`, `oneOf`, `not`, and in `output` `$ref` to `#` and `#/$defs/…`.

mod check;
mod choice;
mod compile;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;

use crate::json::{Node, Reader, number::Decimal};

pub(crate) use check::{Check, Edit, Place};
pub(crate) use choice::Choice;
pub(crate) use compile::{Compiler, Mode, Problem};

/// Bits of [`Schema::types`].
pub(crate) mod types {
    pub(crate) const NULL: u8 = 1;
    pub(crate) const BOOL: u8 = 2;
    pub(crate) const INTEGER: u8 = 4;
    pub(crate) const NUMBER: u8 = 8;
    pub(crate) const STRING: u8 = 16;
    pub(crate) const ARRAY: u8 = 32;
    pub(crate) const OBJECT: u8 = 64;
    pub(crate) const ANY: u8 = 127;

    /// The bit of a type's name.
    pub(crate) fn parse(word: &str) -> Option<u8> {
        Some(match word {
            "null" => NULL,
            "boolean" => BOOL,
            "integer" => INTEGER,
            "number" => NUMBER,
            "string" => STRING,
            "array" => ARRAY,
            "object" => OBJECT,
            _ => return None,
        })
    }
}

/// A compiled schema.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) types: u8,
    pub(crate) choice: Option<Choice>,
    pub(crate) string: Option<Box<StringRules>>,
    pub(crate) number: Option<Box<NumberRules>>,
    pub(crate) array: Option<Box<ArrayRules>>,
    pub(crate) object: Option<Box<ObjectRules>>,
    pub(crate) combine: Option<Box<Combine>>,
}

impl Schema {
    pub(crate) fn of_types(types: u8) -> Self {
        Self {
            types,
            choice: None,
            string: None,
            number: None,
            array: None,
            object: None,
            combine: None,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StringRules {
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) pattern: Option<(Box<str>, regex::Regex)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NumberRules {
    pub(crate) min: Option<Bound>,
    pub(crate) max: Option<Bound>,
    pub(crate) multiple: Option<(Box<str>, Decimal)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Bound {
    pub(crate) token: Box<str>,
    pub(crate) value: Decimal,
    pub(crate) exclusive: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ArrayRules {
    pub(crate) prefix: Vec<Schema>,
    pub(crate) items: Option<Schema>,
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) unique: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectRules {
    pub(crate) properties: Vec<Property>,
    /// Only where a linear search would be slow.
    pub(crate) index: Option<HashMap<Box<str>, usize>>,
    pub(crate) additional: Additional,
    pub(crate) min: Option<u64>,
    pub(crate) max: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Property {
    pub(crate) name: Box<str>,
    pub(crate) schema: Schema,
    pub(crate) required: bool,
    /// Filled in where the root object lacks the member.
    pub(crate) default: Option<Box<str>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Additional {
    #[default]
    Any,
    Refuse,
    Schema(Schema),
}

impl ObjectRules {
    /// Builds the index when there are many properties.
    pub(crate) fn with_index(mut self) -> Self {
        if self.properties.len() > 16 {
            let names = self.properties.iter().enumerate();
            self.index = Some(names.map(|(n, p)| (p.name.clone(), n)).collect());
        }
        self
    }

    /// Where a property stands; `hint` is where the caller would expect it.
    #[inline]
    pub(crate) fn find(&self, name: &str, hint: usize) -> Option<usize> {
        if self.properties.get(hint).is_some_and(|p| &*p.name == name) {
            return Some(hint);
        }
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.properties.iter().position(|p| &*p.name == name),
        }
    }
}

/// Applicators that look at the same value again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Combine {
    pub(crate) all: Vec<Schema>,
    pub(crate) any: Vec<Schema>,
    pub(crate) one: Vec<Schema>,
    pub(crate) not: Option<Schema>,
    /// Index into the definitions.
    pub(crate) reference: Option<usize>,
}

/// `output` of a tool.
#[derive(Clone)]
pub struct OutputSchema {
    json: Box<RawValue>,
    root: Schema,
    definitions: Vec<Schema>,
    object: bool,
}

/// Where a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFault {
    /// The place (`rows[3].name`), empty for the root.
    pub place: String,
    /// What is wrong, without the value.
    pub message: String,
}

impl fmt::Display for SchemaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "`{}` {}", self.place, self.message)
        }
    }
}

impl OutputSchema {
    /// Compiles `output`; problems go to the compiler.
    pub(crate) fn compile(node: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let mut compiler = Compiler::new(Mode::Output, Some(node));
        let root = compiler.schema(node);
        let definitions = compiler.definitions();
        problems.append(&mut compiler.problems);
        if problems[before..].iter().any(|problem| problem.error) {
            return None;
        }
        let object = node.get("type").and_then(Node::as_str) == Some("object");
        let json = RawValue::from_string(node.minified()).ok()?;
        Some(Self {
            json,
            root,
            definitions,
            object,
        })
    }

    /// Compiles a schema that comes as text. All faults are returned, in words.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let node = crate::json::parse(text).map_err(|fault| vec![fault.message.to_string()])?;
        let mut problems = Vec::new();
        Self::compile(&node, &mut problems).ok_or_else(|| {
            problems
                .into_iter()
                .map(|problem| problem.message)
                .collect()
        })
    }

    /// The schema to list as `outputSchema`.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// Whether the root is `"type":"object"`: listed in both eras; others in the modern era only.
    pub fn is_object(&self) -> bool {
        self.object
    }

    /// Checks a JSON-encoded result. Keywords outside the subset are not judged.
    pub fn check(&self, json: &str) -> Result<(), SchemaFault> {
        let mut check = Check::new(&self.definitions, json.len());
        let mut reader = Reader::new(json);
        let syntax = check
            .value(&self.root, &mut reader, &Place::Root)
            .and_then(|()| reader.finish());
        if let Err(fault) = syntax {
            return Err(SchemaFault {
                place: String::new(),
                message: fault.message.to_owned(),
            });
        }
        match check.faults.into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json.get())
    }
}
