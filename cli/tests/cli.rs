//! The command line itself: help, usage errors, completion, the reference.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

fn ramen(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ramen"))
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

#[test]
fn help_has_examples_and_exit_codes_everywhere() {
    let subs = [
        "up",
        "poke",
        "validate",
        "new",
        "call",
        "ls",
        "read",
        "prompt",
        "inspect",
        "status",
        "bridge",
        "completion",
    ];
    for args in std::iter::once(vec!["--help"]).chain(subs.iter().map(|sub| vec![*sub, "--help"])) {
        let output = ramen(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains("Examples:") && text.contains("Exit codes:"),
            "{args:?}"
        );
    }
}

#[test]
fn wrong_usage_exits_2_and_prints_nothing_on_stdout() {
    for args in [
        &["nope"][..],
        &["up"],
        &["up", "a", "-f", "b"],
        &["call"],
        &["read"],
        &["prompt"],
        &["prompt", "a", "no-value"],
        &["new", "tool"],
        &["up", "/nonexistent"],
    ] {
        let output = ramen(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{args:?}"
        );
    }
    assert_eq!(ramen(&[]).status.code(), Some(2));
}

#[test]
fn completion_scripts_are_made_for_the_common_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ramen(&["completion", shell]);
        assert!(
            output.status.success()
                && String::from_utf8(output.stdout)
                    .unwrap()
                    .contains("validate")
        );
    }
}

#[test]
fn a_group_of_ramen_up_and_a_namespace_of_a_cluster_do_not_go_together() {
    for (args, hint) in [
        (
            &["--state-dir", "x", "--group", "a", "-n", "b"][..],
            "--group NAMESPACE/NAME",
        ),
        (&["--group", "b/a", "-n", "b"], "leave those out"),
        (&["--group", "b/a", "--cluster"], "leave those out"),
    ] {
        let output = ramen(&[&["keys", "new", "ci"], args].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.contains(hint), "{args:?}: {errors}");
    }
}

#[test]
fn new_names_its_files_from_where_the_person_is_and_the_group_as_it_is_served() {
    let temp = tempfile::tempdir().unwrap();
    let new = |dir: &str, args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ramen"))
            .arg("new")
            .args(args)
            .current_dir(temp.path().join(dir))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (out, err) = new("", &["group", "My_Group"]);
    assert!(out.starts_with("made My_Group/README.md\n"), "{out}");
    assert!(err.contains("calls this group my-group"), "{err}");
    assert_eq!(new("", &["group", "plain"]).1, "");
    let (out, _) = new("", &["tool", "t", "--dir", "plain"]);
    assert!(out.starts_with("made plain/mcp/tools/t/t.json\n"), "{out}");
    let (out, _) = new("plain", &["prompt", "p"]);
    assert!(out.starts_with("made mcp/prompts/p/p.json\n"), "{out}");
    // The text of the prompt begins right below: no empty line comes first.
    let skill = temp.path().join("plain/mcp/prompts/p/SKILL.md");
    let skill = std::fs::read_to_string(skill).unwrap();
    assert!(skill.contains("\n---\n# p\n"), "{skill}");
}

#[test]
fn commands_without_a_running_up_say_what_to_do() {
    for args in [
        &["ls", "--state-dir", "/nonexistent"][..],
        &["call", "a", "--state-dir", "/nonexistent"],
        &["read", "a://b", "--state-dir", "/nonexistent"],
        &["prompt", "a", "--state-dir", "/nonexistent"],
    ] {
        let output = ramen(args);
        assert_eq!(output.status.code(), Some(6));
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains("--target")
        );
    }
    let poke = ramen(&["poke", "--state-dir", "/nonexistent"]);
    assert_eq!(poke.status.code(), Some(1));
    assert!(
        String::from_utf8(poke.stderr)
            .unwrap()
            .contains("no `ramen up` listens")
    );
}

#[test]
fn output_that_is_no_terminal_has_no_colours() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("mcp/tools/bad")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
    let output = command
        .args(["validate", "--no-install"])
        .arg(dir.path())
        .env("RAMEN_STATE_DIR", dir.path().join("s"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("fix:") && !text.contains('\x1b'), "{text}");
}
