//! The sign-in itself: a person agrees in a browser, a code comes back, a token is given for it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use ramen_redact::Secret;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::challenge::Challenge;
use super::metadata::{Authority, Found, find};
use super::register::{Identity, Proof, identity};
use super::store::{Tokens, now};
use super::web::post_form;
use super::{Open, Registered};

/// How long a person may take.
const PERSON: Duration = Duration::from_mins(5);
/// Bytes of the request that brings the code.
const MAX_CALLBACK: usize = 16 * 1024;
const PATH: &str = "/callback";

/// What is wanted, and what is known.
pub(super) struct Wanted<'a> {
    pub(super) server: &'a Url,
    pub(super) challenge: &'a Challenge,
    /// A sign-in of before, whose rights are asked for again.
    pub(super) before: Option<&'a Tokens>,
    pub(super) client: &'a Registered,
    pub(super) open: &'a Open,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    scope: Option<String>,
}

/// Asks a person.
pub(super) async fn sign_in(wanted: &Wanted<'_>) -> Result<Tokens, String> {
    let found = find(wanted.server, wanted.challenge).await?;
    let scope = scope(wanted, &found);
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|error| format!("no port for the answer: {error}"))?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let redirect = format!("http://127.0.0.1:{port}{PATH}");
    let authority = &found.authority;
    // Registered anew each time: the port of the answer is another one, and so may the authorization server be.
    let identity = identity(authority, wanted.client, &redirect, scope.as_deref()).await?;
    let (verifier, state) = (random()?, random()?);
    let address = address(
        authority,
        &identity,
        &found,
        &redirect,
        scope.as_deref(),
        &verifier,
        &state,
    );
    (wanted.open)(&address)?;
    let code = tokio::time::timeout(PERSON, answer(&listener, authority, &state))
        .await
        .map_err(|_| "nobody agreed in time".to_owned())??;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.expose().as_str()),
        ("redirect_uri", redirect.as_str()),
        ("code_verifier", verifier.expose().as_str()),
        ("resource", found.resource.as_str()),
    ];
    let answer = token(&authority.token_endpoint, &identity, &fields).await?;
    Ok(Tokens {
        refresh: answer.refresh_token.map(Secret::from),
        expires: answer
            .expires_in
            .map(|seconds| now().saturating_add(seconds)),
        scope: answer.scope.or(scope),
        access: answer.access_token.into(),
        issuer: authority.issuer.clone(),
        token_endpoint: authority.token_endpoint.clone(),
        resource: found.resource,
        identity,
    })
}

/// Gets a new token for the refresh token of before.
pub(super) async fn refresh(before: &Tokens) -> Result<Tokens, String> {
    let Some(refresh) = &before.refresh else {
        return Err("there is nothing to renew it with".to_owned());
    };
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.expose().as_str()),
        ("resource", before.resource.as_str()),
    ];
    let answer = token(&before.token_endpoint, &before.identity, &fields).await?;
    Ok(Tokens {
        access: answer.access_token.into(),
        refresh: answer
            .refresh_token
            .map(Secret::from)
            .or_else(|| Some(refresh.clone())),
        expires: answer
            .expires_in
            .map(|seconds| now().saturating_add(seconds)),
        scope: answer.scope.or_else(|| before.scope.clone()),
        ..before.clone()
    })
}

/// The rights to ask for: those of the challenge, else all that the server knows, and those that were given before. A
/// token that renews itself, where the authorization server offers one.
fn scope(wanted: &Wanted<'_>, found: &Found) -> Option<String> {
    let mut all: Vec<&str> = match (&wanted.challenge.scope, &found.scopes) {
        (Some(scope), _) => scope.split_whitespace().collect(),
        (None, Some(scopes)) => scopes.iter().map(String::as_str).collect(),
        (None, None) => Vec::new(),
    };
    let before = wanted.before.and_then(|before| before.scope.as_deref());
    for scope in before.unwrap_or_default().split_whitespace() {
        if !all.contains(&scope) {
            all.push(scope);
        }
    }
    let offline = "offline_access";
    let offered = found
        .authority
        .scopes_supported
        .iter()
        .any(|scope| scope == offline);
    if offered && !all.is_empty() && !all.contains(&offline) {
        all.push(offline);
    }
    (!all.is_empty()).then(|| all.join(" "))
}

