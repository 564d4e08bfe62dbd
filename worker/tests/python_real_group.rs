//! `examples/real-group` with the package index, a real `uv` and a real host. The only test here
//! that needs the network.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ramen_group::{Outcome, Report};

#[path = "support/pythons.rs"]
mod pythons;

fn bin_dir() -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_ramen-worker"))
        .parent()
        .unwrap();
    std::env::var_os("RAMEN_BIN_DIR").map_or_else(|| own.to_owned(), PathBuf::from)
}

fn deploy(example: &str, python: &str, dir: &Path) -> Report {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramen-worker"));
    command.args([
        "deploy",
        "--python",
        python,
        "--progress",
        "none",
        "--group",
        "real-group",
    ]);
    command
        .arg("--code-dir")
        .arg(root.join("examples").join(example));
    command.arg("--store").arg(dir.join("store"));
    command.arg("--out").arg(dir.join("out"));
    command.arg("--host-dir").arg(bin_dir());
    if std::env::var_os("RAMEN_UV").is_none() {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default();
        let venv = home.join(".cache/ramen/venv/bin/uv");
        command.env("RAMEN_UV", if venv.is_file() { venv } else { "uv".into() });
    }
    let output = command.output().unwrap();
    let report = std::fs::read(dir.join("out/report.json"));
    let report = report.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&report).unwrap()
}

#[test]
fn the_demo_group_is_ok_without_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let report = deploy("demo-group", "3.11", dir.path());
    assert_eq!(report.outcome, Outcome::Ok, "{:#?}", report.errors);
    assert_eq!(report.golden.passed, 3);
    assert!(report.deps.is_none());
    assert_eq!(report.packages.len(), 3);
}

#[test]
fn published_libraries_install_import_and_answer_their_golden_calls() {
    let dir = tempfile::tempdir().unwrap();
    let report = deploy("real-group", "3.11", dir.path());
    assert_eq!(
        report.outcome,
        Outcome::Ok,
        "{:#?}\n{}",
        report.errors,
        report.log
    );
    assert_eq!(report.golden.failed, 0);
    assert!(report.golden.passed >= 15);
    assert!(report.packages.len() >= 12);
    let lock = report.lock.unwrap();
    for name in [
        "numpy==2.4.6",
        "pandas==",
        "pydantic==",
        "markitdown==",
        "mcp-server-time==",
    ] {
        assert!(lock.contains(name), "{name}: {lock}");
    }
    // The one that prints: in the log, not in its answer.
    assert!(report.log.contains("writing 2 sections"), "{}", report.log);
    let skipped = report
        .warnings
        .iter()
        .filter(|w| w.message.contains("SHOP_LICENCE"))
        .count();
    assert_eq!(skipped, 1, "{:#?}", report.warnings);

    // Unchanged requirements: everything is known.
    let again = deploy("real-group", "3.11", dir.path());
    assert_eq!(again.outcome, Outcome::Ok, "{:#?}", again.errors);
    assert_eq!(again.deps, report.deps);
}

#[test]
fn published_libraries_answer_on_the_newest_python_too() {
    let pythons = pythons::wanted(&bin_dir());
    let [_, .., newest] = &pythons[..] else {
        ramen_skip::say("a real group on the newest Python: RAMEN_TEST_PYTHONS=all tests with it");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let report = deploy("real-group", newest, dir.path());
    assert_eq!(
        report.outcome,
        Outcome::Ok,
        "{newest}: {:#?}\n{}",
        report.errors,
        report.log
    );
    assert_eq!(report.golden.failed, 0);
    assert!(report.golden.passed >= 15);
    assert_eq!(report.desired_state().unwrap().python, *newest);
}
