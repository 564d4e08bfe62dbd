//! What the installer and the code printed: redacted, bounded, for `report.json`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use ramen_redact::{Redactor, mask_urls};

/// Bytes kept from the start, and as many from the end.
const HALF: usize = 32 * 1024;
/// Bytes of one line.
const LINE: usize = 4 * 1024;

/// A log that many tasks write to. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunLog {
    redactor: Redactor,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    dropped: u64,
}

impl RunLog {
    /// An empty log that masks what `redactor` knows.
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            kept: Arc::default(),
        }
    }

    /// What masks the secrets.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The text without secrets and without passwords in addresses.
    pub(crate) fn clean(&self, text: &str) -> String {
        mask_urls(&self.redactor.redact(text)).into_owned()
    }

    /// Adds one line; `source` says whose it is.
    pub(crate) fn line(&self, source: &str, text: &str) {
        let mut line = format!("[{source}] {}", cut(self.clean(text).trim_end(), LINE));
        line.push('\n');
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.tail.is_empty() && kept.head.len() + line.len() <= HALF {
            kept.head.push_str(&line);
            return;
        }
        kept.tail_bytes += line.len();
        kept.tail.push_back(line);
        while kept.tail_bytes > HALF {
            let Some(oldest) = kept.tail.pop_front() else {
                break;
            };
            kept.tail_bytes -= oldest.len();
            kept.dropped += 1;
        }
    }

    /// Adds every line of a text.
    pub(crate) fn lines(&self, source: &str, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.line(source, line);
        }
    }

    /// All that was kept.
    pub(crate) fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = kept.head.clone();
        if kept.dropped > 0 {
            let _ = writeln!(text, "[… {} lines left out]", kept.dropped);
        }
        text.extend(kept.tail.iter().map(String::as_str));
        text
    }
}

/// At most `limit` bytes of `text`, cut between characters.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_start_and_the_end() {
        let log = RunLog::new(Redactor::none());
        for number in 0..10_000 {
            log.line("uv", &format!("line number {number}"));
        }
        let text = log.text();
        assert!(text.len() < 2 * HALF + 100, "{}", text.len());
        assert!(text.starts_with("[uv] line number 0\n"));
        assert!(text.ends_with("[uv] line number 9999\n"));
        assert!(text.contains("lines left out]"));
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "ä…");
        assert_eq!(cut("äöü", 6), "äöü");
    }

    #[test]
    fn secrets_and_passwords_in_addresses_are_masked() {
        let log = RunLog::new(Redactor::new(["hunter2000"]));
        log.line(
            "uv",
            "get https://me:pa55word@index.test/simple with hunter2000",
        );
        let text = log.text();
        assert!(
            !text.contains("pa55word") && !text.contains("hunter2000"),
            "{text}"
        );
    }
}
