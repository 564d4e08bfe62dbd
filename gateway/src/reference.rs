//! A random reference: the same in an answer and in the log line that says what happened.

use std::fmt;

/// Eight random bytes in hex.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reference(String);

impl Reference {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut bytes = [0_u8; 8];
        // Without randomness references repeat, which harms nobody.
        let _ = getrandom::fill(&mut bytes);
        Self(format!("{:016x}", u64::from_ne_bytes(bytes)))
    }

    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
