//! Cuts a report to what the endpoint takes.

use ramen_group::Report;

/// Bytes of a report on its way.
pub(super) const MAX_REPORT: usize = 8 << 20;

/// The report as JSON of at most [`MAX_REPORT`] bytes: what is long is cut, step by step, the verdict
/// and the layers last.
pub(super) fn fitted(report: &Report) -> Vec<u8> {
    let mut report = report.clone();
    // (bytes of a message, bytes of the log, entries)
    let steps = [
        (4096, 1 << 20, 5000),
        (1024, 64 << 10, 2000),
        (256, 4 << 10, 500),
        (128, 0, 50),
    ];
    for (message, log, entries) in steps {
        let json = json(&report);
        if json.len() <= MAX_REPORT {
            return json;
        }
        cut(&mut report.log, log);
        report.lock = None;
        for list in [&mut report.errors, &mut report.warnings] {
            list.truncate(entries);
            for finding in list {
                cut(&mut finding.message, message);
                if let Some(path) = &mut finding.path {
                    cut(path, message);
                }
            }
        }
        for package in &mut report.packages {
            if let Some(text) = &mut package.description {
                cut(text, message);
            }
        }
    }
    json(&report)
}

fn json(report: &Report) -> Vec<u8> {
    // A report has string keys only.
    serde_json::to_vec(report).unwrap_or_default()
}

/// Cuts a text to at most `bytes`, on a character, and says so.
fn cut(text: &mut String, bytes: usize) {
    const MORE: &str = "…";
    if text.len() <= bytes {
        return;
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(MORE.len()));
    text.truncate(end);
    text.push_str(MORE);
}
