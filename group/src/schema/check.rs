//! Running a compiled schema over raw JSON.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Additional, ArrayRules, Choice, Combine, ObjectRules, Schema, SchemaFault, types};
use crate::json::{self, Fault, Kind, Number, Reader, Text, number::Decimal};

/// Faults kept of one check; more help nobody.
const MAX_FAULTS: usize = 8;

/// Values looked at in one check: so many, and so many for each byte. Enough for a handful of
/// branches everywhere, and an end to schemas whose branches multiply.
const BUDGET: usize = 100_000;
const BUDGET_PER_BYTE: usize = 8;

/// How many branches (`anyOf`, `$ref`, …) may lie within each other.
const MAX_BRANCHES: u32 = 200;

/// Where a value stands.
pub(crate) enum Place<'p> {
    Root,
    Key(&'p Self, &'p str),
    Index(&'p Self, usize),
}

impl Place<'_> {
    fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Root => {}
            Self::Key(parent, name) => {
                parent.write(out);
                if !parent.is_root() {
                    out.push('.');
                }
                out.extend(name.chars().take(64));
            }
            Self::Index(parent, at) => {
                parent.write(out);
                // Writing to a String cannot fail.
                let _ = write!(out, "[{at}]");
            }
        }
    }
}

/// A piece of the text to replace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edit {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) with: String,
}

/// One run.
pub(crate) struct Check<'s> {
    definitions: &'s [Schema],
    pub(crate) faults: Vec<SchemaFault>,
    pub(crate) edits: Vec<Edit>,
    budget: usize,
    branches: u32,
}

/// Which of an object's properties were there.
struct Seen {
    few: u64,
    many: Vec<bool>,
}

impl Seen {
    fn new(properties: usize) -> Self {
        Self {
            few: 0,
            many: if properties > 64 {
                vec![false; properties]
            } else {
                Vec::new()
            },
        }
    }

    /// Marks one; true when it was marked before.
    fn mark(&mut self, at: usize) -> bool {
        if self.many.is_empty() {
            let bit = 1u64 << at;
            let before = self.few & bit != 0;
            self.few |= bit;
            before
        } else {
            std::mem::replace(&mut self.many[at], true)
        }
    }

    fn has(&self, at: usize) -> bool {
        if self.many.is_empty() {
            self.few & (1u64 << at) != 0
        } else {
            self.many[at]
        }
    }
}

impl<'s> Check<'s> {
    /// For a text of this many bytes.
    pub(crate) fn new(definitions: &'s [Schema], bytes: usize) -> Self {
        Self {
            definitions,
            faults: Vec::new(),
            edits: Vec::new(),
            budget: BUDGET + BUDGET_PER_BYTE * bytes,
            branches: 0,
        }
    }

