//! What a request is, and what may go wrong with it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;

use super::Answer;

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `PATCH`, …
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Without the `?`.
    pub query: String,
}

impl Request {
    pub(super) fn of(method: &http::Method, uri: &http::Uri) -> Self {
        Self {
            method: method.to_string(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        }
    }

    /// It may change something.
    pub fn writes(&self) -> bool {
        self.method != "GET"
    }

    /// It is a watch.
    pub fn watches(&self) -> bool {
        let mut parts = self.query.split('&');
        parts.any(|part| matches!(part, "watch=true" | "watch=1"))
    }

    /// The kind's plural is in its path: `/…/deployments/…`.
    pub fn is_of(&self, plural: &str) -> bool {
        self.path.split('/').any(|part| part == plural)
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and answered with this status, reason and message.
    Answer(u16, &'static str, String),
    /// A watch is answered with an event that its version is too old.
    Gone,
    /// It is not done, and the connection closed.
    Close,
    /// It is done, and the connection closed before the answer.
    Lose,
    /// It is done, but not answered, and nothing else is done from then on.
    Freeze,
    /// It is done and answered after a pause.
    Late(Duration),
    /// It is not done and never answered.
    Hang,
}

impl Fault {
    /// The refusal of a server that has too much to do.
    pub fn too_many() -> Self {
        Self::Answer(
            429,
            "TooManyRequests",
            "the server has received too many requests".to_owned(),
        )
    }

    /// The refusal of a write that somebody else was faster with.
    pub fn conflict() -> Self {
        Self::Answer(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version"
                .to_owned(),
        )
    }

    /// A server that has lost its database.
    pub fn internal() -> Self {
        Self::Answer(
            500,
            "InternalError",
            "etcdserver: leader changed".to_owned(),
        )
    }
}

fn object(code: u16, reason: &str, message: &str) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

fn answer(code: u16, body: &serde_json::Value) -> Answer {
    let body = Full::new(Bytes::from(format!("{body}\n")));
    let body = body.map_err(|never| match never {}).boxed_unsync();
    let mut answer = Answer::new(body);
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    answer
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Answer {
    answer(code, &object(code, reason, message))
}

pub(super) fn gone() -> Answer {
    let status = object(410, "Expired", "too old resource version: 1 (2)");
    answer(200, &json!({ "type": "ERROR", "object": status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_known_by_method_and_path() {
        let request =
            |method: &str, uri: &str| Request::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let watch = request("GET", "/api/v1/namespaces/n/secrets?limit=5&watch=true");
        assert!(watch.watches() && !watch.writes() && watch.is_of("secrets"));
        let write = request("PATCH", "/apis/apps/v1/namespaces/n/deployments/secrets-x");
        assert!(write.writes() && !write.watches() && !write.is_of("secrets"));
    }
}
