//! The text of a lock, as `uv pip compile` writes it: requirements, each with its hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::super::requirements::normalise;

/// The lines of a lock, each with its hashes.
fn entries(lock: &str) -> Vec<(String, Vec<String>)> {
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for line in lock.lines() {
        let text = line.trim().trim_end_matches('\\').trim_end();
        if let Some(hash) = text.strip_prefix("--hash=") {
            if let Some((_, hashes)) = entries.last_mut() {
                hashes.push(hash.to_owned());
            }
        } else if !text.is_empty() && !text.starts_with(['#', '-']) {
            entries.push((text.to_owned(), Vec::new()));
        }
    }
    entries
}

fn render(entries: &[(String, Vec<String>)]) -> String {
    let mut text = String::new();
    for (requirement, hashes) in entries {
        text.push_str(requirement);
        for hash in hashes {
            let _ = write!(text, " \\\n    --hash={hash}");
        }
        text.push('\n');
    }
    text
}

/// `uv pip compile` lists the hashes of the index whatever the file pins: the pinned ones count.
pub(super) fn with_pinned_hashes(
    lock: &str,
    pinned: &BTreeMap<String, BTreeSet<String>>,
) -> String {
    let mut entries = entries(lock);
    for (requirement, hashes) in &mut entries {
        let end = requirement
            .find(['=', '[', ' ', '@', ';'])
            .unwrap_or(requirement.len());
        if let Some(pinned) = pinned.get(&normalise(&requirement[..end])) {
            *hashes = pinned.iter().cloned().collect();
        }
    }
    render(&entries)
}

/// Entries with hashes, and those that cannot have one (version control).
pub(super) fn split_lock(lock: &str) -> (String, String) {
    let (hashed, unhashed): (Vec<_>, Vec<_>) = entries(lock)
        .into_iter()
        .partition(|(_, hashes)| !hashes.is_empty());
    (render(&hashed), render(&unhashed))
}

/// How many packages a lock names.
pub(super) fn packages(lock: &str) -> u64 {
    entries(lock).len() as u64
}
