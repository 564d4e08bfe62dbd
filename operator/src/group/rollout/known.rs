//! What a deploy found, cut to what a status holds.

use ramen_crds::{DeployTimings, ErrorEntry, PackageStatus};
use ramen_group::{Finding, Outcome, PackageKind, Report, ReportPackage, shorten};
use ramen_rollout::{Inputs, Revision};
use serde::{Deserialize, Serialize};

use crate::reload::{Expected, Offer};

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
    /// What it offers in all; absent in what an older operator remembered, and where there are no packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer: Option<Offer>,
    /// Where the time went.
    pub(crate) timings: DeployTimings,
}

impl Known {
    pub(crate) fn new(inputs: Inputs, revision: Revision, report: &Report) -> Self {
        let packages = report.packages.iter();
        let offer = Offer::of(&report.packages);
        let timings = report.timings;
        Self {
            inputs,
            revision,
            outcome: report.outcome,
            errors: report.errors.iter().take(MAX_ERRORS).map(entry).collect(),
            errors_total: report.errors_in_all(),
            tools: offer.tools(),
            packages: packages
                .take(MAX_PACKAGES)
                .map(|package| PackageStatus {
                    kind: package.kind.as_str().to_owned(),
                    name: cut(&package.name, 64),
                    ok: package.ok,
                })
                .collect(),
            offer: (!report.packages.is_empty()).then_some(offer),
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
    /// What a worker that loaded it must offer; absent when that is not known any more.
    pub(crate) fn expected(&self) -> Option<Expected> {
        let reported: Vec<ReportPackage> = self.packages.iter().filter_map(reported).collect();
        let all = !reported.is_empty() && reported.len() < MAX_PACKAGES;
        let offer = self.offer.clone();
        let offer = offer.or_else(|| all.then(|| Offer::of(&reported)))?;
        let tools = reported
            .into_iter()
            .filter(|package| package.ok && package.kind == PackageKind::Tool);
        Some(Expected {
            offer,
            tools: tools.map(|package| package.name).collect(),
        })
    }
}

/// A package as a report names it.
fn reported(package: &PackageStatus) -> Option<ReportPackage> {
    Some(ReportPackage {
        kind: PackageKind::parse(&package.kind)?,
        name: package.name.clone(),
        description: None,
        ok: package.ok,
        uri: None,
    })
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

    fn known(report: &serde_json::Value) -> Known {
        let report: Report = serde_json::from_value(report.clone()).unwrap();
        let (inputs, revision) = super::super::tests::named("a");
        Known::new(inputs, revision, &report)
    }

    #[test]
    fn a_worker_is_held_to_all_packages_however_many_are_remembered() {
        let tools = |tools: usize| {
            let names = (0..tools).map(|n| format!("t{n:03}"));
            let tool = |name: String| serde_json::json!({"kind": "tool", "name": name, "ok": true});
            known(&serde_json::json!({
                "outcome": "ok", "packages": names.map(tool).collect::<Vec<_>>(),
            }))
        };
        let many = tools(510);
        assert_eq!((many.tools, many.packages.len()), (510, MAX_PACKAGES));
        let expected = many.expected().unwrap();
        assert_eq!((expected.offer.tools(), expected.tools.len()), (510, 500));
        // Of an older operator: what it did not cut is as good, of the rest the numbers are not known.
        for (of, wanted) in [(tools(3), true), (many, false)] {
            let old = Known { offer: None, ..of };
            assert_eq!(old.expected().is_some(), wanted);
        }
        let three = tools(3);
        let old = Known {
            offer: None,
            ..three.clone()
        };
        assert_eq!(old.expected(), three.expected());
        let none = known(&serde_json::json!({"outcome": "failed"}));
        assert_eq!(none.expected(), None);
    }

    #[test]
    fn two_thousand_errors_of_ten_kib_are_fifty_of_half_a_kib_and_the_total() {
        let long = "é".repeat(5 << 10);
        let errors = vec![Finding::package("tools/calc", Reason::ImportFailed, long); 2000];
        let known = known(&serde_json::json!({"errors": errors, "outcome": "failed"}));
        assert_eq!((known.errors.len(), known.errors_total), (50, 2000));
        assert!(known.errors.iter().all(|entry| entry.message.len() <= 512));
        assert!(known.errors[0].message.ends_with("é…"));
    }
}
