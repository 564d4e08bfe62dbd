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

/// Files of Rust below a folder that say SKIPPED by themselves.
fn by_themselves(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            by_themselves(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap().to_lowercase();
            if text.contains("\"skipped ") || text.contains("\"skipped:") {
                found.push(path);
            }
        }
    }
}

#[test]
fn every_test_says_so_here() {
    let mut found = Vec::new();
    for entry in fs::read_dir(project()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "tests"].contains(&name.as_str())
        {
            by_themselves(&path, &mut found);
        }
    }
    assert!(
        found.is_empty(),
        "nobody sees what these print, they should call ramen_skip::say: {found:?}"
    );
}
