//! Newtypes of single fields.

use std::fmt;
use std::time::Duration;

use crate::{MAX_GROUP_NAME, MAX_ZONE_NAME};

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_type! {
    /// A group's name: a DNS label that begins with a letter, without `--`, so that no two groups
    /// share the variables of their secrets and child names fit.
    GroupName
}
text_type! {
    /// A zone's name.
    ZoneName
}
text_type! {
    /// The name of a Secret.
    SecretName
}
text_type! {
    /// A folder within the repository: relative, clean, empty for the root.
    InnerPath
}
text_type! {
    /// `3.11` and later.
    PythonVersion
}

fn is_label(text: &str, letter_first: bool) -> bool {
    let bytes = text.as_bytes();
    let small = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            (if letter_first {
                first.is_ascii_lowercase()
            } else {
                small(first)
            }) && small(last)
                && bytes.iter().all(|b| small(b) || *b == b'-')
        }
        _ => false,
    }
}

impl GroupName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !is_label(text, true) || text.len() > MAX_GROUP_NAME {
            return Err(format!(
                "a group's name is a small letter, then small letters, digits and `-`, at most \
                 {MAX_GROUP_NAME} in all"
            ));
        }
        if text.contains("--") {
            return Err(
                "a group's name has no `--`: its secrets could be taken for those of another \
                        group"
                    .to_owned(),
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl ZoneName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !is_label(text, false) || text.len() > MAX_ZONE_NAME {
            return Err(format!(
                "a zone's name is made of small letters, digits and `-`, at most {MAX_ZONE_NAME}"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl SecretName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > 253 || !text.split('.').all(|label| is_label(label, false)) {
            return Err("not a name that an object can have".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl InnerPath {
    /// Parses a path; `.`, `./x/` and the empty path are fine, `..` and absolute paths are not.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Err(
                "the path starts at the root of the repository; leave the `/` away".to_owned(),
            );
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err("the path must not leave the repository".to_owned()),
                ".git" => return Err("the path must not lead into `.git`".to_owned()),
                part if part.chars().any(|c| c.is_control() || c == '\\') => {
                    return Err("the path has a control character or backslash in it".to_owned());
                }
                part => parts.push(part),
            }
        }
        Ok(Self(parts.join("/")))
    }
}

impl PythonVersion {
    /// Parses a version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let minor = text.strip_prefix("3.").filter(|minor| {
            (1..=2).contains(&minor.len())
                && minor.bytes().all(|b| b.is_ascii_digit())
                && !minor.starts_with('0')
        });
        match minor.and_then(|minor| minor.parse::<u8>().ok()) {
            Some(11..) => Ok(Self(text.to_owned())),
            Some(_) => Err("Python before 3.11 is not supported".to_owned()),
            None => Err("must be a Python version like 3.11, without the patch number".to_owned()),
        }
    }
}

/// A length of time as people write it: `30s`, `5m`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval(Duration);

impl Interval {
    /// Parses numbers with units `h`, `m`, `s` or `ms`, each unit once, the larger first.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || "must be a time like 30s, 5m or 1h30m".to_owned();
        let mut rest = text;
        let mut total = Duration::ZERO;
        let mut below = u64::MAX;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let letters = tail.bytes().take_while(u8::is_ascii_lowercase).count();
            let (unit, tail) = tail.split_at(letters);
            let millis: u64 = match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1000,
                "ms" => 1,
                _ => return Err(bad()),
            };
            let number: u64 = number.parse().map_err(|_| bad())?;
            let part = number.checked_mul(millis).ok_or_else(bad)?;
            if millis >= below {
                return Err(bad());
            }
            below = millis;
            total = total
                .checked_add(Duration::from_millis(part))
                .ok_or_else(bad)?;
            rest = tail;
        }
        if below == u64::MAX {
            return Err(bad());
        }
        Ok(Self(total))
    }

    /// The length of time.
    pub fn duration(self) -> Duration {
        self.0
    }
}
