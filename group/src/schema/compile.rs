//! From a JSON Schema as written to a compiled one.

mod parts;
mod pattern;

use std::collections::HashMap;

use self::parts::{Parts, tighten};
use super::{Additional, Bound, Schema, types};
use crate::json::{Member, Node, Value, number::Decimal};

/// Schemas within one descriptor.
const MAX_SCHEMAS: usize = 2000;

/// What is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Parameters: what cannot be checked is at least remarked on.
    Input,
    /// A result: a full schema, of which only a part is judged.
    Output,
}

/// Something wrong with a descriptor.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// An error, or a remark.
    pub(crate) error: bool,
    /// Byte offset.
    pub(crate) at: usize,
    pub(crate) message: String,
    /// An error that `proto.schema.json` cannot express.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by the test against the schema")
    )]
    pub(crate) beyond_schema: bool,
}

impl Problem {
    pub(crate) fn error(at: usize, message: impl Into<String>) -> Self {
        Self {
            error: true,
            at,
            message: message.into(),
            beyond_schema: false,
        }
    }

    pub(crate) fn beyond(at: usize, message: impl Into<String>) -> Self {
        Self {
            beyond_schema: true,
            ..Self::error(at, message)
        }
    }

    pub(crate) fn unknown(at: usize, message: impl Into<String>) -> Self {
        Self {
            error: false,
            ..Self::error(at, message)
        }
    }
}

/// Keywords that say something about a value without limiting it.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
    "$anchor",
    "$defs",
    "definitions",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "x-mcp-header",
];

/// Keywords that limit a value and are not checked.
const UNCHECKED: &[&str] = &[
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "additionalItems",
    "dependencies",
    "$recursiveRef",
];

pub(crate) struct Compiler<'n> {
    mode: Mode,
    root: Option<&'n Node<'n>>,
    pub(crate) problems: Vec<Problem>,
    count: usize,
    references: HashMap<String, usize>,
    pending: Vec<&'n Node<'n>>,
}

impl<'n> Compiler<'n> {
    pub(crate) fn new(mode: Mode, root: Option<&'n Node<'n>>) -> Self {
        Self {
            mode,
            root,
            problems: Vec::new(),
            count: 0,
            references: HashMap::new(),
            pending: Vec::new(),
        }
    }

    pub(crate) fn error(&mut self, at: usize, message: impl Into<String>) {
        self.problems.push(Problem::error(at, message));
    }

    /// Compiles what `$ref`s named, which may name more.
    pub(crate) fn definitions(&mut self) -> Vec<Schema> {
        let mut done = Vec::new();
        while let Some(node) = self.pending.get(done.len()).copied() {
            let schema = self.schema(node);
            done.push(schema);
        }
        done
    }

    /// Compiles one schema.
    pub(crate) fn schema(&mut self, node: &'n Node<'n>) -> Schema {
        self.count += 1;
        if self.count > MAX_SCHEMAS {
            if self.count == MAX_SCHEMAS + 1 {
                self.problems
                    .push(Problem::beyond(node.start, "the schema is too large"));
            }
            return Schema::of_types(types::ANY);
        }
        let members = match &node.value {
            Value::Bool(true) => return Schema::of_types(types::ANY),
            Value::Bool(false) => return Schema::of_types(0),
            Value::Object(members) => members,
            _ => {
                self.error(
                    node.start,
                    format!("a schema is an object, not {}", node.kind()),
                );
                return Schema::of_types(types::ANY);
            }
        };
        let mut parts = Parts::default();
        let mut schema = Schema::of_types(types::ANY);
        for member in members {
            self.keyword(member, &mut schema, &mut parts);
        }
        parts.finish(schema)
    }

