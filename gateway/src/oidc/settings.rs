//! Whose tokens count, from a file. All faults are told in one message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jsonwebtoken::Algorithm;
use ramen_client::oauth::web;
use serde::Deserialize;
use url::Url;

/// Largest file.
const MAX_FILE: u64 = 1024 * 1024;
/// How far clocks may be apart when nothing is said.
const SKEW: u64 = 30;
/// How far they may be said to be.
const MAX_SKEW: u64 = 300;
/// What tokens may be signed with when nothing is said.
const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::RS256,
    Algorithm::PS256,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// What may be allowed besides. Secrets shared with an issuer, and no signature at all, are none of them.
const MORE: [Algorithm; 4] = [
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// Whose tokens count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where clients reach the gateway, without a slash at the end; a group's tokens are for
    /// `<public_url>/<namespace>/<group>/mcp`, or for all of it.
    pub public_url: String,
    /// The issuers.
    pub issuers: Vec<Issuer>,
    /// How far clocks may be apart.
    pub skew: Duration,
}

/// One issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuer {
    /// Its name, letter by letter as in its tokens.
    pub issuer: String,
    /// Other names of the gateway in `aud`.
    pub audiences: Vec<String>,
    /// What tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys are; absent: where its discovery document says.
    pub jwks_uri: Option<Url>,
    /// The claim that names the caller.
    pub subject_claim: String,
    /// The claim that names the caller's groups.
    pub groups_claim: String,
    /// What clients should ask for.
    pub scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    public_url: Option<String>,
    issuers: Vec<WrittenIssuer>,
    clock_skew_secs: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenIssuer {
    issuer: String,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    algorithms: Vec<String>,
    jwks_uri: Option<String>,
    subject_claim: Option<String>,
    groups_claim: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), faults.join("; "))]
pub struct SettingsError {
    path: PathBuf,
    faults: Vec<String>,
}

impl Settings {
    /// Reads a file. Where it names no `publicUrl` this one counts.
    pub(super) fn read(path: &Path, public_url: Option<&str>) -> Result<Self, SettingsError> {
        let failed = |faults| SettingsError {
            path: path.to_owned(),
            faults,
        };
        let text = std::fs::metadata(path).and_then(|meta| {
            if meta.len() > MAX_FILE {
                return Err(std::io::Error::other("larger than 1 MiB"));
            }
            std::fs::read_to_string(path)
        });
        let text = text.map_err(|error| failed(vec![error.to_string()]))?;
        Self::parse(&text, public_url).map_err(failed)
    }

    /// Judges the text of such a file.
    pub fn parse(text: &str, public_url: Option<&str>) -> Result<Self, Vec<String>> {
        let written: Written =
            serde_saphyr::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut faults = Vec::new();
        let public_url = written.public_url.as_deref().or(public_url);
        let public_url = public_url.unwrap_or_default().trim_end_matches('/');
        if address(public_url, false).is_none_or(|url| url.query().is_some()) {
            faults.push(
                "publicUrl: must be where clients reach the gateway, like https://mcp.example.com"
                    .to_owned(),
            );
        }
        let skew = written.clock_skew_secs.unwrap_or(SKEW);
        if skew > MAX_SKEW {
            faults.push(format!("clockSkewSecs: must be from 0 to {MAX_SKEW}"));
        }
        if written.issuers.is_empty() {
            faults.push("issuers: must name one".to_owned());
        }
        let mut issuers: Vec<Issuer> = Vec::new();
        for (n, written) in written.issuers.into_iter().enumerate() {
            let issuer = written.judge(&format!("issuers[{n}]"), &mut faults);
            if issuers.iter().any(|known| known.issuer == issuer.issuer) {
                faults.push(format!("issuers[{n}].issuer: is there twice"));
            }
            issuers.push(issuer);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self {
            public_url: public_url.to_owned(),
            issuers,
            skew: Duration::from_secs(skew),
        })
    }
}

impl Issuer {
    /// Whether the keys of both come from one place.
    pub(super) fn has_keys_of(&self, other: &Self) -> bool {
        self.issuer == other.issuer && self.jwks_uri == other.jwks_uri
    }
}

