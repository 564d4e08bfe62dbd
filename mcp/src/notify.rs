//! Notifications that a server sends, and the one that a client sends.

use bytes::Bytes;
use serde_json::json;

use crate::envelope::{members, text};
use crate::id::{ProgressToken, RequestId};
use crate::meta::LogLevel;
use crate::names::method;
use crate::server::{ListKind, one_line};

/// `notifications/progress`: `payload` is `{"progress":..,"total"?,"message"?}` as the host sent it.
/// `None` when it is no such object. That progress rises is the sender's part.
pub fn progress(token: &ProgressToken, payload: &[u8]) -> Option<Bytes> {
    let payload = std::str::from_utf8(payload).ok()?;
    let found = members(payload, &["progress", "total", "message"]).ok()?;
    let is_number = |json: &str| serde_json::from_str::<f64>(json).is_ok_and(f64::is_finite);
    let progress = found.get(0).filter(|json| is_number(json))?;
    let mut params = format!(r#"{{"progressToken":{},"progress":{progress}"#, token.raw());
    if let Some(total) = found.get(1).filter(|json| is_number(json)) {
        params.extend([r#","total":"#, total]);
    }
    if let Some(message) = found.get(2).filter(|json| text(json).is_some()) {
        params.extend([r#","message":"#, message]);
    }
    params.push('}');
    Some(notification(method::PROGRESS, &params))
}

/// `notifications/message`: `payload` is `{"level","logger"?,"data"}` as the host sent it, redacted.
/// `None` when it is no such object, or below `wanted`.
pub fn log_message(wanted: LogLevel, payload: &[u8]) -> Option<Bytes> {
    let payload = std::str::from_utf8(payload).ok()?;
    let found = members(payload, &["level", "logger", "data"]).ok()?;
    let level = LogLevel::parse(&text(found.get(0)?)?)?;
    let data = one_line(found.get(2)?);
    if level < wanted {
        return None;
    }
    let logger = found
        .get(1)
        .filter(|json| text(json).is_some())
        .map(|logger| format!(r#""logger":{logger},"#))
        .unwrap_or_default();
    let params = format!(r#"{{"level":"{level}",{logger}"data":{data}}}"#);
    Some(notification(method::LOG_MESSAGE, &params))
}

/// `notifications/*/list_changed` for a legacy client.
pub fn list_changed(kind: ListKind) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"{}"}}"#,
        kind.method()
    ))
}

/// `notifications/cancelled`, as a client sends it.
pub fn cancelled(id: &RequestId, reason: &str) -> Bytes {
    let params = format!(r#"{{"requestId":{},"reason":{}}}"#, id.raw(), json!(reason));
    notification(method::CANCELLED, &params)
}

fn notification(name: &str, params: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":"{name}","params":{params}}}"#
    ))
}
