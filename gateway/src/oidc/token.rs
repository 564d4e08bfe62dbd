//! One token: what it says of itself, and who bears it once that is proven.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, dangerous, decode, decode_header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ramen_group::Identity;
use ramen_group::access::claim;
use ramen_redact::KeyDigest;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::Known;
use super::settings::Issuer;

/// Keys that are tried for a token that names none.
const MAX_TRIES: usize = 8;
/// Groups of one token that are looked at.
const MAX_GROUPS: usize = 1000;
/// Characters of a subject that a log line shows.
const MAX_SHOWN: usize = 96;
/// What stays readable of a subject in a log line.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'@')
    .remove(b'|')
    .remove(b':');

/// What a token says before anything of it is proven.
pub(super) struct Shown {
    pub(super) issuer: String,
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
}

#[derive(Deserialize)]
struct Issued {
    iss: String,
}

impl Shown {
    /// `None`: it is no token of the kind that opens anything, whoever signed it.
    pub(super) fn read(token: &[u8]) -> Option<Self> {
        let header = decode_header(token).ok()?;
        let kind = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
        let kind = kind.strip_prefix("application/").unwrap_or(&kind);
        if !matches!(kind, "jwt" | "at+jwt") {
            return None;
        }
        let issued: Issued = dangerous::insecure_decode_claims(token).ok()?;
        Some(Self {
            issuer: issued.iss,
            algorithm: header.alg,
            kid: header.kid,
        })
    }
}

/// Who bears a token that was verified.
#[derive(Debug)]
pub struct Bearer {
    /// Of whom it speaks.
    pub identity: Identity,
    /// Names the caller in logs, limits and to workers: the same for all tokens of one subject.
    pub id: Arc<str>,
    /// What it is for.
    pub(super) audiences: Vec<String>,
    /// When it ends, skew included.
    expires: SystemTime,
    /// The key that proved it; gone when the issuer takes it back.
    key: Weak<Known>,
}

impl Bearer {
    /// Whether it is not over yet and its key is still one of the issuer's.
    pub fn is_valid(&self) -> bool {
        SystemTime::now() < self.expires && self.key.strong_count() > 0
    }

    /// One of nobody in particular.
    #[cfg(test)]
    pub(super) fn until(expires: SystemTime, key: &Arc<Known>) -> Arc<Self> {
        Arc::new(Self {
            identity: Identity::default(),
            id: "oidc:".into(),
            audiences: Vec::new(),
            expires,
            key: Arc::downgrade(key),
        })
    }

    /// How long it goes on at most.
    pub fn left(&self) -> Duration {
        self.expires
            .duration_since(SystemTime::now())
            .unwrap_or_default()
    }
}

/// Why a token proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unproven {
    /// None of the keys signed it.
    Unsigned,
    /// It is over, or says what no good one says.
    Claims,
}

/// Verifies a token with one of these keys.
pub(super) fn verify(
    token: &[u8],
    shown: &Shown,
    issuer: &Issuer,
    keys: &[Arc<Known>],
    skew: Duration,
) -> Result<Bearer, Unproven> {
    let mut validation = Validation::new(shown.algorithm);
    validation.leeway = skew.as_secs();
    validation.validate_nbf = true;
    // Which audience is right depends on the group: it is judged for each request.
    validation.validate_aud = false;
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(&[&issuer.issuer]);
    for key in keys.iter().take(MAX_TRIES) {
        match decode::<Map<String, Value>>(token, &key.key, &validation) {
            Ok(proven) => {
                return bearer(proven.claims, key, issuer, skew).ok_or(Unproven::Claims);
            }
            Err(error) if is_about_the_key(error.kind()) => {}
            Err(_) => return Err(Unproven::Claims),
        }
    }
    Err(Unproven::Unsigned)
}

/// Another key may have signed it.
fn is_about_the_key(error: &ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::InvalidSignature
            | ErrorKind::InvalidKeyFormat
            | ErrorKind::InvalidAlgorithm
            | ErrorKind::UnsupportedAlgorithm
    )
}

/// Who bears a token that this key proved.
fn bearer(
    claims: Map<String, Value>,
    key: &Arc<Known>,
    issuer: &Issuer,
    skew: Duration,
) -> Option<Bearer> {
    let expires = claims.get("exp")?.as_f64().filter(|at| *at >= 0.0)?;
    let expires = Duration::try_from_secs_f64(expires)
        .ok()?
        .checked_add(skew)?;
    let subject = claim(&claims, &issuer.subject_claim)?.as_str()?.to_owned();
    // An address that the issuer did not check proves nothing.
    let unchecked = claims
        .get("email_verified")
        .is_some_and(|value| *value != true);
    if subject.is_empty() || (issuer.subject_claim == "email" && unchecked) {
        return None;
    }
    let groups = texts(claim(&claims, &issuer.groups_claim), MAX_GROUPS);
    Some(Bearer {
        id: caller_id(&issuer.issuer, &subject).into(),
        audiences: texts(claims.get("aud"), MAX_GROUPS),
        expires: UNIX_EPOCH.checked_add(expires)?,
        key: Arc::downgrade(key),
        identity: Identity {
            issuer: issuer.issuer.clone(),
            subject,
            groups,
            claims,
        },
    })
}

/// A text or a list of texts.
fn texts(value: Option<&Value>, most: usize) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(values)) => {
            let values = values.iter().filter_map(Value::as_str).take(most);
            values.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// The same for the same subject of the same issuer, another for every other, and of plain characters.
fn caller_id(issuer: &str, subject: &str) -> String {
    let print = KeyDigest::of(format!("{issuer}\0{subject}")).fingerprint();
    let shown: String = utf8_percent_encode(subject, PLAIN)
        .to_string()
        .chars()
        .take(MAX_SHOWN)
        .collect();
    format!("oidc:{print}:{shown}")
}
