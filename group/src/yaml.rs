//! Reading YAML that people write. What is wrong with it is said in their terms: the field with its path, what is
//! there, what belongs there. The types of this program are in no message.

mod words;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Path;

use self::words::Fault;
use crate::{Finding, Reason, json};

/// Characters of a message: not the whole file when a key of it is quoted.
const MAX_MESSAGE: usize = 300;

/// Reads one document; what is wrong becomes an entry with line and column.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8], reason: Reason) -> Result<T, Finding> {
    let text = json::decode(bytes).map_err(|_| Finding::group(reason, "the file is not UTF-8"))?;
    let mut path = None;
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            path = Some(error.path().clone());
            error.into_inner()
        })
    });
    read.map_err(|error| {
        let (message, location) = match serde_saphyr::from_str::<Value>(text) {
            // The text itself is broken, wherever the typed reader stumbled first.
            Err(form) => (Fault::of_yaml(&form).alone(), form.location()),
            Ok(document) => (
                look_again::<T>(&document, path.as_ref(), &error),
                error.location(),
            ),
        };
        let finding = Finding::group(reason, bound(&message));
        match location {
            Some(place) if place.line() > 0 => finding.at(
                u32::try_from(place.line()).unwrap_or(u32::MAX),
                u32::try_from(place.column()).unwrap_or(u32::MAX),
            ),
            _ => finding,
        }
    })
}

/// The fault with what is there instead. The reader of YAML knows the place; what belongs there is known better to the
/// one that reads values, when it finds fault with the same field.
fn look_again<T: DeserializeOwned>(
    document: &Value,
    path: Option<&Path>,
    error: &serde_saphyr::Error,
) -> String {
    let fault = Fault::of_yaml(error);
    let Some(path) = path else {
        return fault.alone();
    };
    let again: Result<T, _> = serde_path_to_error::deserialize(document);
    match again {
        Err(error) if error.path().to_string() == path.to_string() => {
            Fault::of_json(&error.inner().to_string()).at(path, Some(document))
        }
        _ => fault.at(path, Some(document)),
    }
}

/// All documents of a text. The error has the line and column of what is no YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(text).map_err(|error| {
        let message = bound(&Fault::of_yaml(&error).alone());
        match error.location() {
            Some(place) if place.line() > 0 => {
                format!(
                    "line {}, column {}: {message}",
                    place.line(),
                    place.column()
                )
            }
            _ => message,
        }
    })
}

/// A document as a value of its type, or what is wrong with which field. Texts and numbers of the document are in no
/// message unless they had to be one of a few words or within a range: it may be a Secret.
pub fn typed<T: DeserializeOwned>(document: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(document).map_err(
        |error: serde_path_to_error::Error<serde_json::Error>| {
            let fault = Fault::of_json(&error.inner().to_string());
            bound(&fault.at(error.path(), Some(document)))
        },
    )
}

/// One line of bounded length.
fn bound(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").chars().take(MAX_MESSAGE).collect()
}

/// The value at a path, when it is there.
fn lookup<'v>(document: &'v Value, path: &Path) -> Option<&'v Value> {
    use serde_path_to_error::Segment;
    path.iter()
        .try_fold(document, |value, segment| match segment {
            Segment::Seq { index } => value.get(index),
            Segment::Map { key } => value.get(key),
            // The word itself is what is wrong.
            Segment::Enum { .. } => Some(value),
            Segment::Unknown => None,
        })
}

#[cfg(test)]
mod tests;
