//! What is left out, or went well only when it was tried again, is told at the end of a run.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs lanes: a name and a command each.
fn lanes(words: &[&str]) -> (Output, String) {
    let output = Command::new(project().join("scripts/lanes.sh"))
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    (output, said)
}

#[test]
fn a_test_that_is_left_out_is_in_the_file_that_is_named() {
    const CHILD: &str = "RAMEN_SKIP_CHILD";
    if env::var_os(CHILD).is_some() {
        ramen_skip::say("there is no moon");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skipped");
    for _ in 0..2 {
        let output = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "a_test_that_is_left_out_is_in_the_file_that_is_named",
            ])
            .env(CHILD, "1")
            .env(ramen_skip::FILE, &file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("there is no moon"), "{said}");
    }
    let lines = fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    for line in lines.lines() {
        assert!(
            line.starts_with("SKIPPED ") && line.ends_with(": there is no moon"),
            "{line}"
        );
    }
}

#[test]
fn what_was_left_out_and_what_was_tried_again_is_told_once_more_at_the_end() {
    let one = r#"echo 'SKIPPED alpha: no alpha'
        echo 'SKIPPED beta: kept by its harness' >>"$RAMEN_SKIPPED"
        echo 'SKIPPED beta: kept by its harness' >>"$RAMEN_SKIPPED"
        echo '   FLAKY 2/2 [   0.1s] gamma'
        echo 'RERUN delta.py::test_it'
        echo 'nothing of note'"#;
    let (output, said) = lanes(&["one", one, "two", "echo 'SKIPPED alpha: no alpha'; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let (before, end) = said.split_once("\nSKIPPED alpha: no alpha\n").unwrap();
    assert!(before.contains("one | SKIPPED alpha"), "{said}");
    for line in [
        "SKIPPED beta: kept by its harness",
        "FLAKY 2/2 [   0.1s] gamma",
        "RERUN delta.py::test_it",
    ] {
        assert_eq!(
            end.lines().filter(|told| *told == line).count(),
            1,
            "{said}"
        );
    }
    for word in ["alpha", "nothing of note"] {
        assert!(!end.contains(word), "{said}");
    }
    assert!(end.contains("lane two FAILED with exit 3"), "{said}");
    assert!(end.contains("lane one passed"), "{said}");
}

#[test]
fn a_run_of_which_nothing_was_left_out_says_nothing_of_it() {
    let (output, said) = lanes(&["one", "echo fine"]);
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert_eq!(lines[0], "one | fine");
    assert!(lines[1].starts_with("lane one passed"), "{said}");
}

/// Files of Rust below a folder. Others come and go there while tests run.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_test_says_so_here() {
    let mut all = Vec::new();
    sources(&project(), &mut all);
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .canonicalize()
        .unwrap();
    all.retain(|file| {
        file.canonicalize()
            .is_ok_and(|file| !file.starts_with(&own))
    });
    assert!(all.len() > 100, "{all:?}");
    all.retain(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.contains("\"SKIPPED") || text.contains("\"skipped:")
    });
    assert!(
        all.is_empty(),
        "nobody sees what these print, they should call ramen_skip::say: {all:?}"
    );
}
