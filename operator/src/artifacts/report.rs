//! What is believed of a report. It comes from a pod that ran the group's code: texts are cut, and what
//! the operator knows itself is put in its place.

use std::collections::HashMap;

use ramen_group::{Finding, LayerRef, Outcome, Report, shorten};
use ramen_source::Digest;

const MAX_MESSAGE: usize = 4096;
const MAX_NAME: usize = 256;
const MAX_FINDINGS: usize = 5000;
const MAX_PACKAGES: usize = 2000;
const MAX_LOG: usize = 1 << 20;

/// Reads a report about `code`; its layer of requirements must be one of `deps`.
pub(crate) fn read(
    json: &[u8],
    code: &LayerRef,
    deps: &HashMap<Digest, LayerRef>,
) -> Result<Report, &'static str> {
    let report: Report = serde_json::from_slice(json).map_err(|_| "not a report")?;
    let deps = match &report.deps {
        None => None,
        Some(named) => {
            let digest = named.digest.parse::<Digest>();
            let digest = digest.map_err(|_| "the digest of the deps layer is none")?;
            let known = deps.get(&digest);
            Some(known.ok_or("the deps layer was not handed over")?.clone())
        }
    };
    if let Some(python) = &report.python
        && !is_python(python)
    {
        return Err("the Python version is none");
    }
    let mut report = Report {
        tree: Some(code.key.clone()),
        // A report that ends before the code was read has none, and cannot be served.
        code: report.code.as_ref().map(|_| code.clone()),
        deps,
        ..report
    };
    report.truncate(MAX_FINDINGS);
    for list in [&mut report.errors, &mut report.warnings] {
        list.iter_mut().for_each(tidy);
    }
    report.packages.truncate(MAX_PACKAGES);
    for package in &mut report.packages {
        line(&mut package.name, MAX_NAME);
        for text in [&mut package.description, &mut package.uri]
            .into_iter()
            .flatten()
        {
            line(text, MAX_MESSAGE);
        }
    }
    shorten(&mut report.log, MAX_LOG);
    // Never better than its own entries.
    if Outcome::of(&report.packages, &report.errors) == Outcome::Failed {
        report.outcome = Outcome::Failed;
    } else if report.outcome == Outcome::Ok && !report.errors.is_empty() {
        report.outcome = Outcome::Partial;
    }
    Ok(report)
}

fn is_python(text: &str) -> bool {
    let minor = text.strip_prefix("3.").unwrap_or_default();
    (1..=2).contains(&minor.len()) && minor.bytes().all(|b| b.is_ascii_digit())
}

fn tidy(finding: &mut Finding) {
    line(&mut finding.message, MAX_MESSAGE);
    for text in [&mut finding.package, &mut finding.path]
        .into_iter()
        .flatten()
    {
        line(text, MAX_NAME * 2);
    }
}

/// Without control characters but line breaks, and cut.
fn line(text: &mut String, bytes: usize) {
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(control) {
        *text = text.replace(control, "\u{fffd}");
    }
    shorten(text, bytes);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn layer(name: &str) -> LayerRef {
        LayerRef {
            key: name.into(),
            digest: Digest::of(name.as_bytes()).to_string(),
            size: 7,
        }
    }

    fn good() -> Value {
        json!({
            "revision": "main@sha1:1", "tree": "lies", "python": "3.11", "group": "g",
            "code": layer("elsewhere"), "deps": layer("deps"),
            "packages": [{"kind": "tool", "name": "calc", "ok": true}],
            "outcome": "ok",
        })
    }

    fn judge(report: &Value) -> Result<Report, &'static str> {
        let known = LayerRef {
            key: "scope-deps".into(),
            ..layer("deps")
        };
        let deps = HashMap::from([(Digest::of(b"deps"), known)]);
        read(report.to_string().as_bytes(), &layer("code"), &deps)
    }

    #[test]
    fn layers_are_those_that_the_operator_knows() {
        let report = judge(&good()).unwrap();
        assert_eq!(report.code, Some(layer("code")));
        assert_eq!(report.tree.as_deref(), Some("code"));
        assert_eq!(report.deps.unwrap().key, "scope-deps");
        let mut stranger = good();
        stranger["deps"] = json!(layer("stranger"));
        assert_eq!(judge(&stranger), Err("the deps layer was not handed over"));
        stranger["deps"]["digest"] = "sha256:x".into();
        assert!(judge(&stranger).is_err());
        for python in ["2.7", "3.", "3.111", "3.1/../..", "../3.11"] {
            let mut other = good();
            other["python"] = python.into();
            assert!(judge(&other).is_err(), "{python}");
        }
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        let mut report = good();
        let message = format!("a\u{1b}[31m\0{}", "ü".repeat(100_000));
        let finding = |message: &str| json!({"package": "tools/x", "reason": "ImportFailed", "message": message});
        let mut errors = vec![finding("short"); 6000];
        errors[0] = finding(&message);
        report["errors"] = errors.into();
        let report = judge(&report).unwrap();
        assert_eq!(report.errors.len(), MAX_FINDINGS);
        assert_eq!(report.errors_in_all(), 6000);
        let message = &report.errors[0].message;
        assert!(message.len() <= MAX_MESSAGE && message.ends_with('…'));
        assert!(!message.contains(['\u{1b}', '\0']));
        assert_eq!(report.outcome, Outcome::Partial);
    }

    #[test]
    fn a_verdict_is_never_better_than_the_entries() {
        let mut report = good();
        report["errors"] = json!([{"reason": "GoldenFailed", "message": "x"}]);
        assert_eq!(judge(&report).unwrap().outcome, Outcome::Failed);
        report["errors"] = json!([]);
        report["packages"] = json!([]);
        assert_eq!(judge(&report).unwrap().outcome, Outcome::Failed);
        for junk in [
            &b""[..],
            b"null",
            b"[]",
            b"{}",
            b"\xff",
            b"{\"outcome\":\"ok\",\"packages\":3}",
        ] {
            let junk = read(junk, &layer("code"), &HashMap::new());
            assert_eq!(junk, Err("not a report"));
        }
    }
}
