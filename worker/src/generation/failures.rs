//! What the log says about calls that the author's code failed: which package, which exception, which line of it. Never
//! the message and never the arguments: both hold what a caller sent.

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines within one [`SPAN`]; a tool that fails thousands of times a second must not fill a disk.
const LINES: u32 = 20;
const SPAN: Duration = Duration::from_secs(1);

/// Writes the lines, bounded in number.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Quota>);

/// How many lines the span that runs has, and how many were left out since the last line.
#[derive(Debug, Default)]
struct Quota {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Quota {
    /// Whether a line may be written now; if so, how many were left out before it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self
            .began
            .is_none_or(|began| now.duration_since(began) >= SPAN)
        {
            (self.began, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Failures {
    /// Tells of one failed call. `place` is what the host says about the line.
    pub(crate) fn tell(&self, package: &str, kind: &str, place: Option<&[u8]>) {
        let Some(left_out) = crate::hosts::lock(&self.0).take(Instant::now()) else {
            return;
        };
        let place = place.map(String::from_utf8_lossy);
        let place = place.as_deref();
        let left_out = (left_out > 0).then_some(left_out);
        tracing::warn!(
            package,
            exception = kind,
            place,
            left_out,
            "a call failed in its code"
        );
    }
}

/// `ValueError` of `ValueError: message`. What is no name of a class is not repeated.
pub(super) fn kind_of(text: &[u8]) -> Cow<'_, str> {
    let end = text
        .iter()
        .position(|byte| *byte == b':')
        .unwrap_or(text.len());
    let name = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
    let fits = name.len() <= 128
        && !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    if fits {
        name
    } else {
        Cow::Borrowed("Exception")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_class_of_an_exception_is_told() {
        for (text, kind) in [
            ("ValueError: s3cr3t", "ValueError"),
            ("SystemExit", "SystemExit"),
            ("Fehlerüber: x", "Fehlerüber"),
            ("a b: c", "Exception"),
            ("", "Exception"),
        ] {
            assert_eq!(kind_of(text.as_bytes()), kind);
        }
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let mut quota = Quota::default();
        let begin = Instant::now();
        for _ in 0..LINES {
            assert_eq!(quota.take(begin), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(quota.take(begin + SPAN / 2), None);
        }
        assert_eq!(quota.take(begin + SPAN), Some(7));
        assert_eq!(quota.take(begin + SPAN), Some(0));
    }
}
