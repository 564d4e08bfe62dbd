//! The file of tokens: for its owner alone, replaced as a whole.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ramen_redact::Secret;
use serde::{Deserialize, Serialize};
use url::Url;

use super::register::{Identity, Proof};
use crate::replace::{self, Change};

/// Largest file that is read.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// How long another program may renew tokens before that is not waited for.
const TURN: Duration = Duration::from_secs(30);
/// Seconds before its end at which a token counts as over.
const MARGIN: u64 = 30;

/// What a sign-in gave.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    /// In seconds since 1970.
    pub(super) expires: Option<u64>,
    pub(super) scope: Option<String>,
    pub(super) issuer: String,
    pub(super) token_endpoint: Url,
    pub(super) resource: String,
    pub(super) identity: Identity,
}

impl Tokens {
    pub(super) fn expired(&self) -> bool {
        self.expires.is_some_and(|end| end <= now() + MARGIN)
    }
}

pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// As it is written: `Secret` itself never writes its value.
#[derive(Serialize, Deserialize)]
struct Written {
    access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    issuer: String,
    token_endpoint: Url,
    resource: String,
    client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    client_proof: Proof,
}

/// The file.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
}

impl Store {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn get(&self, server: &Url) -> Option<Tokens> {
        let mut all = self.read().unwrap_or_else(|error| {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the file of sign-ins cannot be read");
            BTreeMap::new()
        });
        let written = all.remove(&key(server))?;
        Some(Tokens {
            access: written.access_token.into(),
            refresh: written.refresh_token.map(Secret::from),
            expires: written.expires_at,
            scope: written.scope,
            issuer: written.issuer,
            token_endpoint: written.token_endpoint,
            resource: written.resource,
            identity: Identity {
                id: written.client_id,
                secret: written.client_secret.map(Secret::from),
                proof: written.client_proof,
            },
        })
    }

    /// A turn at renewing tokens, while the result lives: a refresh token may be used once, and several programs of one
    /// person keep theirs in this file. Without one after some time it is tried all the same.
    pub(super) async fn turn(&self) -> Option<std::fs::File> {
        replace::turn(&self.path, TURN).await
    }

    pub(super) fn put(&self, server: &Url, tokens: &Tokens) -> io::Result<()> {
        let file = Change::begin(&self.path)?;
        // A file that cannot be read may be whole: it is not replaced by one with this sign-in alone.
        let mut all = self.read()?;
        let plain = |secret: &Secret| secret.expose().clone();
        all.insert(
            key(server),
            Written {
                access_token: plain(&tokens.access),
                refresh_token: tokens.refresh.as_ref().map(plain),
                expires_at: tokens.expires,
                scope: tokens.scope.clone(),
                issuer: tokens.issuer.clone(),
                token_endpoint: tokens.token_endpoint.clone(),
                resource: tokens.resource.clone(),
                client_id: tokens.identity.id.clone(),
                client_secret: tokens.identity.secret.as_ref().map(plain),
                client_proof: tokens.identity.proof,
            },
        );
        file.replace(|out| Ok(serde_json::to_writer_pretty(out, &all)?))
    }

    /// What is kept; nothing when there is no file, or a torn one.
    fn read(&self) -> io::Result<BTreeMap<String, Written>> {
        let mut text = String::new();
        let read = std::fs::File::open(&self.path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(serde_json::from_str(&text).unwrap_or_else(|_| {
            // Its error might show a token.
            let path = self.path.display();
            tracing::warn!(%path, "the file of sign-ins is torn and ignored");
            BTreeMap::new()
        }))
    }
}

/// A server without what does not belong to its identity.
pub(super) fn key(server: &Url) -> String {
    let mut server = server.clone();
    let _ = server.set_username("");
    let _ = server.set_password(None);
    server.set_fragment(None);
    server.into()
}
