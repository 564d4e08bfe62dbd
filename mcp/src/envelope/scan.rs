//! What the fast path of the reader does not see: depth, lone surrogates, numbers beyond a double.
//!
//! Values are kept as raw text and never built, so nothing else would refuse these before they reach
//! code that is less careful. One pass over the bytes finds whether the text can hold any; only then
//! the slow walk runs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::MAX_DEPTH;
use crate::error::McpError;

/// No double has as many digits before the point.
const LONG_NUMBER: usize = 300;

/// Refuses what nests too deep, a lone surrogate and a number out of range.
pub(super) fn check(text: &str) -> Result<(), McpError> {
    if text.starts_with('\u{feff}') {
        return Err(McpError::parse("the message starts with a byte order mark"));
    }
    let found = look(text.as_bytes());
    if found.depth > MAX_DEPTH {
        return Err(McpError::parse("the message nests deeper than 127 levels"));
    }
    if found.doubtful {
        serde_json::from_str::<Walk>(text).map_err(|error| {
            McpError::parse(format!(
                "the message is not JSON that every peer reads alike (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
    }
    Ok(())
}

struct Found {
    depth: usize,
    doubtful: bool,
}

fn look(bytes: &[u8]) -> Found {
    let (mut depth, mut deepest, mut doubtful) = (0_usize, 0, false);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(bytes, at, &mut doubtful),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'0'..=b'9' => {
                let start = at;
                while bytes
                    .get(at)
                    .is_some_and(|b| b.is_ascii_digit() || *b == b'.')
                {
                    at += 1;
                }
                let exponent = matches!(bytes.get(at), Some(b'e' | b'E'));
                doubtful |= exponent || at - start > LONG_NUMBER;
            }
            _ => {}
        }
    }
    Found {
        depth: deepest,
        doubtful,
    }
}

/// Where the string that began before `at` ends; notes `\ud8..` escapes on the way.
fn string_end(bytes: &[u8], mut at: usize, doubtful: &mut bool) -> usize {
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => {
                *doubtful |= matches!(bytes.get(at..at + 2), Some([b'u', b'd' | b'D']));
                at += 1;
            }
            _ => {}
        }
    }
    at
}

/// Reads everything and keeps nothing, with all checks of the reader.
struct Walk;

impl<'de> Deserialize<'de> for Walk {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        // Keys as strings with all checks, not `IgnoredAny`, which skips surrogate pairs.
        while map.next_key::<StrictKey>()?.is_some() {
            map.next_value::<Self>()?;
        }
        Ok(self)
    }
}

struct StrictKey;

impl<'de> Deserialize<'de> for StrictKey {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_str(Walk).map(|_| Self)
    }
}
