//! List changes for legacy clients: after their handshake one `Session` stays open in the background, and what the
//! worker announces on it is passed on. Modern clients ask with `subscriptions/listen` instead.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tonic::Code;

use super::exchange::Exchange;
use super::framing::Framing;
use super::message::{Message, one_line, parse};

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The client's handshake again, under an id of the bridge's own.
pub(super) fn handshake(params: &RawValue) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","id":"ramen-bridge:initialize","method":"initialize","params":{}}}"#,
        params.get()
    )
    .into()
}

/// A log level again, under an id of the bridge's own: it goes ahead of each request of a legacy client that set one.
pub(super) fn log_level(params: &RawValue) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","id":"ramen-bridge:setLevel","method":"logging/setLevel","params":{}}}"#,
        params.get()
    )
    .into()
}

/// Keeps the session until the worker says that it has none. Ends when the future is dropped.
pub(super) async fn run(exchange: Exchange, handshake: Bytes, framing: Framing) {
    let mut backoff = FIRST_BACKOFF;
    let mut tried = false;
    loop {
        if exchange.no_sessions.load(Ordering::Relaxed) {
            return;
        }
        match once(&exchange, &handshake, framing, &mut tried).await {
            // Only a session that said something proves that the worker is well again.
            Ok(true) => backoff = FIRST_BACKOFF,
            Err(Code::Unimplemented) => {
                exchange.no_sessions.store(true, Ordering::Relaxed);
                return;
            }
            // Without a valid key no retry helps, and each request says so to the client anyway.
            Err(Code::Unauthenticated | Code::PermissionDenied) => backoff = MAX_BACKOFF,
            Ok(false) | Err(_) => {}
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

/// One session to its end. When it is not the first that was tried, whatever can change is announced: it may have changed
/// in between, also when the one before was lost while it was opened.
async fn once(
    exchange: &Exchange,
    handshake: &Bytes,
    framing: Framing,
    tried: &mut bool,
) -> Result<bool, Code> {
    let first = vec![handshake.clone(), Bytes::from_static(INITIALIZED)];
    let announce = std::mem::replace(tried, true);
    let opened = exchange.upstream.session(first).await;
    let mut session = opened.map_err(|status| status.code())?;
    let mut heard = false;
    loop {
        let message = session.incoming.message().await;
        let Some(message) = message.map_err(|status| status.code())? else {
            return Ok(heard);
        };
        match parse(&message.body) {
            Ok(Message::Notification { .. }) => {
                exchange.write(framing, &one_line(&message.body)).await;
            }
            Ok(Message::Response(_)) if announce && !heard => {
                for notification in announcements(&message.body) {
                    exchange.write(framing, notification.as_bytes()).await;
                }
            }
            _ => {}
        }
        heard = true;
    }
}

/// `list_changed` for each list that the worker says can change.
fn announcements(initialized: &[u8]) -> Vec<String> {
    let answer: serde_json::Value = serde_json::from_slice(initialized).unwrap_or_default();
    let capabilities = &answer["result"]["capabilities"];
    let changing = ["tools", "resources", "prompts"].into_iter();
    changing
        .filter(|list| capabilities[list]["listChanged"] == true)
        .map(|list| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#))
        .collect()
}