fn address(
    authority: &Authority,
    identity: &Identity,
    found: &Found,
    redirect: &str,
    scope: Option<&str>,
    verifier: &Secret,
    state: &Secret,
) -> Url {
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose()));
    let mut address = authority.authorization_endpoint.clone();
    {
        let mut query = address.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &identity.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", state.expose())
            .append_pair("resource", &found.resource);
        if let Some(scope) = scope {
            query.append_pair("scope", scope);
            if scope.split(' ').any(|scope| scope == "offline_access") {
                query.append_pair("prompt", "consent");
            }
        }
    }
    address
}

/// 256 bits nobody can guess.
fn random() -> Result<Secret, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}

async fn token(
    endpoint: &Url,
    identity: &Identity,
    fields: &[(&str, &str)],
) -> Result<TokenAnswer, String> {
    let mut fields = fields.to_vec();
    let secret = identity
        .secret
        .as_ref()
        .map(|secret| secret.expose().as_str());
    let mut authorization = None;
    match (identity.proof, secret) {
        (Proof::ClientSecretBasic, Some(secret)) => {
            let encode = |text: &str| -> String {
                url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
            };
            let pair = STANDARD.encode(format!("{}:{}", encode(&identity.id), encode(secret)));
            let value = HeaderValue::from_str(&format!("Basic {pair}"));
            authorization = value.ok().map(|mut value| {
                value.set_sensitive(true);
                value
            });
        }
        (Proof::ClientSecretPost, Some(secret)) => {
            fields.push(("client_id", &identity.id));
            fields.push(("client_secret", secret));
        }
        _ => fields.push(("client_id", &identity.id)),
    }
    post_form(endpoint, &fields, authorization).await
}

/// Waits for the browser to bring the code. Requests that are not for us are answered and forgotten.
async fn answer(
    listener: &TcpListener,
    authority: &Authority,
    state: &Secret,
) -> Result<Secret, String> {
    loop {
        let (mut stream, _) = listener
            .accept()
            .await
            .map_err(|error| format!("the answer cannot be taken: {error}"))?;
        let reading = tokio::time::timeout(Duration::from_secs(10), target(&mut stream));
        let Some(target) = reading.await.ok().flatten() else {
            continue;
        };
        let callback = Url::parse("http://127.0.0.1").and_then(|base| base.join(&target));
        let Some(callback) = callback.ok().filter(|url| url.path() == PATH) else {
            reply(&mut stream, "404 Not Found", "Nothing here.").await;
            continue;
        };
        let outcome = judge(&callback, authority, state);
        let text = match &outcome {
            Some(Ok(_)) => "You are signed in. This page can be closed.",
            Some(Err(_)) | None => "The sign-in did not work. The program says why.",
        };
        reply(&mut stream, "200 OK", text).await;
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
}

/// The code, or why there is none; `None` for an answer that is not to our question.
fn judge(callback: &Url, authority: &Authority, state: &Secret) -> Option<Result<Secret, String>> {
    let value = |wanted: &str| {
        let mut pairs = callback.query_pairs();
        pairs
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.into_owned())
    };
    if Secret::from(value("state").unwrap_or_default()) != *state {
        return None;
    }
    // An answer of another authorization server must not be taken for one of this (RFC 9207).
    match value("iss") {
        Some(iss) if iss != authority.issuer => {
            return Some(Err(
                "the answer is of another authorization server".to_owned()
            ));
        }
        None if authority.authorization_response_iss_parameter_supported => {
            return Some(Err("the answer does not say who it is of".to_owned()));
        }
        _ => {}
    }
    if let Some(error) = value("error") {
        let error: String = error
            .chars()
            .filter(char::is_ascii_graphic)
            .take(60)
            .collect();
        return Some(Err(format!("it was refused: {error}")));
    }
    let code = value("code").filter(|code| !code.is_empty());
    Some(
        code.map(Secret::from)
            .ok_or_else(|| "the answer has no code".to_owned()),
    )
}

/// The target of a `GET`.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let count = stream
            .read(&mut piece)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        head.extend_from_slice(&piece[..count]);
        if head.len() > MAX_CALLBACK {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    (words.next()? == "GET").then_some(())?;
    words.next().map(str::to_owned)
}

async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}
