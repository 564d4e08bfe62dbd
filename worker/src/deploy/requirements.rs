//! `requirements.txt`, read before the installer sees it: which lines are allowed, what they name,
//! and where each one stands.
//!
//! The installer never gets the repo's own files. It gets one flat text, made here of the lines
//! that are allowed, so that an option in the repo cannot choose an index, and so that each fault
//! has a line. The rules are written down in `docs/reference/contract.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ramen_group::Finding;

mod line;
mod reader;

use reader::Reader;

/// Where a line came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// `mcp/requirements.txt`.
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: u32,
}

/// A requirement that is built here, on this machine, before anything is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalSource {
    /// The folder or archive.
    pub(crate) path: PathBuf,
    /// `[extra]`, with its brackets, or nothing.
    pub(crate) extras: String,
    /// `; marker`, or nothing.
    pub(crate) marker: String,
    /// Where it is asked for.
    pub(crate) place: Place,
}

/// What to install.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    lines: Vec<(String, Place)>,
    constraints: Vec<String>,
    /// `--no-binary` values (only with sources allowed).
    pub(crate) no_binary: Vec<String>,
    /// Pre-releases are candidates.
    pub(crate) pre: bool,
    /// Hashes that the file pins, by normalised name.
    pub(crate) hashes: BTreeMap<String, BTreeSet<String>>,
    /// Folders with wheels of the repo.
    pub(crate) wheel_dirs: BTreeSet<PathBuf>,
    /// Folders and archives to build first.
    pub(crate) local: Vec<LocalSource>,
    /// A branch or tag is named, so that the same text can mean something new tomorrow.
    pub(crate) moving: bool,
    /// What is wrong.
    pub(crate) errors: Vec<Finding>,
    /// Remarks.
    pub(crate) warnings: Vec<Finding>,
}

impl Plan {
    /// Reads `requirements.txt` in `mcp` and all that it includes. `allow_sources` permits what has
    /// to be built, and thereby runs code at install time.
    pub(crate) fn read(mcp: &Path, allow_sources: bool) -> Self {
        let mut reader = Reader::new(mcp, allow_sources);
        if mcp.join("requirements.txt").exists() {
            reader.file(Path::new("requirements.txt"), false, None);
        }
        reader.finish()
    }

    /// Whether there is anything to install.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.local.is_empty()
    }

    /// The text for the installer.
    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .fold(String::new(), |text, (line, _)| text + line + "\n")
    }

    /// The constraints for the installer; empty when there are none.
    pub(crate) fn constraints_text(&self) -> String {
        self.constraints
            .iter()
            .fold(String::new(), |text, line| text + line + "\n")
    }

    /// Adds a requirement, such as a wheel that was built from a [`LocalSource`].
    pub(crate) fn push(&mut self, line: String, place: Place) {
        self.lines.push((line, place));
    }

    /// The place of the byte at `offset` of [`Self::text`].
    pub(crate) fn place_at(&self, offset: usize) -> Option<&Place> {
        let mut end = 0;
        self.lines.iter().find_map(|(line, place)| {
            end += line.len() + 1;
            (offset < end).then_some(place)
        })
    }

    /// The place of the first requirement whose name stands in `message`.
    pub(crate) fn place_in(&self, message: &str) -> Option<&Place> {
        let words: BTreeSet<String> = message
            .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
            .map(|word| normalise(word.trim_matches('.')))
            .collect();
        self.lines
            .iter()
            .find(|(line, _)| words.contains(&normalise(name_of(line))))
            .map(|(_, place)| place)
    }
}

/// The name at the start of a requirement.
fn name_of(requirement: &str) -> &str {
    let end = requirement
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .unwrap_or(requirement.len());
    &requirement[..end]
}

/// A project name as indexes compare it: lower case, runs of `-`, `_`, `.` as one `-`.
pub(crate) fn normalise(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '-' | '_' | '.') {
            if !out.ends_with('-') {
                out.push('-');
            }
        } else {
            out.push(c.to_ascii_lowercase());
        }
    }
    out
}

/// `name`, `version` of a wheel's file name.
pub(crate) fn wheel_name(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".whl")?.split('-');
    let (name, version) = (parts.next()?, parts.next()?);
    (parts.count() >= 3 && !name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| (normalise(name), version.to_owned()))
}

fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file)
        .extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

#[cfg(test)]
mod tests;
