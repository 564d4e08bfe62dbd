//! What MCP clients are told so that they can sign in: the challenge of a refusal, and the description that it points to
//! (RFC 9728). Both say the same of a group that is there and of one that is not.

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::{Oidc, Settings};
use crate::answer::{self, Answer, Refusal};

/// Where the description of the resource at a path is: this, then the path.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

impl Oidc {
    /// The answer to a refusal at `path`, with where to go from here when another token may open it.
    pub(crate) fn refuse(&self, refusal: Refusal, path: &str, presented: bool) -> Answer {
        self.challenged(refusal.answer(), path, presented)
    }

    /// An answer at `path`; one that refuses the credential, or a token that is not enough, says where to go from here.
    /// What a key may do no issuer can change.
    pub(crate) fn challenged(&self, mut answer: Answer, path: &str, presented: bool) -> Answer {
        let error = match answer.extensions().get::<Refusal>() {
            Some(Refusal::Credential) => presented.then_some("invalid_token"),
            Some(Refusal::Insufficient) => Some("insufficient_scope"),
            _ => return answer,
        };
        let mut parts = vec!["Bearer realm=\"ramen\"".to_owned()];
        if let Some(error) = error {
            parts.push(format!("error=\"{error}\""));
        }
        let trust = self.trust();
        let scopes = scopes(&trust.settings);
        if !scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", scopes.join(" ")));
        }
        let base = &trust.settings.public_url;
        parts.push(format!("resource_metadata=\"{base}{WELL_KNOWN}{path}\""));
        if let Ok(value) = HeaderValue::from_str(&parts.join(", ")) {
            answer.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        answer
    }

    /// The description of the resource at `path`; the empty path is the gateway as a whole.
    pub(crate) fn describe(&self, path: &str) -> Answer {
        let trust = self.trust();
        let settings = &trust.settings;
        let base = &settings.public_url;
        let issuers = settings.issuers.iter();
        let issuers: Vec<_> = issuers.map(|issuer| issuer.issuer.as_str()).collect();
        let mut document = json!({
            "resource": format!("{base}{path}"),
            "resource_name": "Ramen",
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
        });
        let scopes = scopes(settings);
        if !scopes.is_empty() {
            document["scopes_supported"] = json!(scopes);
        }
        answer::json(StatusCode::OK, Bytes::from(document.to_string()))
    }
}

fn scopes(settings: &Settings) -> Vec<&str> {
    let mut scopes: Vec<&str> = Vec::new();
    for scope in settings.issuers.iter().flat_map(|issuer| &issuer.scopes) {
        if !scopes.contains(&scope.as_str()) {
            scopes.push(scope);
        }
    }
    scopes
}
