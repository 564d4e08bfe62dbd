//! The protocol revisions we serve.

use std::fmt;

/// A protocol revision, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 2024-11-05.
    V2024_11_05,
    /// 2025-03-26.
    V2025_03_26,
    /// 2025-06-18.
    V2025_06_18,
    /// 2025-11-25, the newest with an `initialize` handshake.
    V2025_11_25,
    /// 2026-07-28, without a handshake.
    V2026_07_28,
}

/// Every revision we serve, oldest first. `initialize` negotiates among the legacy ones.
pub const SUPPORTED: [Version; 5] = [
    Version::V2024_11_05,
    Version::V2025_03_26,
    Version::V2025_06_18,
    Version::V2025_11_25,
    Version::V2026_07_28,
];

/// The newest revision with a handshake: the answer to an unknown version in `initialize`.
pub const NEWEST_LEGACY: Version = Version::V2025_11_25;

/// The newest revision of all.
pub const NEWEST: Version = Version::V2026_07_28;

impl Version {
    /// The date that names the revision on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The revision with this name, when we serve it.
    pub fn parse(text: &str) -> Option<Self> {
        SUPPORTED
            .into_iter()
            .find(|version| version.as_str() == text)
    }

    /// Whether requests of this revision carry their own metadata instead of a handshake.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// What `initialize` answers to the version a client asked for: the same when we serve it and it
    /// has a handshake, else the newest that has one. Never an error.
    pub fn negotiate(asked: Option<&str>) -> Self {
        asked
            .and_then(Self::parse)
            .filter(|version| !version.is_modern())
            .unwrap_or(NEWEST_LEGACY)
    }

    /// The modern revisions we serve: `supportedVersions` of `server/discover` and `supported` of
    /// the unsupported-version error.
    pub fn modern() -> impl Iterator<Item = Self> {
        SUPPORTED.into_iter().filter(|version| version.is_modern())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
