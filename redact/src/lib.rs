//! Secrets that cannot be printed, and text with the secrets taken out. Pure: no I/O.

mod chain;
pub mod keys;
pub mod redactor;
pub mod safe_url;
pub mod secret;

pub use chain::chain;
pub use keys::{KeyDigest, KeySet, bearer_token, keys_of};
pub use redactor::Redactor;
pub use safe_url::{SafeUrl, mask_urls, passwords};
pub use secret::Secret;

/// What stands where a secret stood.
pub const MARKER: &str = "***";

/// Bytes as lower-case hex digits.
fn hex_lower(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
