//! A strict JSON reader that keeps places and number tokens: for descriptors (line and column of
//! every fault) and for arguments (exact numbers, no copies).
//!
//! It refuses what other readers let through or change in silence: members given twice (in
//! [`parse`]), lone surrogates, numbers beyond a double's range, integers of more digits than Python
//! converts, comments, commas at the end, `NaN`.

pub mod number;
mod reader;
mod tree;

pub use reader::{Fault, Kind, Number, Reader, Text, quote_into};
pub use tree::{Member, Node, Value, parse};

/// How deep arrays and objects may nest.
pub const MAX_DEPTH: u32 = 127;

/// Digits of the longest integer that CPython converts by default.
pub const MAX_DIGITS: usize = 4300;

/// Line and column (in characters), both from 1, of a byte offset.
pub fn place(text: &str, offset: usize) -> (u32, u32) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let line = before.split(|b| *b == b'\n').count();
    // Count the bytes that begin a character.
    let column = before[line_start..]
        .iter()
        .filter(|b| (**b & 0xC0) != 0x80)
        .count()
        + 1;
    (
        u32::try_from(line).unwrap_or(u32::MAX),
        u32::try_from(column).unwrap_or(u32::MAX),
    )
}

/// The text without a byte order mark, or the offset at which it stops being UTF-8.
pub fn decode(bytes: &[u8]) -> Result<&str, usize> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| error.valid_up_to())
}
