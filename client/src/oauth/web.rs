//! Small requests to authorization servers, bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use serde::de::DeserializeOwned;
use url::{Host, Url};

use crate::transport::http::dial::{Dial, DialError};

/// Bytes of an answer.
const MAX_ANSWER: usize = 1024 * 1024;
/// From a request to the end of its answer.
const TIME: Duration = Duration::from_secs(20);

/// Whether secrets may travel there: over TLS, or within this machine.
pub fn trusted(url: &Url) -> bool {
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && here)
}

/// The JSON document at an address; `None` when there is none.
pub async fn get<T: DeserializeOwned>(url: &Url) -> Result<Option<T>, String> {
    let (status, body) = send(url, Method::GET, HeaderMap::new(), Bytes::new()).await?;
    if !status.is_success() {
        return Ok(None);
    }
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(|error| format!("{} cannot be read: {error}", shown(url)))
}

/// The JSON answer to a JSON document.
pub(super) async fn post_json<T: DeserializeOwned>(
    url: &Url,
    document: &serde_json::Value,
) -> Result<T, String> {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    read(
        url,
        send(url, Method::POST, headers, document.to_string().into()).await?,
    )
}

/// The JSON answer to a form.
pub(super) async fn post_form<T: DeserializeOwned>(
    url: &Url,
    fields: &[(&str, &str)],
    authorization: Option<HeaderValue>,
) -> Result<T, String> {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(header::CONTENT_TYPE, kind);
    if let Some(authorization) = authorization {
        headers.insert(header::AUTHORIZATION, authorization);
    }
    read(url, send(url, Method::POST, headers, form.into()).await?)
}

fn read<T: DeserializeOwned>(url: &Url, answer: (StatusCode, Bytes)) -> Result<T, String> {
    let (status, body) = answer;
    if !status.is_success() {
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = error["error"].as_str().unwrap_or_default();
        let code: String = code
            .chars()
            .filter(char::is_ascii_graphic)
            .take(60)
            .collect();
        return Err(format!(
            "{} answers HTTP {} {code}",
            shown(url),
            status.as_u16()
        ));
    }
    serde_json::from_slice(&body)
        // The error of a token that cannot be read might show it.
        .map_err(|_| format!("the answer of {} cannot be read", shown(url)))
}

async fn send(
    url: &Url,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Bytes), String> {
    if !trusted(url) {
        return Err(format!("{} is not reached over TLS", shown(url)));
    }
    let mut target = url.clone();
    target.set_fragment(None);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = target
        .as_str()
        .parse()
        .map_err(|_| format!("{} cannot be sent", shown(url)))?;
    *request.headers_mut() = headers;
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(header::ACCEPT, json);
    let exchange = async {
        let response = Dial::new(url.scheme() == "https", None)
            .send(request)
            .await
            .map_err(|error| match error {
                DialError::Connect(why) | DialError::Broken(why) => {
                    format!("{} cannot be reached: {why}", shown(url))
                }
            })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER);
        let body = body
            .collect()
            .await
            .map_err(|_| format!("the answer of {} breaks off", shown(url)))?;
        Ok((status, body.to_bytes()))
    };
    tokio::time::timeout(TIME, exchange)
        .await
        .unwrap_or_else(|_| Err(format!("{} does not answer", shown(url))))
}

/// An address without its query, where secrets are.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    ramen_redact::SafeUrl::from(url).to_string()
}
