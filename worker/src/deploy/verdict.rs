//! The report before anything is known, and the verdict once all is.

use ramen_group::{Finding, Golden, Outcome, PackageKind, Reason, Report, ReportPackage, Timings};

use super::DeployArgs;

/// A report with nothing in it.
pub(super) fn empty_report(args: &DeployArgs) -> Report {
    Report {
        revision: args.revision.clone(),
        tree: None,
        python: args.python.clone(),
        group: Some(args.group.clone()),
        code: None,
        deps: None,
        packages: Vec::new(),
        errors: Vec::new(),
        errors_total: None,
        warnings: Vec::new(),
        lock: None,
        lock_key: None,
        golden: Golden::default(),
        timings: Timings::default(),
        log: String::new(),
        outcome: Outcome::Failed,
    }
}

/// Marks the packages that have an entry, adds those that never got as far as a scan, and judges.
pub(super) fn settle(report: &mut Report) {
    for finding in &report.errors {
        let Some(id) = &finding.package else { continue };
        if let Some(package) = report
            .packages
            .iter_mut()
            .find(|package| &package.id() == id)
        {
            package.ok = false;
        } else if let Some((folder, name)) = id.split_once('/')
            && let Some(kind) = PackageKind::ALL
                .into_iter()
                .find(|kind| kind.folder() == folder)
        {
            let name = name.to_owned();
            report.packages.push(ReportPackage {
                kind,
                name,
                description: None,
                ok: false,
                uri: None,
            });
        }
    }
    if report.packages.is_empty() && report.errors.is_empty() {
        let message = "mcp/ holds no package: nothing under tools/, resources/ or prompts/";
        report
            .errors
            .push(Finding::group(Reason::NothingToServe, message));
    }
    report.outcome = Outcome::of(&report.packages, &report.errors);
    for list in [&mut report.errors, &mut report.warnings] {
        let mut seen = Vec::new();
        list.retain(|finding| {
            let new = !seen.contains(finding);
            if new {
                seen.push(finding.clone());
            }
            new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: DeployArgs,
    }

    fn report(errors: Vec<Finding>) -> Report {
        let line = ["x", "--code-dir", "d", "--store", "s", "--out", "o"];
        let Line { args } = <Line as clap::Parser>::parse_from(line);
        let package = |name: &str| ReportPackage {
            kind: PackageKind::Tool,
            name: name.into(),
            description: None,
            ok: true,
            uri: None,
        };
        let packages = vec![package("a"), package("b")];
        let mut report = Report {
            packages,
            errors,
            ..empty_report(&args)
        };
        settle(&mut report);
        report
    }

    #[test]
    fn one_bad_package_leaves_the_revision_partly_ok() {
        let report = report(vec![Finding::package("tools/a", Reason::ImportFailed, "x")]);
        assert_eq!(report.outcome, Outcome::Partial);
        assert_eq!(report.exclude(), ["tools/a"]);
    }

    #[test]
    fn a_package_that_was_refused_before_the_scan_is_listed_as_not_ok() {
        let report = report(vec![Finding::package(
            "tools/c",
            Reason::SymlinkRefused,
            "x",
        )]);
        assert_eq!(report.packages.len(), 3);
        assert_eq!(report.outcome, Outcome::Partial);
    }

    #[test]
    fn a_failed_golden_call_fails_the_revision() {
        let report = report(vec![Finding::group(Reason::GoldenFailed, "x")]);
        assert_eq!(report.outcome, Outcome::Failed);
        assert!(report.desired_state().is_none());
    }
}
