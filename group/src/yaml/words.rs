//! From what serde says to what a person reads.

use std::fmt::Write as _;

use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use serde_saphyr::Error;

/// What is wrong, without its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Something else belongs here.
    Expected(String),
    /// A number or text of the right kind that is outside of what is allowed.
    Range { found: String, expected: String },
    /// A field is missing.
    Missing(String),
    /// A field that does not belong; the ones that do.
    Unknown { field: String, known: String },
    /// None of the words that are allowed here.
    Word { found: String, known: String },
    /// Twice the same key.
    Twice(String),
    /// Anything else, mostly of the form of the text itself.
    Other(String),
}

impl Fault {
    pub(super) fn of_yaml(error: &Error) -> Self {
        let quoted = |words: &[&str]| words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>();
        match error.without_snippet() {
            Error::SerdeInvalidType { expected, .. } => Self::Expected(plain(expected)),
            Error::SerdeInvalidValue {
                unexpected,
                expected,
                ..
            } => Self::Range {
                found: unexpected.clone(),
                expected: plain(expected),
            },
            Error::InvalidScalar { ty, .. } => Self::Expected(plain(ty)),
            Error::Unexpected { expected, .. } => Self::Expected(plain(expected)),
            Error::InvalidBooleanStrict { .. } => Self::Expected(plain("boolean")),
            Error::NullIntoString { .. }
            | Error::TaggedScalarCannotDeserializeIntoString { .. }
            | Error::ExternallyTaggedEnumExpectedScalarOrMapping { .. }
            | Error::ExpectedStringKeyForExternallyTaggedEnum { .. } => {
                Self::Expected(plain("string"))
            }
            Error::SerdeMissingField { field, .. } => Self::Missing((*field).to_owned()),
            Error::SerdeUnknownField {
                field, expected, ..
            } => Self::Unknown {
                field: field.clone(),
                known: quoted(expected).join(", "),
            },
            Error::SerdeUnknownVariant {
                variant, expected, ..
            } => Self::Word {
                found: variant.clone(),
                known: quoted(expected).join(", "),
            },
            Error::DuplicateMappingKey { key, .. } => Self::Twice(key.clone().unwrap_or_default()),
            other => {
                let options = serde_saphyr::UserMessageFormatter;
                let text = other.render_with_formatter(&options);
                // The place goes into fields of its own.
                let text = text.split(" at line ").next().unwrap_or_default();
                Self::Other(text.to_owned())
            }
        }
    }

    /// The same of an error of `serde_json`, which has only its text. These are the sentences of `serde::de::Error`.
    pub(super) fn of_json(text: &str) -> Self {
        let (what, expected) = text.split_once(", expected ").unwrap_or((text, ""));
        let ticked = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
        let known = || expected.trim_start_matches("one of ").replace(" or ", ", ");
        if what.starts_with("invalid type: ") || what.starts_with("invalid length ") {
            Self::Expected(plain(expected))
        } else if let Some(found) = what.strip_prefix("invalid value: ") {
            Self::Range {
                found: found.to_owned(),
                expected: plain(expected),
            }
        } else if what.starts_with("missing field ") {
            Self::Missing(ticked(what))
        } else if what.starts_with("unknown field ") {
            Self::Unknown {
                field: ticked(what),
                known: known(),
            }
        } else if what.starts_with("unknown variant ") {
            Self::Word {
                found: ticked(what),
                known: known(),
            }
        } else if what.starts_with("duplicate field ") {
            Self::Twice(ticked(what))
        } else {
            Self::Other(text.to_owned())
        }
    }

    /// Without a place: the text is no good YAML, or the whole of it is of the wrong kind.
    pub(super) fn alone(&self) -> String {
        match self {
            Self::Other(text) => format!("no good YAML: {text}"),
            Self::Twice(key) => format!("the key `{key}` is there twice"),
            fault => fault.say("the file", ""),
        }
    }

    /// At a field of the document, of which `document` holds the values.
    pub(super) fn at(&self, path: &Path, document: Option<&Value>) -> String {
        let place = show(path, self);
        let place = if place.is_empty() {
            "the file".to_owned()
        } else {
            format!("`{place}`")
        };
        let found = document.and_then(|document| super::lookup(document, path));
        let found = match (self, found) {
            (_, None) => String::new(),
            // Of the right kind: then the value itself is what is wrong.
            (Self::Expected(expected), Some(Value::Number(number)))
                if expected.contains("number") =>
            {
                number.to_string()
            }
            (_, Some(found)) => kind(found).to_owned(),
        };
        self.say(&place, &found)
    }

    fn say(&self, place: &str, found: &str) -> String {
        let inner = |field: &str| match place.strip_suffix('`') {
            Some(path) => format!("{path}.{field}`"),
            None => format!("`{field}`"),
        };
        match self {
            Self::Expected(expected) if found.is_empty() || found == expected => {
                format!("{place} must be {expected}")
            }
            Self::Expected(expected) => format!("{place} must be {expected}, not {found}"),
            Self::Range { found, expected } => {
                // `integer `70000``: the number itself.
                let found = found.split('`').nth(1).unwrap_or(found);
                format!("{place} must be {expected}, not {found}")
            }
            Self::Missing(field) => format!("{} is missing", inner(field)),
            Self::Unknown { field, known } => {
                format!(
                    "{} is not known; what can stand there: {known}",
                    inner(field)
                )
            }
            Self::Word { found, known } => {
                format!("{place} must be one of {known}, not `{found}`")
            }
            Self::Twice(key) => format!("the key `{key}` is there twice"),
            Self::Other(text) if place == "the file" => format!("no good YAML: {text}"),
            Self::Other(text) => format!("{place}: {text}"),
        }
    }
}

/// `cases[0].expect`; the key that is itself the fault is left to the sentence.
fn show(path: &Path, fault: &Fault) -> String {
    let mut shown = String::new();
    let mut segments: Vec<&Segment> = path.iter().collect();
    if let (Fault::Unknown { field, .. }, Some(Segment::Map { key })) = (fault, segments.last())
        && key == field
    {
        segments.pop();
    }
    for segment in segments {
        match segment {
            Segment::Seq { index } => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "[{index}]");
            }
            Segment::Map { key } => {
                if !shown.is_empty() {
                    shown.push('.');
                }
                shown.extend(key.chars().take(64));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    shown
}

/// What a value is, in the words of [`plain`].
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// What belongs somewhere: serde and the YAML reader speak of Rust types and of tokens.
fn plain(expected: &str) -> String {
    let plain = match expected {
        "a string" | "string" | "str" | "a borrowed string" | "string scalar" | "string or map"
        | "scalar" | "a character" => "a text",
        "a boolean" | "boolean" | "bool" => "true or false",
        "a sequence" | "sequence" | "sequence start" => "a list",
        "a map" | "map" | "mapping start" | "a JSON object" => "a map",
        "f32" | "f64" | "floating point" => "a number",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "Quantity" => "a quantity such as `512Mi`",
        "Time" | "MicroTime" => "a time such as `2026-01-31T12:00:00Z`",
        // Names of structs: with the word before it, or alone.
        other if other.starts_with("struct ") => "a map",
        other if other.starts_with(char::is_uppercase) && !other.contains(' ') => "a map",
        other => other,
    };
    plain.to_owned()
}