    fn fault(&mut self, place: &Place<'_>, message: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            let mut text = String::new();
            place.write(&mut text);
            self.faults.push(SchemaFault {
                place: text,
                message: message.into(),
            });
        }
    }

    /// Checks the value that `reader` stands before, and reads past it. `Err` is bad JSON; what does
    /// not fit the schema goes to `faults`.
    pub(crate) fn value(
        &mut self,
        schema: &'s Schema,
        reader: &mut Reader<'_>,
        place: &Place<'_>,
    ) -> Result<(), Fault> {
        let kind = reader.peek()?;
        let start = reader.pos();
        self.budget = self.budget.saturating_sub(1);
        if self.budget == 0 {
            return Err(Fault {
                at: start,
                message: "the value takes too long to check",
            });
        }
        let again = schema
            .combine
            .as_ref()
            .map(|combine| (combine, reader.clone()));
        match kind {
            Kind::String => {
                let text = reader.string()?;
                self.string(schema, text, place);
            }
            Kind::Number => {
                let number = reader.number()?;
                self.number(schema, number, start, place);
            }
            Kind::Bool | Kind::Null => {
                let bit = if reader.word()?.is_some() {
                    types::BOOL
                } else {
                    types::NULL
                };
                if schema.types & bit == 0 {
                    self.mistyped(schema, place);
                }
            }
            Kind::Array if schema.types & types::ARRAY == 0 => {
                self.mistyped(schema, place);
                reader.skip()?;
            }
            Kind::Array => match &schema.array {
                Some(rules) => self.array(rules, reader, place)?,
                None => reader.skip()?,
            },
            Kind::Object if schema.types & types::OBJECT == 0 => {
                self.mistyped(schema, place);
                reader.skip()?;
            }
            Kind::Object => match &schema.object {
                Some(rules) => self.object(rules, reader, place)?,
                None => reader.skip()?,
            },
        }
        if let Some(choice) = &schema.choice {
            self.choice(choice, kind, reader.slice(start, reader.pos()), place);
        }
        if let Some((combine, before)) = again {
            self.combine(combine, &before, place)?;
        }
        Ok(())
    }

    fn mistyped(&mut self, schema: &Schema, place: &Place<'_>) {
        self.fault(place, expected(schema.types));
    }

    fn string(&mut self, schema: &Schema, text: Text<'_>, place: &Place<'_>) {
        if schema.types & types::STRING == 0 {
            return self.mistyped(schema, place);
        }
        let Some(rules) = &schema.string else {
            return;
        };
        if rules.min.is_some() || rules.max.is_some() {
            let length = text.chars() as u64;
            if let Some(min) = rules.min.filter(|min| length < *min) {
                self.fault(place, format!("must have at least {min} characters"));
            }
            if let Some(max) = rules.max.filter(|max| length > *max) {
                self.fault(place, format!("must have at most {max} characters"));
            }
        }
        if let Some((source, pattern)) = &rules.pattern
            && !pattern.is_match(&text.decode())
        {
            self.fault(place, format!("must match the pattern {source}"));
        }
    }

    fn number(&mut self, schema: &Schema, number: Number<'_>, start: usize, place: &Place<'_>) {
        let mut decimal = None;
        if schema.types & types::NUMBER == 0 {
            if schema.types & types::INTEGER == 0 {
                return self.mistyped(schema, place);
            }
            if !number.plain_integer {
                let value = Decimal::parse(number.raw);
                match value.to_integer() {
                    Some(with) => {
                        self.edits.push(Edit {
                            from: start,
                            to: start + number.raw.len(),
                            with,
                        });
                    }
                    None => return self.fault(place, "must be an integer"),
                }
                decimal = Some(value);
            }
        }
        let Some(rules) = &schema.number else {
            return;
        };
        let value = decimal.unwrap_or_else(|| Decimal::parse(number.raw));
        if let Some(min) = &rules.min
            && (value < min.value || (min.exclusive && value == min.value))
        {
            let words = if min.exclusive {
                "greater than"
            } else {
                "at least"
            };
            self.fault(place, format!("must be {words} {}", min.token));
        }
        if let Some(max) = &rules.max
            && (value > max.value || (max.exclusive && value == max.value))
        {
            let words = if max.exclusive {
                "less than"
            } else {
                "at most"
            };
            self.fault(place, format!("must be {words} {}", max.token));
        }
        if let Some((token, unit)) = &rules.multiple
            && !value.is_multiple_of(unit)
        {
            self.fault(place, format!("must be a multiple of {token}"));
        }
    }

    fn choice(&mut self, choice: &Choice, kind: Kind, raw: &str, place: &Place<'_>) {
        let fits = match choice {
            Choice::Strings(values) => {
                let text = raw.get(1..raw.len().saturating_sub(1)).unwrap_or("");
                kind == Kind::String && {
                    let text = Text {
                        raw: text,
                        escaped: text.contains('\\'),
                    }
                    .decode();
                    values.iter().any(|value| **value == *text)
                }
            }
            Choice::Any(values) => json::parse(raw).is_ok_and(|node| {
                let canonical = node.canonical();
                values.contains(&canonical)
            }),
        };
        if fits {
            return;
        }
        // A wrong type was already named.
        let mut here = String::new();
        place.write(&mut here);
        if self.faults.last().is_some_and(|fault| fault.place == here) {
            return;
        }
        let message = match choice {
            Choice::Strings(values) => {
                let mut list = String::new();
                for value in values.iter().take(20) {
                    if !list.is_empty() {
                        list.push_str(", ");
                    }
                    list.extend(value.chars().take(64));
                }
                if values.len() > 20 {
                    list.push_str(", …");
                }
                format!("must be one of: {list}")
            }
            Choice::Any(_) => "is not one of the allowed values".to_owned(),
        };
        self.fault(place, message);
    }

    fn array(
        &mut self,
        rules: &'s ArrayRules,
        reader: &mut Reader<'_>,
        place: &Place<'_>,
    ) -> Result<(), Fault> {
        let mut unique = rules.unique.then(HashSet::new);
        let mut count = 0usize;
        let mut more = reader.open()?;
        while more {
            let here = Place::Index(place, count);
            reader.blanks();
            let start = reader.pos();
            match rules.prefix.get(count).or(rules.items.as_ref()) {
                Some(schema) => self.value(schema, reader, &here)?,
                None => reader.skip()?,
            }
            if let Some(seen) = &mut unique
                && let Ok(node) = json::parse(reader.slice(start, reader.pos()))
                && !seen.insert(node.canonical())
            {
                unique = None;
                self.fault(&here, "is there twice");
            }
            count += 1;
            more = reader.next(b']')?;
        }
        self.length(count, rules.min, rules.max, "items", place);
        Ok(())
    }

    fn length(
        &mut self,
        count: usize,
        min: Option<u64>,
        max: Option<u64>,
        what: &str,
        place: &Place<'_>,
    ) {
        if let Some(min) = min.filter(|min| (count as u64) < *min) {
            self.fault(place, format!("must have at least {min} {what}"));
        }
        if let Some(max) = max.filter(|max| (count as u64) > *max) {
            self.fault(place, format!("must have at most {max} {what}"));
        }
    }

    fn object(
        &mut self,
        rules: &'s ObjectRules,
        reader: &mut Reader<'_>,
        place: &Place<'_>,
    ) -> Result<(), Fault> {
        let mut seen = Seen::new(rules.properties.len());
        let mut count = 0usize;
        let mut more = reader.open()?;
        while more {
            let key = reader.key()?;
            let name = key.decode();
            if let Some(at) = rules.find(&name, count) {
                let property = &rules.properties[at];
                let here = Place::Key(place, &property.name);
                if seen.mark(at) {
                    self.fault(&here, "is given twice");
                }
                self.value(&property.schema, reader, &here)?;
            } else {
                let here = Place::Key(place, &name);
                match &rules.additional {
                    Additional::Any => reader.skip()?,
                    Additional::Schema(schema) => self.value(schema, reader, &here)?,
                    Additional::Refuse => {
                        reader.skip()?;
                        self.fault(&here, "is not known here");
                    }
                }
            }
            count += 1;
            more = reader.next(b'}')?;
        }
        self.missing(rules, &seen, count, reader, place);
        self.length(count, rules.min, rules.max, "members", place);
        Ok(())
    }

    /// Names required properties that are not there, and fills in defaults at the root.
    fn missing(
        &mut self,
        rules: &ObjectRules,
        seen: &Seen,
        count: usize,
        reader: &Reader<'_>,
        place: &Place<'_>,
    ) {
        if count == rules.properties.len() && (0..rules.properties.len()).all(|at| seen.has(at)) {
            return;
        }
        let mut fill = String::new();
        for (at, property) in rules.properties.iter().enumerate() {
            if seen.has(at) {
                continue;
            }
            if property.required {
                self.fault(&Place::Key(place, &property.name), "is missing");
            } else if let Some(default) = &property.default {
                if count > 0 || !fill.is_empty() {
                    fill.push(',');
                }
                json::quote_into(&mut fill, &property.name);
                fill.push(':');
                fill.push_str(default);
            }
        }
        if !fill.is_empty() {
            // Just before the closing brace.
            let at = reader.pos() - 1;
            self.edits.push(Edit {
                from: at,
                to: at,
                with: fill,
            });
        }
    }

    fn branch(
        &mut self,
        schema: &'s Schema,
        before: &Reader<'_>,
        place: &Place<'_>,
    ) -> Result<(Vec<SchemaFault>, Vec<Edit>), Fault> {
        let mut sub = Self::new(self.definitions, 0);
        sub.budget = self.budget;
        sub.branches = self.branches + 1;
        if sub.branches > MAX_BRANCHES {
            return Err(Fault {
                at: before.pos(),
                message: "the schema refers to itself too often",
            });
        }
        sub.value(schema, &mut before.clone(), place)?;
        self.budget = sub.budget;
        Ok((sub.faults, sub.edits))
    }

    fn combine(
        &mut self,
        combine: &'s Combine,
        before: &Reader<'_>,
        place: &Place<'_>,
    ) -> Result<(), Fault> {
        let definitions = self.definitions;
        let reference = combine.reference.and_then(|at| definitions.get(at));
        for schema in combine.all.iter().chain(reference) {
            let (faults, mut edits) = self.branch(schema, before, place)?;
            self.edits.append(&mut edits);
            let room = MAX_FAULTS.saturating_sub(self.faults.len());
            self.faults.extend(faults.into_iter().take(room));
        }
        if !combine.any.is_empty() {
            let mut fits = false;
            for schema in &combine.any {
                let (faults, mut edits) = self.branch(schema, before, place)?;
                if faults.is_empty() {
                    self.edits.append(&mut edits);
                    fits = true;
                    break;
                }
            }
            if !fits {
                self.fault(place, "fits none of its `anyOf` schemas");
            }
        }
        if !combine.one.is_empty() {
            let mut fitting = 0;
            for schema in &combine.one {
                let (faults, mut edits) = self.branch(schema, before, place)?;
                if faults.is_empty() {
                    self.edits.append(&mut edits);
                    fitting += 1;
                }
            }
            if fitting != 1 {
                self.fault(place, "must fit exactly one of its `oneOf` schemas");
            }
        }
        if let Some(schema) = &combine.not
            && self.branch(schema, before, place)?.0.is_empty()
        {
            self.fault(place, "fits its `not` schema");
        }
        Ok(())
    }
}

/// `must be a number`, `must be a string or null`.
fn expected(bits: u8) -> String {
    let words = [
        (types::STRING, "a string"),
        (types::NUMBER, "a number"),
        (types::INTEGER, "an integer"),
        (types::BOOL, "a boolean"),
        (types::ARRAY, "an array"),
        (types::OBJECT, "an object"),
        (types::NULL, "null"),
    ];
    let bits = if bits & types::NUMBER == 0 {
        bits
    } else {
        bits & !types::INTEGER
    };
    let list: Vec<_> = words
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, word)| *word)
        .collect();
    match list.as_slice() {
        [] => "is not allowed".to_owned(),
        list => format!("must be {}", list.join(" or ")),
    }
}
