//! Requests as they go out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use ramen_mcp::Version;
use ramen_mcp::headers::encode;
use ramen_mcp::names::method;
use ramen_redact::Secret;
use url::Url;

use super::dial::DialError;
use super::{Outgoing, Shared};
use crate::error::ClientError;

pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Sign-ins for one request: a token, and one with more rights.
const MAX_SIGN_INS: usize = 2;
const BOTH: &str = "application/json, text/event-stream";
const EVENTS: &str = "text/event-stream";

/// User name and password of an address, as a header.
pub(super) fn basic(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let password = url.password().map(decode).unwrap_or_default();
    let pair = STANDARD.encode(format!("{}:{password}", decode(url.username())));
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Shared {
    /// `POST` of one message; signs in where the server wants that and it can be done.
    pub(super) async fn post(
        &self,
        message: &Outgoing,
    ) -> Result<(Response<Incoming>, bool), ClientError> {
        // Another request may have got a newer one by the time that this one is refused.
        let mut used = self.token();
        let mut answer = self.post_once(message).await?;
        for _ in 0..MAX_SIGN_INS {
            let Some(sign_in) = &self.sign_in else { break };
            let status = answer.0.status();
            let challenge = answer.0.headers().get(header::WWW_AUTHENTICATE);
            let challenge = challenge.and_then(|value| value.to_str().ok());
            // 403 without a hint that more rights would help is final.
            let helps = match status {
                StatusCode::UNAUTHORIZED => true,
                StatusCode::FORBIDDEN => {
                    challenge.is_some_and(|c| c.contains("insufficient_scope"))
                }
                _ => false,
            };
            if !helps || self.headers.contains_key(header::AUTHORIZATION) {
                break;
            }
            let token = sign_in
                .token(self.url.expose(), status.as_u16(), challenge, used.as_ref())
                .await?;
            self.state().tokens.add(token.clone());
            used = Some(token);
            answer = self.post_once(message).await?;
        }
        Ok(answer)
    }

    /// The head of the answer, and whether a session was named.
    async fn post_once(
        &self,
        message: &Outgoing,
    ) -> Result<(Response<Incoming>, bool), ClientError> {
        let mut request = self.request(Method::POST, message.body.clone());
        let headers = request.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::ACCEPT, HeaderValue::from_static(BOTH));
        let begins = message.method == method::INITIALIZE;
        let session = match message.version {
            Some(version) if !begins => {
                headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
                if version.is_modern() {
                    mirror(headers, message)?;
                    None
                } else {
                    self.state().session.clone()
                }
            }
            _ => None,
        };
        let named = session.is_some();
        if let Some(session) = session {
            headers.insert(SESSION, session);
        }
        let response = self.send(request).await?;
        if begins && response.status().is_success() {
            let minted = response.headers().get(SESSION).cloned();
            self.state().session = minted;
        }
        Ok((response, named))
    }

    /// `GET` of the events that a legacy server sends by itself, or of the rest of a stream.
    pub(super) async fn events(
        &self,
        version: Version,
        last: Option<&str>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = self.request(Method::GET, Bytes::new());
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENTS));
        headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            headers.insert(LAST_EVENT, last);
        }
        if let Some(session) = self.state().session.clone() {
            headers.insert(SESSION, session);
        }
        self.send(request).await
    }

    /// `DELETE` of a session. That the server does not want it is no matter.
    pub(super) async fn end_session(&self, session: HeaderValue) {
        let mut request = self.request(Method::DELETE, Bytes::new());
        let version = self.state().version;
        if let Some(version) = version {
            let value = HeaderValue::from_static(version.as_str());
            request.headers_mut().insert(VERSION, value);
        }
        request.headers_mut().insert(SESSION, session);
        let _ = self.dial.send(request).await;
    }

    fn token(&self) -> Option<Secret> {
        self.state().tokens.newest().cloned()
    }

    fn request(&self, method: Method, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let agent = concat!("ramen/", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::from_static(agent);
        request
            .headers_mut()
            .entry(header::USER_AGENT)
            .or_insert(agent);
        // A header of the configuration comes first: somebody chose it.
        let token = self.token();
        if let Some(token) = token
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
        {
            value.set_sensitive(true);
            request
                .headers_mut()
                .entry(header::AUTHORIZATION)
                .or_insert(value);
        }
        request
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let response = match self.dial.send(request).await {
            Ok(response) => response,
            Err(DialError::Connect(why)) => {
                let error = ClientError::Connect {
                    url: self.url.to_string(),
                    why: self.masked(&why),
                };
                self.state().unreachable = Some(error.to_string());
                return Err(error);
            }
            Err(DialError::Broken(why)) => {
                return Err(ClientError::answer(
                    "a request",
                    format!("{} broke off: {}", self.url, self.masked(&why)),
                ));
            }
        };
        self.state().unreachable = None;
        if response.status().is_redirection() {
            let to = response.headers().get(header::LOCATION);
            let to = to.and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let to = ramen_redact::mask_urls(to)
                .chars()
                .take(300)
                .collect::<String>();
            return Err(ClientError::Http {
                url: self.url.to_string(),
                status: response.status().as_u16(),
                text: format!(
                    "it redirects to {to}, which is not followed since what is sent is for one address; configure that one if it is right"
                ),
            });
        }
        Ok(response)
    }
}

/// Repeats in headers what intermediaries of the modern era look at.
fn mirror(headers: &mut http::HeaderMap, message: &Outgoing) -> Result<(), ClientError> {
    let value = |text: &str| {
        HeaderValue::from_str(&encode(text))
            .map_err(|_| ClientError::answer(&message.method, "it cannot be sent in a header"))
    };
    headers.insert(METHOD, value(&message.method)?);
    if let Some(name) = &message.name {
        headers.insert(NAME, value(name)?);
    }
    for (name, text) in &message.headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ClientError::answer(&message.method, "a header has no usable name"))?;
        // It is encoded already.
        let text = HeaderValue::from_str(text)
            .map_err(|_| ClientError::answer(&message.method, "it cannot be sent in a header"))?;
        headers.insert(name, text);
    }
    Ok(())
}
