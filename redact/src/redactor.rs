//! Takes secrets out of text.
//!
//! What is masked, with [`crate::MARKER`] in its place (touching and overlapping finds give one marker):
//!
//! - the secret as it is, and without the white space around it;
//! - each line of a secret with several lines, when it has at least [`MIN_LINE`] characters;
//! - its base64, standard and URL-safe alphabet, with and without padding, alone or inside the base64 of a
//!   longer text (all three alignments, from [`MIN_FRAGMENT`] characters on);
//! - its bytes as hex digits, lower and upper case, from 4 bytes on;
//! - all of these behind escapes, two layers deep (one in texts over [`MAX_TWO_LAYERS`] bytes): backslash escapes (JSON, Python `repr` of `str` and `bytes`), URL
//!   encoding of any or all characters (also `+` for a space), HTML entities.
//!
//! Not found: other encodings, encryption, compression, base64 broken into lines, a secret cut in pieces.

mod view;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::MARKER;
use view::View;

/// Shorter lines of a secret with several lines are not masked on their own.
pub const MIN_LINE: usize = 8;

/// Shorter pieces of base64 would hit innocent text too often.
pub const MIN_FRAGMENT: usize = 6;

/// In longer texts one layer of escapes is undone, not two: the work grows with the square.
pub const MAX_TWO_LAYERS: usize = 256 * 1024;

/// Masks a set of secrets in text, in every form the module knows.
#[derive(Clone, Default)]
pub struct Redactor {
    forms: Option<AhoCorasick>,
}

impl Redactor {
    /// Masks nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Masks these values. Those that are empty or only white space are left out.
    #[expect(clippy::missing_panics_doc, reason = "only beyond 2^31 states")]
    pub fn new<I>(secrets: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut forms = Vec::new();
        for secret in secrets {
            add_forms(secret.as_ref(), &mut forms);
        }
        forms.sort_unstable();
        forms.dedup();
        if forms.is_empty() {
            return Self::none();
        }
        // Overlapping search wants the standard kind. Building fails only beyond 2^31 states.
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&forms);
        Self {
            forms: Some(built.expect("secrets come from the environment and are small")),
        }
    }

    /// Whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.forms.is_none()
    }

    /// The text with every secret replaced by the marker; borrowed when there was none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(found) = self.find(text.as_bytes()) else {
            return Cow::Borrowed(text);
        };
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for Range { start, end } in found {
            // A find inside an escape may begin or end within a character of the text.
            let start = floor_boundary(text, start).max(done);
            let end = ceil_boundary(text, end);
            out.push_str(&text[done..start]);
            out.push_str(MARKER);
            done = end;
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Like [`Redactor::redact`] for bytes that are mostly text.
    pub fn redact_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(found) = self.find(bytes) else {
            return Cow::Borrowed(bytes);
        };
        let mut out = Vec::with_capacity(bytes.len());
        let mut done = 0;
        for Range { start, end } in found {
            out.extend_from_slice(&bytes[done..start]);
            out.extend_from_slice(MARKER.as_bytes());
            done = end;
        }
        out.extend_from_slice(&bytes[done..]);
        Cow::Owned(out)
    }

    /// Where secrets stand, in order, apart from each other; `None` when nowhere.
    fn find(&self, bytes: &[u8]) -> Option<Vec<Range<usize>>> {
        let forms = self.forms.as_ref()?;
        let mut found = Vec::new();
        if forms.is_match(bytes) {
            for hit in forms.find_overlapping_iter(bytes) {
                note(&mut found, hit.start()..hit.end());
            }
        }
        for first in View::all(bytes) {
            first.search(forms, &mut found);
            if bytes.len() <= MAX_TWO_LAYERS {
                for second in View::all(&first.bytes) {
                    second.within(&first).search(forms, &mut found);
                }
            }
        }
        if found.is_empty() {
            return None;
        }
        found.sort_unstable_by_key(|hit| hit.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for hit in found {
            note(&mut merged, hit);
        }
        Some(merged)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.forms.as_ref().map_or(0, AhoCorasick::patterns_len);
        f.debug_struct("Redactor").field("forms", &forms).finish()
    }
}

/// Adds a find, to the last one where they touch: many finds side by side are one.
fn note(found: &mut Vec<Range<usize>>, hit: Range<usize>) {
    match found.last_mut() {
        Some(last) if last.start <= hit.start && hit.start <= last.end => {
            last.end = last.end.max(hit.end);
        }
        _ => found.push(hit),
    }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

fn add_forms(secret: &str, forms: &mut Vec<String>) {
    let trimmed = secret.trim();
    if trimmed.is_empty() {
        return;
    }
    for value in [secret, trimmed] {
        forms.push(value.to_owned());
        add_base64(value.as_bytes(), forms);
    }
    let lines: Vec<&str> = trimmed.lines().map(str::trim).collect();
    if lines.len() > 1 {
        let long = lines
            .into_iter()
            .filter(|line| line.chars().count() >= MIN_LINE);
        forms.extend(long.map(str::to_owned));
    }
    if trimmed.len() >= 4 {
        let digits = crate::hex_lower(trimmed.as_bytes());
        forms.push(digits.to_ascii_uppercase());
        forms.push(digits);
    }
}

/// The base64 digits that depend on `secret` alone, for each place it can have in a group of three bytes.
fn add_base64(secret: &[u8], forms: &mut Vec<String>) {
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(secret);
        // Digits that hold a bit of what stands before or after are not ours.
        let first = (before * 8).div_ceil(6);
        let last = (before + secret.len()) * 8 / 6;
        for digits in [
            STANDARD_NO_PAD.encode(&padded),
            URL_SAFE_NO_PAD.encode(&padded),
        ] {
            if last.saturating_sub(first) >= MIN_FRAGMENT {
                forms.push(digits[first..last].to_owned());
            }
            if before == 0 {
                add_whole(digits, forms);
            }
        }
    }
}

/// The whole base64 of a secret that stands alone: the last digit and the padding are part of it.
fn add_whole(digits: String, forms: &mut Vec<String>) {
    let padding = (4 - digits.len() % 4) % 4;
    if padding > 0 {
        forms.push(format!("{digits}{}", "=".repeat(padding)));
    }
    // Two or three digits alone are in any text.
    if digits.len() >= 4 {
        forms.push(digits);
    }
}

#[cfg(test)]
mod tests;
