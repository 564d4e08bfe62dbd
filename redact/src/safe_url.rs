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

/// Shorter passwords are not looked for outside their URL: they would hit innocent text too often.
const MIN_PASSWORD: usize = 4;

/// The passwords of the URLs in a text, as they are written and as they are sent, for a [`crate::Redactor`].
pub fn passwords(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for url in text.split("://").skip(1) {
        let authority = url.split(ends_authority).next().unwrap_or_default();
        let credentials = authority.rsplit_once('@').map(|(before, _)| before);
        let Some((_, written)) = credentials.and_then(|before| before.split_once(':')) else {
            continue;
        };
        let sent = percent_encoding::percent_decode_str(written).decode_utf8_lossy();
        if sent != written {
            found.push(sent.into_owned());
        }
        found.push(written.to_owned());
    }
    found.retain(|password| password.chars().count() >= MIN_PASSWORD);
    found
}

fn ends_authority(one: char) -> bool {
    one.is_whitespace() || matches!(one, '/' | '?' | '#')
}

/// Masks the credentials of every URL inside a text: `https://user:pass@host` becomes
/// `https://***@host`, `?token=abc` becomes `?token=***`. For messages of programs that quote URLs.
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(found) = rest.find("://") {
        let (before, after) = rest.split_at(found + 3);
        let end = after.find(ends_url).unwrap_or(after.len());
        let (url, next) = after.split_at(end);
        out.push_str(before);
        mask_one(url, &mut out);
        rest = next;
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn ends_url(char: char) -> bool {
    char.is_whitespace() || matches!(char, '"' | '\'' | '<' | '>' | '`')
}

/// What follows `://`, up to the end of the URL.
fn mask_one(url: &str, out: &mut String) {
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    // A password that nobody encoded may hold a slash, so the last `@` before the query counts.
    let query = url.find('?').unwrap_or(url.len());
    let at = url[..authority].rfind('@').or_else(|| {
        url[..query]
            .rfind('@')
            .filter(|at| url[..*at].contains(':') && !host_like(&url[..authority]))
    });
    let rest = match at {
        Some(at) => {
            out.push_str(MARKER);
            &url[at..]
        }
        None => url,
    };
    match rest.split_once('?') {
        Some((path, query)) => {
            out.push_str(path);
            out.push('?');
            out.push_str(&mask_query(query));
        }
        None => out.push_str(rest),
    }
}

/// Whether this reads as `host` or `host:port`, so that an `@` behind it belongs to the path.
fn host_like(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        None => true,
        Some((_, port)) => {
            port.bytes().all(|byte| byte.is_ascii_digit()) || authority.ends_with(']')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_credentials() {
        for (url, shown) in [
            (
                "https://user:pa%40ss@git.example/x.git",
                "https://***@git.example/x.git",
            ),
            (
                "https://ghp_token@git.example/x.git",
                "https://***@git.example/x.git",
            ),
            ("https://:pass@git.example/", "https://***@git.example/"),
            (
                "https://git.example/x?ref=main&access_token=abc",
                "https://git.example/x?ref=main&access_token=***",
            ),
            (
                "https://s3.example/?X-Amz-Signature=ab&X-Amz-Cred%65ntial=cd",
                "https://s3.example/?X-Amz-Signature=***&X-Amz-Cred%65ntial=***",
            ),
            (
                "https://git.example:8443/a?b=c#d",
                "https://git.example:8443/a?b=c#d",
            ),
            ("ssh://git@git.example/x.git", "ssh://***@git.example/x.git"),
        ] {
            let url = SafeUrl::parse(url).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
            assert_eq!(serde_json::to_string(&url).unwrap(), format!("{shown:?}"));
            assert_eq!(
                SafeUrl::parse(shown).unwrap().to_string(),
                shown,
                "shown twice"
            );
        }
    }

    #[test]
    fn the_url_itself_is_still_there_for_who_needs_it() {
        let url: SafeUrl = "https://user:pass@git.example/x".parse().unwrap();
        assert_eq!(url.expose().password(), Some("pass"));
        assert_eq!(
            url.without_credentials().expose().as_str(),
            "https://git.example/x"
        );
    }

    #[test]
    fn a_bad_url_is_not_quoted_in_the_error() {
        let error = SafeUrl::parse("https://user:hunter2@[")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn urls_inside_a_text_lose_their_credentials() {
        for (text, shown) in [
            (
                "fatal: https://u:p@h/x and ssh://k@h2/y.",
                "fatal: https://***@h/x and ssh://***@h2/y.",
            ),
            ("'https://u:p/q@h/x' failed", "'https://***@h/x' failed"),
            (
                "see https://h/@scope/pkg?token=abc",
                "see https://h/@scope/pkg?token=***",
            ),
            ("see https://h:80/@scope/pkg", "see https://h:80/@scope/pkg"),
        ] {
            assert_eq!(mask_urls(text), shown);
        }
        assert!(matches!(mask_urls("no url, mail a@b"), Cow::Borrowed(_)));
    }

    #[test]
    fn the_password_of_an_address_is_found_as_written_and_as_sent() {
        let cases: [(&str, &[&str]); 8] = [
            (
                "http://user:hunter%212@proxy:3128",
                &["hunter!2", "hunter%212"],
            ),
            ("socks5h://:a@b:c1@proxy/", &["a@b:c1"]),
            ("redis://:first@a,redis://:second@b/0", &["first", "second"]),
            ("http://user:abc@proxy", &[]),
            ("http://proxy:3128/a:bcde@f", &[]),
            ("mailto:team@corp.test", &[]),
            ("localhost,127.0.0.1", &[]),
            ("", &[]),
        ];
        for (address, found) in cases {
            assert_eq!(passwords(address), found, "{address}");
        }
    }
}
