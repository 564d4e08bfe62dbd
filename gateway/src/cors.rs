//! Web pages of other origins (CORS, of the Fetch standard): those of the list may call groups and read what they answer.
//!
//! A preflight bears no credential, so it is answered before one is asked for, and alike for groups that are there and for
//! such as are not. No cookie is ever let through: a page has to bear the key or token itself.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::answer::{self, Answer};
use crate::door::{self, Door};
use crate::names::{GROUP_HEADER, ZONE_HEADER};
use crate::origin::Sites;

/// Headers that a page may send, besides those that begin with [`MCP`].
const MAY_SEND: [&str; 5] = [
    "accept",
    "authorization",
    "content-type",
    GROUP_HEADER,
    ZONE_HEADER,
];
const MCP: &str = "mcp-";
/// Headers of an answer that a page may read besides those that every page may.
const MAY_READ: HeaderValue = HeaderValue::from_static("www-authenticate, retry-after");
/// Seconds that a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The answer to a preflight of an origin of the list, for where these methods are answered.
pub(crate) fn preflight(door: &Door, request: &Parts, methods: &'static str) -> Option<Answer> {
    let headers = &request.headers;
    let asks =
        request.method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let origin = door.sites.listed(headers).filter(|_| asks)?;
    let judged = door::bounds(headers).and_then(|()| door.sites.judge(request));
    if let Err(refusal) = judged {
        return Some(refusal.answer());
    }
    let mut answer = answer::empty(StatusCode::NO_CONTENT);
    let told = answer.headers_mut();
    told.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(methods),
    );
    if let Some(allowed) = allowed(headers) {
        told.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    told.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    Some(readable(answer, &door.sites, Some(origin.clone())))
}

/// Those of the headers that a page wants to send which it may send.
fn allowed(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let wanted = wanted.filter_map(|line| line.to_str().ok());
    let wanted = wanted.flat_map(|line| line.split(','));
    let names = wanted.filter_map(|name| HeaderName::try_from(name.trim()).ok());
    let may =
        |name: &HeaderName| MAY_SEND.contains(&name.as_str()) || name.as_str().starts_with(MCP);
    let names: Vec<_> = names.filter(may).collect();
    let names: Vec<_> = names.iter().map(HeaderName::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok()
}

/// The same answer, which a page of this origin may read. Where some may, every answer tells caches that it is another one
/// for other origins: one without a word of CORS is not for pages.
pub(crate) fn readable(mut answer: Answer, sites: &Sites, origin: Option<HeaderValue>) -> Answer {
    let headers = answer.headers_mut();
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, MAY_READ);
    }
    if !sites.origins.is_empty() {
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_vary_with_the_origin_where_origins_are_listed() {
        let listed = Sites {
            origins: vec!["https://app.example.com".into()],
            ..Sites::default()
        };
        let vary = |sites: &Sites| {
            let mut answer = answer::empty(StatusCode::OK);
            let before = HeaderValue::from_static("accept");
            answer.headers_mut().insert(VARY, before);
            let answer = readable(answer, sites, None);
            let all = answer.headers().get_all(VARY).iter();
            all.cloned().collect::<Vec<_>>()
        };
        assert_eq!(vary(&listed), ["accept", "origin"]);
        assert_eq!(vary(&Sites::default()), ["accept"]);
    }
}
