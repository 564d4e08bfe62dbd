//! What a deploy found, cut to what a status holds.

use ramen_crds::{DeployTimings, ErrorEntry, PackageStatus};
use ramen_group::{Finding, Outcome, PackageKind, Report, ReportPackage, shorten};
use ramen_rollout::{Inputs, Revision};
use serde::{Deserialize, Serialize};

/// Entries of the errors list in a status.
pub(crate) const MAX_ERRORS: usize = 50;
/// Bytes of one text of an entry.
pub(crate) const MAX_TEXT: usize = 512;
/// Packages in a status.
const MAX_PACKAGES: usize = 500;

/// What a deploy found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Known {
    /// From what.
    pub(crate) inputs: Inputs,
    /// Of which revision.
    pub(crate) revision: Revision,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// At most 50.
    pub(crate) errors: Vec<ErrorEntry>,
    /// How many there were.
    pub(crate) errors_total: u32,
    /// Tools that serve.
    pub(crate) tools: u32,
    /// All packages, at most 500.
    pub(crate) packages: Vec<PackageStatus>,
    /// Where the time went.
    pub(crate) timings: DeployTimings,
}

impl Known {
    pub(crate) fn new(inputs: Inputs, revision: Revision, report: &Report) -> Self {
        let packages = report.packages.iter();
        let tools = packages
            .clone()
            .filter(|package| package.ok && package.kind == PackageKind::Tool)
            .count();
        let timings = report.timings;
        Self {
            inputs,
            revision,
            outcome: report.outcome,
            errors: report.errors.iter().take(MAX_ERRORS).map(entry).collect(),
            errors_total: report.errors_in_all(),
            tools: count(tools),
            packages: packages
                .take(MAX_PACKAGES)
                .map(|package| PackageStatus {
                    kind: package.kind.as_str().to_owned(),
                    name: cut(&package.name, 64),
                    ok: package.ok,
                })
                .collect(),
            timings: DeployTimings {
                fetch_ms: timings.fetch_ms.unwrap_or_default(),
                resolve_ms: timings.resolve_ms,
                install_ms: timings.install_ms,
                import_ms: timings.import_ms,
                tests_ms: timings.tests_ms,
                total_ms: timings.total_ms,
            },
        }
    }
}

impl Known {
    /// The packages as a report names them.
    pub(crate) fn reported(&self) -> impl Iterator<Item = ReportPackage> {
        self.packages.iter().filter_map(|package| {
            Some(ReportPackage {
                kind: PackageKind::parse(&package.kind)?,
                name: package.name.clone(),
                description: None,
                ok: package.ok,
                uri: None,
            })
        })
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// An entry of the errors list, cut.
pub(crate) fn entry(finding: &Finding) -> ErrorEntry {
    ErrorEntry {
        package: finding.package.as_deref().map(|package| cut(package, 256)),
        reason: finding.reason.as_str().to_owned(),
        message: cut(&finding.message, MAX_TEXT),
        path: finding.path.as_deref().map(|path| cut(path, MAX_TEXT)),
        line: finding.line,
    }
}

/// Cut to so many bytes.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let mut text = text.to_owned();
    shorten(&mut text, max);
    text
}

#[cfg(test)]
mod tests {
    use ramen_group::Reason;

    use super::*;

    #[test]
    fn two_thousand_errors_of_ten_kib_are_fifty_of_half_a_kib_and_the_total() {
        let long = "é".repeat(5 << 10);
        let errors = vec![Finding::package("tools/calc", Reason::ImportFailed, long); 2000];
        let report: Report = serde_json::from_value(serde_json::json!({
            "errors": errors, "outcome": "failed",
        }))
        .unwrap();
        let (inputs, revision) = super::super::tests::named("a");
        let known = Known::new(inputs, revision, &report);
        assert_eq!((known.errors.len(), known.errors_total), (50, 2000));
        assert!(known.errors.iter().all(|entry| entry.message.len() <= 512));
        assert!(known.errors[0].message.ends_with("é…"));
    }
}
