//! Names of packages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rule, as messages quote it.
pub const NAME_RULE: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";

/// A name that follows [`NAME_RULE`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct PackageName(Box<str>);

impl PackageName {
    /// The name, if it follows the rule.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let fits = text.len() <= 64
            && bytes
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic())
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        fits.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PackageName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format_args!("the name does not follow {NAME_RULE}"))
        })
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::ops::Deref for PackageName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for PackageName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for PackageName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for PackageName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}
