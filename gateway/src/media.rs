//! `Accept` and `Content-Type` of a POST, as seed 002 answers them.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use ramen_mcp::McpError;

use crate::answer::{self, Answer};

/// What the client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepts {
    /// One JSON message.
    pub(crate) json: bool,
    /// A stream of events.
    pub(crate) events: bool,
}

/// Judges both headers. Absent ones are answered in plain text (400, 415), wrong ones with a
/// JSON-RPC error (406, 415).
pub(crate) fn judge(headers: &HeaderMap) -> Result<Accepts, Box<Answer>> {
    let Some(accepts) = accepts(headers) else {
        return Err(Box::new(answer::text(
            StatusCode::BAD_REQUEST,
            "Accept is missing: send `Accept: application/json, text/event-stream`\n",
        )));
    };
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    match (kinds.next(), kinds.next()) {
        (None, _) => {
            return Err(Box::new(answer::text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type is missing: send `Content-Type: application/json`\n",
            )));
        }
        (Some(kind), None) if kind.to_str().is_ok_and(is_json) => {}
        _ => {
            return Err(refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json in UTF-8",
            ));
        }
    }
    if !accepts.json && !accepts.events {
        let message = "Accept must allow application/json or text/event-stream";
        return Err(refuse(StatusCode::NOT_ACCEPTABLE, message));
    }
    Ok(accepts)
}

fn refuse(status: StatusCode, message: &'static str) -> Box<Answer> {
    Box::new(answer::rpc_error(
        status,
        &McpError::invalid_request(message),
    ))
}

/// What `Accept` allows; `None` when there is none. `*/*` and `application/*` allow JSON alone: who
/// did not name events does not expect them.
fn accepts(headers: &HeaderMap) -> Option<Accepts> {
    let mut found = None::<Accepts>;
    for line in headers.get_all(ACCEPT) {
        let accepts = found.get_or_insert(Accepts {
            json: false,
            events: false,
        });
        for range in line.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if parts.any(is_never) {
                continue;
            }
            let is = |name: &str| kind.eq_ignore_ascii_case(name);
            accepts.json |= is("application/json") || is("application/*") || is("*/*");
            accepts.events |= is("text/event-stream") || is("text/*");
        }
    }
    found
}

/// `q=0` in all its forms.
fn is_never(parameter: &str) -> bool {
    let weight = parameter
        .strip_prefix("q=")
        .or_else(|| parameter.strip_prefix("Q="));
    weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight == 0.0))
}

/// Whether a `Content-Type` is JSON in UTF-8.
pub(crate) fn is_json(kind: &str) -> bool {
    let mut parts = kind.split(';').map(str::trim);
    let named = parts
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case("application/json"));
    named
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                let value = value.trim().trim_matches('"');
                value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
            }
            _ => true,
        })
}

/// A message as one event.
pub(crate) fn event(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(message.len() + 24);
    out.extend_from_slice(b"event: message\ndata: ");
    // A line break in JSON is white space between tokens; in an event it would end the line.
    out.extend(message.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    }));
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

/// A comment, so that nothing between takes the stream for dead.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn verdict(accept: &str, kind: &str) -> Result<Accepts, StatusCode> {
        judge(&headers(&[("accept", accept), ("content-type", kind)]))
            .map_err(|answer| answer.status())
    }

    const JSON: &str = "application/json";

    #[test]
    fn net08_what_accept_allows() {
        let both = Accepts {
            json: true,
            events: true,
        };
        let json = Accepts {
            json: true,
            events: false,
        };
        let events = Accepts {
            json: false,
            events: true,
        };
        for (accept, wanted) in [
            ("application/json, text/event-stream", Ok(both)),
            ("text/event-stream;q=0.5,Application/JSON", Ok(both)),
            ("application/json", Ok(json)),
            ("*/*", Ok(json)),
            ("application/*", Ok(json)),
            ("text/event-stream", Ok(events)),
            ("text/html", Err(StatusCode::NOT_ACCEPTABLE)),
            ("application/json;q=0", Err(StatusCode::NOT_ACCEPTABLE)),
            ("", Err(StatusCode::NOT_ACCEPTABLE)),
        ] {
            assert_eq!(verdict(accept, JSON), wanted, "{accept:?}");
        }
    }

    #[test]
    fn only_json_in_utf8_is_read() {
        for good in [
            JSON,
            "application/json; charset=utf-8",
            "Application/Json;charset=\"UTF-8\"",
            "application/json;version=1",
        ] {
            assert!(verdict(JSON, good).is_ok(), "{good}");
        }
        for bad in [
            "text/plain",
            "application/json; charset=latin1",
            "application/json, text/plain",
            "application/jsonp",
            "",
        ] {
            assert_eq!(
                verdict(JSON, bad),
                Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
                "{bad}"
            );
        }
        let twice = headers(&[
            ("accept", JSON),
            ("content-type", JSON),
            ("content-type", JSON),
        ]);
        assert_eq!(
            judge(&twice).unwrap_err().status(),
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        );
    }

    #[test]
    fn an_event_is_one_line() {
        assert_eq!(
            &event(b"{\n\"a\":1\r\n}")[..],
            b"event: message\ndata: { \"a\":1  }\n\n"
        );
    }
}
