//! Notifications that a server sends.

use bytes::Bytes;

use crate::id::{ProgressToken, RequestId};
use crate::meta::LogLevel;
use crate::server::ListKind;

/// `notifications/progress`: `payload` is `{"progress":..,"total"?,"message"?}` as the host sent it.
/// `None` when it is no JSON object.
pub fn progress(token: &ProgressToken, payload: &[u8]) -> Option<Bytes> {
    let _ = (token, payload);
    todo!()
}

/// `notifications/message`: `payload` is `{"level","logger"?,"data"}` as the host sent it. `None`
/// when it is no such object, or below `wanted`.
pub fn log_message(wanted: LogLevel, payload: &[u8]) -> Option<Bytes> {
    let _ = (wanted, payload);
    todo!()
}

/// `notifications/*/list_changed` for a legacy client.
pub fn list_changed(kind: ListKind) -> Bytes {
    let _ = kind;
    todo!()
}

/// `notifications/cancelled`, as a client sends it.
pub fn cancelled(id: &RequestId, reason: &str) -> Bytes {
    let _ = (id, reason);
    todo!()
}
