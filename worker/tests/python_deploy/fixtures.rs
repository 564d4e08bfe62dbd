//! The repo's fixtures through the whole step: every rejection case is the entry that its
//! `expected.json` promises, and what is good serves.

use std::path::{Path, PathBuf};

use ramen_group::{Finding, Outcome};
use serde_json::Value;

use crate::kit::{Kit, each_python};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("tests/fixtures")
}

fn expected(folder: &Path) -> Vec<Value> {
    let text = std::fs::read(folder.join("expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Whether a finding is what `expected.json` says; what it leaves out may be anything.
fn fits(finding: &Finding, expected: &Value) -> bool {
    let finding = serde_json::to_value(finding).unwrap();
    let same = ["package", "reason", "path", "line", "column"]
        .iter()
        .all(|field| {
            expected
                .get(field)
                .is_none_or(|value| finding.get(field) == Some(value))
        });
    let message = finding["message"].as_str().unwrap();
    same && expected
        .get("says")
        .is_none_or(|part| message.contains(part.as_str().unwrap()))
}

#[test]
fn every_rejection_case_of_broken_group_is_its_entry_and_the_good_tool_serves() {
    let kit = Kit::new();
    let folder = fixtures().join("broken_group");
    let ran = kit.deploy_with(&[
        "--code-dir",
        folder.to_str().unwrap(),
        "--import-timeout",
        "5",
    ]);
    let errors = &ran.report.errors;
    assert_eq!(ran.report.outcome, Outcome::Partial, "{:#?}", ran.errors());
    assert_eq!(ran.serving(), ["good_tool"]);
    let expected = expected(&folder);
    let missing: Vec<_> = expected
        .iter()
        .filter(|wanted| !errors.iter().any(|finding| fits(finding, wanted)))
        .map(|wanted| {
            let of = |f: &&Finding| f.package.as_deref() == wanted["package"].as_str();
            format!(
                "{wanted}\n  instead: {:?}",
                errors.iter().filter(of).collect::<Vec<_>>()
            )
        })
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let surplus: Vec<_> = errors
        .iter()
        .filter(|finding| !expected.iter().any(|wanted| fits(finding, wanted)))
        .collect();
    assert!(surplus.is_empty(), "{surplus:#?}");
}

#[test]
fn every_file_beside_the_packages_has_its_cases() {
    let mut cases: Vec<_> = std::fs::read_dir(fixtures().join("broken_files"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    for folder in cases {
        let kit = Kit::new();
        let ran = kit.deploy_with(&["--code-dir", folder.to_str().unwrap(), "--no-install"]);
        let name = folder.file_name().unwrap().to_string_lossy();
        // A fixture with nothing but the broken file serves nothing in any case.
        for wanted in expected(&folder) {
            assert!(
                ran.report
                    .errors
                    .iter()
                    .any(|finding| fits(finding, &wanted)),
                "{name}: {wanted}\n{:#?}",
                ran.report.errors
            );
        }
        assert_ne!(ran.report.outcome, Outcome::Ok, "{name}");
    }
}

#[test]
fn the_good_group_serves_as_a_whole() {
    each_python(|python| {
        let kit = Kit::on(python);
        let folder = fixtures().join("good_group");
        let ran = kit
            .deploy_with(&["--code-dir", folder.to_str().unwrap()])
            .ok();
        assert_eq!(ran.report.golden.failed, 0);
        assert!(ran.report.packages.len() >= 4);
        assert_eq!(ran.report.desired_state().unwrap().python, python);
    });
}
