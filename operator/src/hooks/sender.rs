//! Who sends hooks, and how each of them proves it. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use http::HeaderMap;
use ramen_redact::Secret;
use sha2::{Digest as _, Sha256, Sha512};
use subtle::ConstantTimeEq as _;

use crate::inbound::single;

/// How far the time of a signed hook may be off, either way.
const WINDOW: u64 = 300;

/// The kinds of senders. The name is the ending of a receiver's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sender {
    GitHub,
    GitLab,
    Gitea,
    Forgejo,
    Bitbucket,
    AzureDevOps,
    Generic,
}

/// Why a hook is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// No signature, or not in the form of this sender.
    Unsigned,
    /// It does not fit any of the secrets.
    Wrong,
    /// It was signed at another time.
    Stale,
}

impl Doubt {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unsigned => "no signature",
            Self::Wrong => "the signature does not fit",
            Self::Stale => "signed too long ago, or in the future",
        }
    }
}

impl Sender {
    pub(super) const ALL: [Self; 7] = [
        Self::GitHub,
        Self::GitLab,
        Self::Gitea,
        Self::Forgejo,
        Self::Bitbucket,
        Self::AzureDevOps,
        Self::Generic,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
            Self::Bitbucket => "bitbucket",
            Self::AzureDevOps => "azure",
            Self::Generic => "generic",
        }
    }

    /// Whether one of the secrets signed this body. `now` is in seconds since 1970.
    pub(super) fn verify(
        self,
        headers: &HeaderMap,
        body: &[u8],
        secrets: &[Secret],
        now: u64,
    ) -> Result<(), Doubt> {
        let get = |name: &str| single(headers, name);
        match self {
            // The SHA-1 header beside it is never looked at.
            Self::GitHub => prefixed(get("x-hub-signature-256"), body, secrets),
            // The name is that of GitHub's SHA-1 header; the value is SHA-256.
            Self::Bitbucket => prefixed(get("x-hub-signature"), body, secrets),
            // Its own header alone decides: a bad one is not rescued by another.
            Self::Forgejo if headers.contains_key("x-forgejo-signature") => {
                bare(get("x-forgejo-signature"), body, secrets)
            }
            Self::Gitea | Self::Forgejo => bare(get("x-gitea-signature"), body, secrets),
            Self::GitLab if headers.contains_key("webhook-signature") => {
                standard(headers, body, secrets, now)
            }
            Self::GitLab => {
                let token = get("x-gitlab-token").ok_or(Doubt::Unsigned)?;
                any(secrets, |secret| same(secret.expose(), token))
            }
            Self::AzureDevOps => {
                let basic = get("authorization").ok_or(Doubt::Unsigned)?;
                let (scheme, value) = basic.split_once(' ').ok_or(Doubt::Unsigned)?;
                if !scheme.eq_ignore_ascii_case("basic") {
                    return Err(Doubt::Unsigned);
                }
                let pair = STANDARD.decode(value.trim()).map_err(|_| Doubt::Unsigned)?;
                let colon = pair.iter().position(|b| *b == b':');
                let password = &pair[colon.ok_or(Doubt::Unsigned)? + 1..];
                // A secret is `user:password`, or the password alone.
                any(secrets, |secret| {
                    let secret = secret.expose();
                    let wanted: &[u8] = if secret.contains(':') {
                        &pair
                    } else {
                        password
                    };
                    same(secret, wanted)
                })
            }
            Self::Generic => generic(headers, body, secrets, now),
        }
    }

    /// The id of a delivery, for logs and against replays.
    pub(super) fn delivery(self, headers: &HeaderMap) -> Option<&str> {
        let names: &[&str] = match self {
            Self::GitHub => &["x-github-delivery"],
            Self::GitLab => &["webhook-id", "idempotency-key", "x-gitlab-event-uuid"],
            Self::Gitea => &["x-gitea-delivery"],
            Self::Forgejo => &["x-forgejo-delivery", "x-gitea-delivery"],
            Self::Bitbucket => &["x-request-uuid", "x-request-id"],
            Self::AzureDevOps => &["x-vss-activityid"],
            Self::Generic => &["x-delivery"],
        };
        let found = names.iter().find_map(|name| single(headers, name))?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (!found.is_empty() && found.len() <= 128 && found.bytes().all(plain)).then_some(found)
    }
}

