//! Who we are to an authorization server.

use ramen_redact::Secret;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Registered;
use super::metadata::Authority;
use super::web::post_json;

/// How a client proves to the token endpoint who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Proof {
    /// Not at all: it has no secret, PKCE binds the code to it.
    None,
    /// In a header.
    ClientSecretBasic,
    /// In the form.
    ClientSecretPost,
}

/// A client of one authorization server.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) proof: Proof,
}

#[derive(Deserialize)]
struct Answer {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

/// The identity to use: a given one, a document that describes us, or one that is registered now.
pub(super) async fn identity(
    authority: &Authority,
    client: &Registered,
    redirect: &str,
    scope: Option<&str>,
) -> Result<Identity, String> {
    let methods = authority.token_endpoint_auth_methods_supported.as_deref();
    if let Some(id) = &client.id {
        return Ok(Identity {
            id: id.clone(),
            secret: client.secret.clone(),
            proof: proof(None, client.secret.is_some(), methods),
        });
    }
    if authority.client_id_metadata_document_supported
        && let Some(document) = &client.document
    {
        return Ok(Identity {
            id: document.to_string(),
            secret: None,
            proof: Proof::None,
        });
    }
    let Some(endpoint) = &authority.registration_endpoint else {
        return Err(format!(
            "{} registers no clients by itself: a client id is needed",
            authority.issuer
        ));
    };
    // What it can: without a secret where that is allowed, since a program on a person's machine keeps none.
    let wanted = match methods {
        Some(methods) if !methods.iter().any(|method| method == "none") => {
            methods.first().map_or("none", String::as_str)
        }
        _ => "none",
    };
    let mut document = json!({
        "client_name": "ramen",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
    });
    if let Some(scope) = scope {
        document["scope"] = json!(scope);
    }
    let answer: Answer = post_json(endpoint, &document).await?;
    let has_secret = answer.client_secret.is_some();
    Ok(Identity {
        id: answer.client_id,
        secret: answer.client_secret.map(Secret::from),
        proof: proof(
            answer.token_endpoint_auth_method.as_deref(),
            has_secret,
            methods,
        ),
    })
}

/// What the registration says, else what goes with a secret and what the server supports (RFC 8414: basic by default).
fn proof(registered: Option<&str>, secret: bool, supported: Option<&[String]>) -> Proof {
    match registered {
        _ if !secret => return Proof::None,
        Some("client_secret_post") => return Proof::ClientSecretPost,
        Some("client_secret_basic") => return Proof::ClientSecretBasic,
        _ => {}
    }
    let supports = |method: &str| supported.is_some_and(|all| all.iter().any(|m| m == method));
    if supports("client_secret_post") && !supports("client_secret_basic") {
        Proof::ClientSecretPost
    } else {
        Proof::ClientSecretBasic
    }
}
