//! Cuts a report to what is taken of it.

use super::Report;

impl Report {
    /// Bytes of a report on its way, as JSON.
    pub const MAX_BYTES: usize = 8 << 20;

    /// How many entries the errors list has in all, those that were left out with the rest.
    pub fn errors_in_all(&self) -> u32 {
        let listed = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        self.errors_total.unwrap_or_default().max(listed)
    }

    /// Leaves out what is beyond so many errors, which are still counted, and so many warnings.
    pub fn truncate(&mut self, entries: usize) {
        if self.errors.len() > entries {
            self.errors_total = Some(self.errors_in_all());
        }
        self.errors.truncate(entries);
        self.warnings.truncate(entries);
    }

    /// As JSON of at most [`Self::MAX_BYTES`]: what is long is cut, step by step, the verdict and the layers last.
    pub fn to_fitting_json(&self) -> Vec<u8> {
        let mut report = self.clone();
        // (bytes of a message, bytes of the log, entries)
        let steps = [
            (4096, 1 << 20, 5000),
            (1024, 64 << 10, 2000),
            (256, 4 << 10, 500),
            (128, 0, 50),
        ];
        for (message, log, entries) in steps {
            let json = report.to_json();
            if json.len() <= Self::MAX_BYTES {
                return json;
            }
            shorten(&mut report.log, log);
            report.lock = None;
            report.truncate(entries);
            for finding in report.errors.iter_mut().chain(&mut report.warnings) {
                shorten(&mut finding.message, message);
                if let Some(path) = &mut finding.path {
                    shorten(path, message);
                }
            }
            for package in &mut report.packages {
                if let Some(text) = &mut package.description {
                    shorten(text, message);
                }
            }
        }
        report.to_json()
    }

    fn to_json(&self) -> Vec<u8> {
        // A report has string keys only.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Cuts a text to at most `bytes`, on a character, with `…` at the end when something is missing.
pub fn shorten(text: &mut String, bytes: usize) {
    const MORE: &str = "…";
    if text.len() <= bytes {
        return;
    }
    text.truncate(text.floor_char_boundary(bytes.saturating_sub(MORE.len())));
    text.push_str(MORE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finding, Outcome, Reason};

    fn failed() -> Report {
        serde_json::from_value(serde_json::json!({"outcome": "failed"})).unwrap()
    }

    fn with(message: &str, errors: usize) -> Report {
        let entry = Finding::package("tools/x", Reason::ImportFailed, message);
        Report {
            errors: vec![entry; errors],
            ..failed()
        }
    }

    fn on_its_way(report: &Report) -> Report {
        let json = report.to_fitting_json();
        assert!(json.len() <= Report::MAX_BYTES);
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn two_thousand_errors_of_ten_kib_are_all_there_and_shorter() {
        let mut long = with(&"ü".repeat(5 << 10), 2000);
        long.log = "x".repeat(4 << 20);
        let cut = on_its_way(&long);
        assert_eq!(cut.outcome, Outcome::Failed);
        assert_eq!((cut.errors.len(), cut.errors_in_all()), (2000, 2000));
        assert!(cut.errors[0].message.ends_with("ü…"));
        assert_eq!(on_its_way(&failed()), failed());
    }

    #[test]
    fn errors_that_are_left_out_are_counted_all_the_same() {
        // In JSON each of these takes six bytes.
        let cut = on_its_way(&with(&"\u{1}".repeat(400), 5100));
        assert!(cut.errors.len() < 5100 && !cut.errors.is_empty());
        assert_eq!(cut.errors_in_all(), 5100);
        // And cut once more where it comes in.
        let mut again = cut;
        again.truncate(10);
        assert_eq!((again.errors.len(), again.errors_in_all()), (10, 5100));
    }

    #[test]
    fn texts_are_cut_on_a_character() {
        for (text, bytes, wanted) in [
            ("short", 5, "short"),
            ("longer", 5, "lo…"),
            ("üüü", 5, "ü…"),
            ("ramen", 2, "…"),
        ] {
            let mut cut = text.to_owned();
            shorten(&mut cut, bytes);
            assert_eq!(cut, wanted);
        }
    }
}
