//! Picks named members out of a JSON object in one pass, values as raw text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The named members of an object: JSON text of each, and whether one came twice.
#[derive(Debug)]
pub(crate) struct Members<'a, const N: usize> {
    values: [Option<&'a str>; N],
    repeated: u32,
}

impl<const N: usize> Default for Members<'_, N> {
    fn default() -> Self {
        Self {
            values: [None; N],
            repeated: 0,
        }
    }
}

impl<'a, const N: usize> Members<'a, N> {
    /// The JSON text of the member.
    pub(crate) fn get(&self, index: usize) -> Option<&'a str> {
        self.values[index]
    }

    /// The first of the names that came more than once.
    pub(crate) fn repeated(&self) -> Option<usize> {
        (self.repeated != 0).then(|| self.repeated.trailing_zeros() as usize)
    }

    /// Whether this one came more than once.
    pub(crate) fn has_repeated(&self, index: usize) -> bool {
        self.repeated & (1 << index) != 0
    }
}

/// Reads the object in `text`, which must hold nothing else.
pub(crate) fn members<'a, const N: usize>(
    text: &'a str,
    names: &[&str; N],
) -> Result<Members<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = Picker(names).deserialize(&mut reader)?;
    reader.end()?;
    Ok(found)
}

/// Every member of the object in `text`, in order, repeated ones too.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, &str)>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let found = reader.deserialize_map(Pairs)?;
    reader.end()?;
    Ok(found)
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            found.push((name, value.get()));
        }
        Ok(found)
    }
}

/// The string that a JSON token stands for; `None` when it is no string.
pub fn text(token: &str) -> Option<Cow<'_, str>> {
    let inner = token.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(token).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

struct Picker<'n, const N: usize>(&'n [&'n str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Picker<'_, N> {
    type Value = Members<'de, N>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Picker<'_, N> {
    type Value = Members<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Members::default();
        while let Some(index) = map.next_key_seed(Key(self.0))? {
            match index {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(index) => {
                    let value: &'de RawValue = map.next_value()?;
                    if found.values[index].replace(value.get()).is_some() {
                        found.repeated |= 1 << index;
                    }
                }
            }
        }
        Ok(found)
    }
}

struct Key<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| *known == name))
    }
}