impl WrittenIssuer {
    fn judge(self, field: &str, faults: &mut Vec<String>) -> Issuer {
        if address(&self.issuer, true).is_none() {
            faults.push(format!(
                "{field}.issuer: must be an https address (http within this machine)"
            ));
        }
        let jwks_uri = self.jwks_uri.and_then(|text| {
            let url = address(&text, true);
            if url.is_none() {
                faults.push(format!(
                    "{field}.jwksUri: must be an https address (http within this machine)"
                ));
            }
            url
        });
        let mut algorithms = Vec::new();
        for name in &self.algorithms {
            let known = ALGORITHMS.iter().chain(&MORE);
            if let Some(algorithm) = known.clone().find(|known| format!("{known:?}") == *name) {
                algorithms.push(*algorithm);
            } else {
                let names: Vec<_> = known.map(|known| format!("{known:?}")).collect();
                faults.push(format!(
                    "{field}.algorithms: `{name}` is none of {}",
                    names.join(", ")
                ));
            }
        }
        if self.algorithms.is_empty() {
            algorithms.extend(ALGORITHMS);
        }
        for (name, list) in [("audiences", &self.audiences), ("scopes", &self.scopes)] {
            if list.iter().any(|entry| entry.trim().is_empty()) {
                faults.push(format!("{field}.{name}: an entry is empty"));
            }
        }
        if self.scopes.iter().any(|scope| !is_scope(scope)) {
            faults.push(format!(
                "{field}.scopes: a scope is one word of plain characters"
            ));
        }
        Issuer {
            issuer: self.issuer,
            audiences: self.audiences,
            algorithms,
            jwks_uri,
            subject_claim: self.subject_claim.unwrap_or_else(|| "sub".to_owned()),
            groups_claim: self.groups_claim.unwrap_or_else(|| "groups".to_owned()),
            scopes: self.scopes,
        }
    }
}

/// RFC 6749, 3.3.
fn is_scope(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// An address without credentials and fragment; keys and tokens travel over TLS, or within this machine.
fn address(text: &str, secret: bool) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let http = matches!(url.scheme(), "http" | "https") && text.is_ascii();
    (plain && http && url.has_host() && (!secret || web::trusted(&url))).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_safe_default() {
        let text = "publicUrl: https://mcp.example.com/\nissuers: [{issuer: 'https://login.example.com/realms/acme'}]\n";
        let settings = Settings::parse(text, None).unwrap();
        assert_eq!(settings.public_url, "https://mcp.example.com");
        assert_eq!(settings.skew, Duration::from_secs(30));
        let issuer = &settings.issuers[0];
        assert_eq!(issuer.algorithms, ALGORITHMS);
        assert_eq!(
            (issuer.subject_claim.as_str(), issuer.groups_claim.as_str()),
            ("sub", "groups")
        );
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = "clockSkewSecs: 3600\nissuers:\n- issuer: http://login.example.com\n  algorithms: [HS256, none, RS256]\n  jwksUri: ftp://x\n  scopes: ['a b']\n- issuer: http://login.example.com\n";
        let faults = Settings::parse(text, None).unwrap_err().join("\n");
        for part in [
            "publicUrl",
            "clockSkewSecs: must be from 0 to 300",
            "issuers[0].issuer: must be an https address",
            "`HS256` is none of RS256",
            "`none` is none of RS256",
            "issuers[0].jwksUri",
            "issuers[0].scopes",
            "issuers[1].issuer: is there twice",
        ] {
            assert!(faults.contains(part), "{part} in {faults}");
        }
        assert!(!faults.contains("`RS256` is none"), "{faults}");
    }

    #[test]
    fn a_field_that_is_not_known_is_a_fault() {
        let text = "issuers: [{issuer: 'https://a.example', audience: x}]\n";
        let faults = Settings::parse(text, Some("https://mcp.example.com")).unwrap_err();
        assert!(faults[0].contains("audience"), "{faults:?}");
    }
}
