//! Who protects a server, and how that authorization server works.

use serde::Deserialize;
use url::Url;

use super::challenge::Challenge;
use super::web::{get, shown, trusted};

/// The server about itself (RFC 9728).
#[derive(Debug, Deserialize)]
pub(super) struct Described {
    /// What tokens are for.
    pub(super) resource: Option<Url>,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Option<Vec<String>>,
}

/// The authorization server about itself (RFC 8414, `OpenID` Connect discovery).
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Authority {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    #[serde(default)]
    pub(super) registration_endpoint: Option<Url>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// What protects a server.
pub(super) struct Found {
    /// What tokens are for (RFC 8707).
    pub(super) resource: String,
    pub(super) authority: Authority,
    /// What rights the server knows.
    pub(super) scopes: Option<Vec<String>>,
}

/// Follows the challenge to the authorization server.
pub(super) async fn find(server: &Url, challenge: &Challenge) -> Result<Found, String> {
    let described = describe(server, challenge).await?;
    let (issuer, resource, scopes) = if let Some(described) = described {
        let resource = described
            .resource
            .ok_or_else(|| "the server's metadata names no resource".to_owned())?;
        if !covers(&resource, server) {
            let other = shown(&resource);
            return Err(format!(
                "the server's metadata is for {other}, another server"
            ));
        }
        let issuer = described.authorization_servers.into_iter().next();
        let issuer = issuer
            .ok_or_else(|| "the server's metadata names no authorization server".to_owned())?;
        (issuer, resource, described.scopes_supported)
    } else {
        // Servers of 2025-03-26 describe nothing: their authorization server is at their root.
        let mut root = server.clone();
        root.set_path("");
        root.set_query(None);
        let root = root.as_str().trim_end_matches('/').to_owned();
        (root, server.clone(), None)
    };
    let authority = authority(&issuer).await?;
    Ok(Found {
        resource: canonical(&resource),
        authority,
        scopes,
    })
}

/// The server's own description, where its challenge or convention says.
async fn describe(server: &Url, challenge: &Challenge) -> Result<Option<Described>, String> {
    if let Some(place) = &challenge.metadata {
        return get(place)
            .await?
            .map(Some)
            .ok_or_else(|| format!("there is no metadata at {}", shown(place)));
    }
    for path in [server.path().trim_end_matches('/'), ""] {
        let mut place = server.clone();
        place.set_path(&format!("/.well-known/oauth-protected-resource{path}"));
        place.set_query(None);
        if let Ok(Some(found)) = get(&place).await {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether what metadata speaks of is this server: the same origin, and a path at or above.
fn covers(resource: &Url, server: &Url) -> bool {
    let path = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(path);
    resource.origin() == server.origin()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Without what is no part of it.
fn canonical(resource: &Url) -> String {
    let mut resource = resource.clone();
    resource.set_fragment(None);
    let text: String = resource.into();
    match text.strip_suffix('/') {
        // Only the slash that every address without a path has.
        Some(rest) if rest.matches('/').count() == 2 => rest.to_owned(),
        _ => text,
    }
}

/// The description of an authorization server, at the three places where it may be. It must name itself.
async fn authority(named: &str) -> Result<Authority, String> {
    let issuer = &Url::parse(named)
        .map_err(|_| "the address of the authorization server cannot be read".to_owned())?;
    if !trusted(issuer) {
        return Err(format!("{} is not reached over TLS", shown(issuer)));
    }
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    for path in places {
        let mut place = issuer.clone();
        place.set_path(&path);
        let Ok(Some(found)) = get::<Authority>(&place).await else {
            continue;
        };
        if found.issuer != named {
            return Err(format!(
                "the metadata of {} names another issuer",
                shown(issuer)
            ));
        }
        if !found
            .code_challenge_methods_supported
            .iter()
            .any(|m| m == "S256")
        {
            return Err(format!("{} does not support PKCE with S256", shown(issuer)));
        }
        for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
            if !trusted(endpoint) {
                return Err(format!("{} is not reached over TLS", shown(endpoint)));
            }
        }
        return Ok(found);
    }
    Err(format!("{} does not say how to sign in", shown(issuer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_speaks_of_a_server_at_or_below_its_path_only() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (resource, server, covered) in [
            ("https://h/mcp", "https://h/mcp", true),
            ("https://h/", "https://h/mcp", true),
            ("https://h", "https://h/mcp", true),
            ("https://h/mcp/", "https://h/mcp", true),
            ("https://h/mc", "https://h/mcp", false),
            ("https://h/mcp/deeper", "https://h/mcp", false),
            ("https://other/mcp", "https://h/mcp", false),
            ("http://h/mcp", "https://h/mcp", false),
            ("https://h:8443/mcp", "https://h/mcp", false),
        ] {
            assert_eq!(
                covers(&url(resource), &url(server)),
                covered,
                "{resource} {server}"
            );
        }
    }

    #[test]
    fn a_resource_without_a_path_has_no_slash() {
        let url = |text: &str| canonical(&Url::parse(text).unwrap());
        assert_eq!(url("https://h"), "https://h");
        assert_eq!(url("https://h/#x"), "https://h");
        assert_eq!(url("https://h/mcp/"), "https://h/mcp/");
    }
}