    fn keyword(&mut self, member: &'n Member<'n>, schema: &mut Schema, parts: &mut Parts) {
        let node = &member.node;
        match &*member.name {
            "type" => schema.types = self.types(node),
            "enum" => {
                if let Some(items) = self.list(member, 1) {
                    self.distinct(items);
                    parts.choices.narrow(items);
                }
            }
            "const" => parts.choices.narrow(std::slice::from_ref(node)),
            "minLength" => parts.string.min = self.size(member),
            "maxLength" => parts.string.max = self.size(member),
            "pattern" => parts.string.pattern = self.pattern(member),
            "minimum" | "exclusiveMinimum" => {
                let bound = self.bound(member);
                tighten(&mut parts.number.min, bound, |new, old| new > old);
            }
            "maximum" | "exclusiveMaximum" => {
                let bound = self.bound(member);
                tighten(&mut parts.number.max, bound, |new, old| new < old);
            }
            "multipleOf" => parts.number.multiple = self.multiple(member),
            "items" => parts.array.items = Some(self.schema(node)),
            "prefixItems" => {
                let items = self.list(member, 1).unwrap_or_default();
                parts.array.prefix = items.iter().map(|item| self.schema(item)).collect();
            }
            "minItems" => parts.array.min = self.size(member),
            "maxItems" => parts.array.max = self.size(member),
            "uniqueItems" => parts.array.unique = self.truth(member),
            "properties" => {
                let Some(properties) = node.members() else {
                    return self.error(node.start, "`properties` must be an object");
                };
                for property in properties {
                    let compiled = self.schema(&property.node);
                    parts.properties.push((property.name.to_string(), compiled));
                }
            }
            "required" => parts.required = self.names(member),
            "additionalProperties" => {
                parts.additional = match &node.value {
                    Value::Bool(true) => Additional::Any,
                    Value::Bool(false) => Additional::Refuse,
                    _ => Additional::Schema(self.schema(node)),
                };
            }
            "patternProperties" | "unevaluatedProperties" => {
                parts.open = true;
                self.unchecked(member);
            }
            "minProperties" => parts.min_members = self.size(member),
            "maxProperties" => parts.max_members = self.size(member),
            "allOf" => parts.combine.all = self.branches(member),
            "anyOf" => parts.combine.any = self.branches(member),
            "oneOf" => parts.combine.one = self.branches(member),
            "not" => parts.combine.not = Some(self.schema(node)),
            "$ref" => parts.combine.reference = self.reference(member),
            "$defs" | "definitions" if self.mode == Mode::Output => {
                let Some(definitions) = node.members() else {
                    let message = format!("`{}` must be an object", member.name);
                    return self.error(node.start, message);
                };
                for definition in definitions {
                    self.schema(&definition.node);
                }
            }
            "x-mcp-header" => {}
            name if name.starts_with("x-") || ANNOTATIONS.contains(&name) => {
                self.annotation(member);
            }
            _ => self.unchecked(member),
        }
    }

    fn annotation(&mut self, member: &Member<'_>) {
        if matches!(&*member.name, "title" | "description" | "format")
            && member.node.as_str().is_none()
        {
            self.error(
                member.node.start,
                format!("`{}` must be a string", member.name),
            );
        }
    }

    fn unchecked(&mut self, member: &Member<'_>) {
        if self.mode == Mode::Output {
            return;
        }
        let name: String = member.name.chars().take(64).collect();
        let message = if UNCHECKED.contains(&&*member.name) {
            format!("`{name}` is listed but not checked before a call")
        } else {
            format!("`{name}` is not a known keyword and is not checked")
        };
        self.problems.push(Problem::unknown(member.at, message));
    }