/// `sha256=<hex>`.
fn prefixed(header: Option<&str>, body: &[u8], secrets: &[Secret]) -> Result<(), Doubt> {
    let hex = header.and_then(|text| text.strip_prefix("sha256="));
    bare(hex, body, secrets)
}

/// `<hex>` of HMAC-SHA256.
fn bare(hex: Option<&str>, body: &[u8], secrets: &[Secret]) -> Result<(), Doubt> {
    let mac = decoded(hex)?;
    any(secrets, |secret| {
        signed::<Hmac<Sha256>>(secret.expose().as_bytes(), &[body], &mac)
    })
}

/// Standard Webhooks: `v1,<base64>` of `id.timestamp.body`; several, separated by spaces.
fn standard(headers: &HeaderMap, body: &[u8], secrets: &[Secret], now: u64) -> Result<(), Doubt> {
    let get = |name| single(headers, name).ok_or(Doubt::Unsigned);
    let (signatures, id, time) = (
        get("webhook-signature")?,
        get("webhook-id")?,
        get("webhook-timestamp")?,
    );
    let macs: Vec<Vec<u8>> = signatures
        .split_ascii_whitespace()
        .take(8)
        .filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
        .collect();
    if macs.is_empty() {
        return Err(Doubt::Unsigned);
    }
    let parts: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    any(secrets, |secret| {
        let key = standard_key(secret.expose());
        // All are tried, so that the time says nothing.
        macs.iter().fold(false, |found, mac| {
            found | signed::<Hmac<Sha256>>(&key, &parts, mac)
        })
    })?;
    fresh(time, now)
}

/// `whsec_<base64>`, or the bytes as they are.
fn standard_key(secret: &str) -> Vec<u8> {
    secret
        .strip_prefix("whsec_")
        .and_then(|text| STANDARD.decode(text).ok())
        .unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// `X-Signature: sha256=<hex>` or `sha512=<hex>`; with `X-Timestamp` over `timestamp.body`.
fn generic(headers: &HeaderMap, body: &[u8], secrets: &[Secret], now: u64) -> Result<(), Doubt> {
    let text = single(headers, "x-signature").ok_or(Doubt::Unsigned)?;
    let (kind, hex) = text.split_once('=').ok_or(Doubt::Unsigned)?;
    let mac = decoded(Some(hex))?;
    let time = headers
        .contains_key("x-timestamp")
        .then(|| single(headers, "x-timestamp").ok_or(Doubt::Unsigned))
        .transpose()?;
    let parts: Vec<&[u8]> = match time {
        Some(time) => vec![time.as_bytes(), b".", body],
        None => vec![body],
    };
    any(secrets, |secret| {
        let key = secret.expose().as_bytes();
        match kind {
            "sha256" => signed::<Hmac<Sha256>>(key, &parts, &mac),
            "sha512" => signed::<Hmac<Sha512>>(key, &parts, &mac),
            _ => false,
        }
    })?;
    time.map_or(Ok(()), |time| fresh(time, now))
}

fn decoded(hex: Option<&str>) -> Result<Vec<u8>, Doubt> {
    let hex = hex.filter(|hex| !hex.is_empty()).ok_or(Doubt::Unsigned)?;
    hex::decode(hex).map_err(|_| Doubt::Unsigned)
}

/// In constant time for each secret.
fn signed<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]], mac: &[u8]) -> bool {
    let Ok(mut expected) = <M as hmac::Mac>::new_from_slice(key) else {
        return false;
    };
    for part in parts {
        expected.update(part);
    }
    expected.verify_slice(mac).is_ok()
}

/// Whether two secrets are the same; the time tells not even their lengths.
fn same(secret: impl AsRef<[u8]>, given: impl AsRef<[u8]>) -> bool {
    let (secret, given) = (Sha256::digest(secret), Sha256::digest(given));
    bool::from(secret.ct_eq(&given))
}

/// All secrets are tried, so that the time does not tell which one it is.
fn any(secrets: &[Secret], fits: impl Fn(&Secret) -> bool) -> Result<(), Doubt> {
    let found = secrets
        .iter()
        .filter(|secret| !secret.expose().is_empty())
        .fold(false, |found, secret| found | fits(secret));
    if found { Ok(()) } else { Err(Doubt::Wrong) }
}

fn fresh(time: &str, now: u64) -> Result<(), Doubt> {
    let time: u64 = time.parse().map_err(|_| Doubt::Stale)?;
    if now.abs_diff(time) <= WINDOW {
        Ok(())
    } else {
        Err(Doubt::Stale)
    }
}
