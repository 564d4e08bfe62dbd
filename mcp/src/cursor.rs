//! Cursors of lists: opaque, stateless, good on any replica.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The first byte of what a cursor holds; another layout gets another one.
const LAYOUT: u8 = b'1';

/// The cursor that continues after `last`.
pub fn encode(last: &str) -> String {
    let mut plain = Vec::with_capacity(1 + last.len());
    plain.push(LAYOUT);
    plain.extend_from_slice(last.as_bytes());
    URL_SAFE_NO_PAD.encode(plain)
}

/// The key a cursor continues after; `Some(None)` is the beginning, `None` no cursor of ours.
pub fn decode(cursor: &str) -> Option<Option<String>> {
    if cursor.is_empty() {
        return Some(None);
    }
    let plain = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (layout, key) = plain.split_first()?;
    if *layout != LAYOUT {
        return None;
    }
    Some(Some(String::from_utf8(key.to_vec()).ok()?))
}