    fn types(&mut self, node: &Node<'_>) -> u8 {
        let words: Vec<&Node<'_>> = match &node.value {
            Value::String(_) => vec![node],
            Value::Array(items) if !items.is_empty() => items.iter().collect(),
            _ => {
                self.error(
                    node.start,
                    "`type` must be the name of a type, or a list of names",
                );
                return types::ANY;
            }
        };
        let mut bits = 0;
        for word in words {
            match word.as_str().and_then(types::parse) {
                Some(bit) if bits & bit != 0 => {
                    self.error(word.start, "`type` names a type twice");
                }
                Some(bit) => bits |= bit,
                None => self.error(
                    word.start,
                    "`type` must be one of string, number, integer, boolean, array, object, null",
                ),
            }
        }
        bits
    }

    fn list(&mut self, member: &'n Member<'n>, at_least: usize) -> Option<&'n [Node<'n>]> {
        let items = member.node.items().filter(|items| items.len() >= at_least);
        if items.is_none() {
            let message = format!("`{}` must be a list that is not empty", member.name);
            self.error(member.node.start, message);
        }
        items
    }

    fn distinct(&mut self, items: &[Node<'_>]) {
        let mut seen = std::collections::HashSet::new();
        for item in items {
            if !seen.insert(item.canonical()) {
                return self.error(item.start, "a value is listed twice");
            }
        }
    }

    fn branches(&mut self, member: &'n Member<'n>) -> Vec<Schema> {
        let items = self.list(member, 1).unwrap_or_default();
        items.iter().map(|item| self.schema(item)).collect()
    }

    fn size(&mut self, member: &Member<'_>) -> Option<u64> {
        let size = member
            .node
            .as_number()
            .map(Decimal::parse)
            .filter(|value| !value.negative)
            .and_then(|value| value.to_integer());
        if size.is_none() {
            let message = format!("`{}` must be a whole number from 0", member.name);
            self.error(member.node.start, message);
        }
        // Beyond u64 is beyond any text: no limit.
        size.map(|token| token.parse().unwrap_or(u64::MAX))
    }

    fn truth(&mut self, member: &Member<'_>) -> bool {
        member.node.as_bool().unwrap_or_else(|| {
            self.error(
                member.node.start,
                format!("`{}` must be true or false", member.name),
            );
            false
        })
    }

    fn bound(&mut self, member: &Member<'_>) -> Option<Bound> {
        let Some(token) = member.node.as_number() else {
            self.error(
                member.node.start,
                format!("`{}` must be a number", member.name),
            );
            return None;
        };
        Some(Bound {
            token: token.into(),
            value: Decimal::parse(token),
            exclusive: member.name.starts_with("exclusive"),
        })
    }

    fn multiple(&mut self, member: &Member<'_>) -> Option<(Box<str>, Decimal)> {
        let token = member.node.as_number();
        let unit = token
            .map(Decimal::parse)
            .filter(|unit| !unit.negative && !unit.digits.is_empty());
        let Some((token, unit)) = token.zip(unit) else {
            self.error(member.node.start, "`multipleOf` must be a number above 0");
            return None;
        };
        if unit.digits.len() > 18 {
            self.problems.push(Problem::beyond(
                member.node.start,
                "`multipleOf` takes 18 digits at most",
            ));
            return None;
        }
        Some((token.into(), unit))
    }

    fn names(&mut self, member: &Member<'_>) -> Vec<String> {
        let names: Option<Vec<String>> = member.node.items().and_then(|items| {
            items
                .iter()
                .map(|i| i.as_str().map(str::to_owned))
                .collect()
        });
        let Some(names) = names else {
            self.error(
                member.node.start,
                "`required` must be a list of names; a parameter becomes optional with `default`",
            );
            return Vec::new();
        };
        self.distinct(member.node.items().unwrap_or_default());
        names
    }

    fn pattern(&mut self, member: &Member<'_>) -> Option<(Box<str>, regex::Regex)> {
        let Some(source) = member.node.as_str() else {
            self.error(member.node.start, "`pattern` must be a string");
            return None;
        };
        match pattern::compile(source) {
            Ok(pattern) => Some((source.chars().take(200).collect::<String>().into(), pattern)),
            Err(_) if self.mode == Mode::Output => None,
            Err(_) => {
                self.problems.push(Problem::beyond(
                    member.node.start,
                    "`pattern` is not a regular expression that can be checked (no look-around, \
                     no back references)",
                ));
                None
            }
        }
    }

    fn reference(&mut self, member: &'n Member<'n>) -> Option<usize> {
        let at = member.node.start;
        let Some(target) = member.node.as_str() else {
            self.error(at, "`$ref` must be a string");
            return None;
        };
        if self.mode == Mode::Input {
            self.error(at, "`$ref` cannot be used in `input`");
            return None;
        }
        if let Some(known) = self.references.get(target) {
            return Some(*known);
        }
        let Some(pointer) = target.strip_prefix('#') else {
            self.error(at, "`$ref` must stay within the descriptor (`#/…`)");
            return None;
        };
        let Some(found) = self.root.and_then(|root| resolve(root, pointer)) else {
            self.problems
                .push(Problem::beyond(at, "`$ref` points nowhere"));
            return None;
        };
        let index = self.pending.len();
        self.pending.push(found);
        self.references.insert(target.to_owned(), index);
        Some(index)
    }
}

/// Follows a JSON pointer.
fn resolve<'n>(root: &'n Node<'n>, pointer: &str) -> Option<&'n Node<'n>> {
    if pointer.is_empty() {
        return Some(root);
    }
    pointer
        .strip_prefix('/')?
        .split('/')
        .try_fold(root, |node, part| {
            let part = part.replace("~1", "/").replace("~0", "~");
            match &node.value {
                Value::Object(members) => members
                    .iter()
                    .find(|member| member.name == part)
                    .map(|member| &member.node),
                Value::Array(items) => items.get(part.parse::<usize>().ok()?),
                _ => None,
            }
        })
}
