//! Request ids and progress tokens: the JSON token as it came, never a number in between.

use std::fmt;

use bytes::Bytes;

/// The largest integer that every JSON peer reads exactly, 2^53 - 1.
pub const MAX_SAFE_INTEGER: i64 = 9_007_199_254_740_991;

/// The id of a request: a string or an integer within ±(2^53 - 1), kept as its JSON token, so that
/// the answer carries the same bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId {
    raw: Bytes,
}

/// An id by value, for tables of what is in flight: `"a"` and `"\u0061"` are the same, `1` and
/// `"1"` are not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdKey {
    /// An integer.
    Int(i64),
    /// A string, unescaped.
    Text(String),
}

/// An opaque token that the client wants back with progress: same grammar as an id.
pub type ProgressToken = RequestId;

impl RequestId {
    /// Reads one JSON token, without white space around it. `None` when it is no usable id.
    pub fn from_token(raw: Bytes) -> Option<Self> {
        let usable = match raw.first()? {
            b'"' => serde_json::from_slice::<String>(&raw).is_ok(),
            _ => safe_integer(&raw).is_some(),
        };
        usable.then_some(Self { raw })
    }

    /// The same id with bytes of its own: what lives long must not keep the whole message that it came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            raw: Bytes::copy_from_slice(&self.raw),
        }
    }

    /// The id of a number.
    pub fn number(id: u32) -> Self {
        Self {
            raw: Bytes::from(id.to_string()),
        }
    }

    /// The id of a text.
    pub fn text(id: &str) -> Self {
        Self {
            raw: Bytes::from(serde_json::Value::from(id).to_string()),
        }
    }

    /// The JSON token, byte for byte.
    pub fn raw(&self) -> &str {
        checked(std::str::from_utf8(&self.raw))
    }

    /// The id by value.
    pub fn key(&self) -> IdKey {
        match safe_integer(&self.raw) {
            Some(number) => IdKey::Int(number),
            None => IdKey::Text(checked(serde_json::from_slice(&self.raw))),
        }
    }
}

fn checked<T, E: fmt::Debug>(token: Result<T, E>) -> T {
    token.expect("a token is checked to be a JSON string or digits when an id is made of it")
}

/// The value of a plain integer token within the safe range.
fn safe_integer(raw: &[u8]) -> Option<i64> {
    let digits = raw.strip_prefix(b"-").unwrap_or(raw);
    let plain = match digits {
        [] => false,
        // `-0` is a float to some peers.
        [b'0', rest @ ..] => rest.is_empty() && raw.len() == 1,
        digits => digits.len() <= 16 && digits.iter().all(u8::is_ascii_digit),
    };
    if !plain {
        return None;
    }
    let value: i64 = std::str::from_utf8(raw).ok()?.parse().ok()?;
    (value.abs() <= MAX_SAFE_INTEGER).then_some(value)
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}
