//! `WWW-Authenticate`, as far as it tells how to sign in.

use url::Url;

/// What a refusal says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Where the server describes itself.
    pub(super) metadata: Option<Url>,
    /// What rights are needed.
    pub(super) scope: Option<String>,
}

impl Challenge {
    /// Reads `Bearer name="value", name=value`. What cannot be read is as if it were not there.
    pub(super) fn read(header: &str) -> Self {
        let mut challenge = Self::default();
        let Some(at) = header.to_ascii_lowercase().find("bearer") else {
            return challenge;
        };
        let mut rest = &header[at + "bearer".len()..];
        while let Some((name, after)) = rest.split_once('=') {
            let name = name.trim_start_matches([' ', ',', '\t']).trim();
            let (value, next) = value(after.trim_start());
            match name {
                "resource_metadata" => challenge.metadata = Url::parse(&value).ok(),
                "scope" if !value.is_empty() => challenge.scope = Some(value),
                _ => {}
            }
            rest = next;
        }
        challenge
    }
}

/// A token or a quoted string, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut out = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (out, &quoted[at + 1..]),
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_however_it_is_written() {
        let url = || Url::parse("https://h/.well-known/x").ok();
        for (header, metadata, scope) in [
            ("", None, None),
            ("Basic realm=\"x\"", None, None),
            (
                "Bearer realm=\"a, b=c\", resource_metadata=\"https://h/.well-known/x\", scope=\"a b\"",
                url(),
                Some("a b"),
            ),
            (
                "bearer scope=one,resource_metadata=https://h/.well-known/x",
                url(),
                Some("one"),
            ),
            (
                "Bearer error=\"insufficient_scope\", scope=\"\\\"q\\\"\"",
                None,
                Some("\"q\""),
            ),
            (
                "Bearer resource_metadata=\"not a url\", scope=\"",
                None,
                None,
            ),
        ] {
            let read = Challenge::read(header);
            assert_eq!(read.metadata, metadata, "{header}");
            assert_eq!(read.scope.as_deref(), scope, "{header}");
        }
    }
}
