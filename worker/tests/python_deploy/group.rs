//! Golden calls, `env.yaml`, secrets, progress and exit codes.

use ramen_group::{Outcome, Reason};
use serde_json::{Value, json};

use crate::kit::{Kit, bin_dir, each_python};

#[test]
fn golden_calls_pass_by_text_by_subset_and_exactly() {
    each_python(|python| {
        let kit = Kit::on(python);
        let add = "def add(a, b=1):\n    if a < 0:\n        raise ValueError('negative')\n    return a + b\n";
        let input = json!({"a": {"type": "number"}, "b": {"type": "integer", "default": 1}});
        kit.tool("add", add, &input);
        kit.golden(&[
            (
                "add",
                json!({"a": 1, "b": 2}),
                json!({"text_contains": "3"}),
            ),
            (
                "add",
                json!({"a": 4}),
                json!({"exact": {"content": [{"type": "text", "text": "5"}], "isError": false}}),
            ),
            (
                "add",
                json!({"a": -1}),
                json!({"subset": {"isError": true, "content": [{"text": "ValueError: negative"}]}}),
            ),
        ]);
        let ran = kit.deploy().ok();
        assert_eq!((ran.report.golden.passed, ran.report.golden.failed), (3, 0));
    });
}

#[test]
fn a_golden_call_that_fails_fails_the_revision_and_names_the_case() {
    let kit = Kit::with_tool();
    kit.golden(&[
        ("ping", json!({}), json!({"text_contains": "pong"})),
        ("ping", json!({}), json!({"text_contains": "pang"})),
    ]);
    let ran = kit.deploy();
    let finding = ran.failed(Reason::GoldenFailed);
    assert!(
        finding.message.starts_with("`case 1`: "),
        "{}",
        finding.message
    );
    assert!(finding.message.contains("pang"), "{}", finding.message);
    assert_eq!((ran.report.golden.passed, ran.report.golden.failed), (1, 1));
    assert!(ran.report.desired_state().is_none());
}

#[test]
fn a_golden_call_that_allocates_without_end_fails_with_the_bound_and_the_next_one_runs() {
    let mut kit = Kit::with_tool();
    kit.set("RAMEN_HOSTS_MEMORY_MIB", "300");
    let code =
        "def grows():\n    kept = []\n    while True: kept.append(b'x' * 1_000_000 + b'y')\n";
    kit.tool("grows", code, &json!({}));
    kit.golden(&[
        ("grows", json!({}), json!({"text_contains": ""})),
        ("ping", json!({}), json!({"text_contains": "pong"})),
    ]);
    let ran = kit.deploy();
    let finding = ran.failed(Reason::GoldenFailed);
    for words in ["`case 0`: ", "for its memory", "300 MiB"] {
        assert!(finding.message.contains(words), "{}", finding.message);
    }
    assert_eq!((ran.report.golden.passed, ran.report.golden.failed), (1, 1));
}

#[test]
fn a_golden_call_with_bad_arguments_is_judged_as_a_callers_is() {
    let kit = Kit::new();
    let input = json!({"n": {"type": "number"}});
    kit.tool("twice", "def twice(n):\n    return n * 2\n", &input);
    kit.golden(&[("twice", json!({"n": "2"}), json!({"text_contains": "4"}))]);
    let ran = kit.deploy();
    let finding = ran.failed(Reason::GoldenFailed);
    assert!(finding.message.contains("`n`"), "{}", finding.message);
}

#[test]
fn golden_calls_of_a_broken_package_are_one_entry_and_of_an_unknown_tool_another() {
    let kit = Kit::with_tool();
    kit.tool("bad", "raise ValueError('x')\n", &json!({}));
    let any = json!({"text_contains": ""});
    kit.golden(&[
        ("bad", json!({}), any.clone()),
        ("ping", json!({}), any.clone()),
        ("bad", json!({}), any.clone()),
        ("nobody", json!({}), any),
    ]);
    let ran = kit.deploy();
    assert_eq!((ran.code, ran.report.outcome), (4, Outcome::Failed));
    let reasons: Vec<_> = ran
        .report
        .errors
        .iter()
        .map(|f| (f.package.as_deref(), f.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            (None, Reason::TestsInvalid),
            (Some("tools/bad"), Reason::ImportFailed),
            (Some("tools/bad"), Reason::GoldenFailed),
        ],
        "{:?}",
        ran.errors()
    );
    assert_eq!((ran.report.golden.passed, ran.report.golden.failed), (1, 3));
}

#[test]
fn a_golden_call_without_end_is_given_up_and_the_next_one_runs_in_a_new_host() {
    let kit = Kit::with_tool();
    kit.tool("spin", "def spin():\n    while True: pass\n", &json!({}));
    kit.tool(
        "die",
        "import os\n\ndef die():\n    os._exit(3)\n",
        &json!({}),
    );
    let path = kit.path("repo/mcp/tools/spin/spin.json");
    let mut descriptor: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    descriptor["timeout_seconds"] = json!(1);
    std::fs::write(&path, descriptor.to_string()).unwrap();
    let any = json!({"text_contains": ""});
    kit.golden(&[
        ("spin", json!({}), any.clone()),
        ("die", json!({}), any),
        ("ping", json!({}), json!({"text_contains": "pong"})),
    ]);
    let ran = kit.deploy();
    assert_eq!(
        (ran.report.golden.passed, ran.report.golden.failed),
        (1, 2),
        "{:?}",
        ran.errors()
    );
    let messages: Vec<_> = ran
        .report
        .errors
        .iter()
        .map(|f| f.message.clone())
        .collect();
    assert!(messages[0].contains("no answer within"), "{messages:?}");
    assert!(messages[1].contains("exit code 3"), "{messages:?}");
}

#[test]
fn env_yaml_is_exported_before_the_import_and_a_missing_secret_skips_its_key_with_a_warning() {
    let mut kit = Kit::new();
    kit.write(
        "env.yaml",
        "PLAIN: hello\nTOKEN: \"x-{{$g.TOKEN}}\"\nABSENT: \"{{$g.ABSENT}}\"\n",
    );
    let code = "import os\nAT_IMPORT = os.environ.get('PLAIN')\n\ndef env(a):\n    return [AT_IMPORT, os.environ.get('TOKEN'), 'ABSENT' in os.environ, a]\n";
    kit.tool("env", code, &json!({"a": {"type": "string"}}));
    kit.golden(&[(
        "env",
        json!({"a": "{{$g.TOKEN}}"}),
        json!({"text_contains": r#"["hello","x-t0ken-value",false,"t0ken-value"]"#}),
    )]);
    kit.set("RAMEN_SECRET_G__TOKEN", "t0ken-value");
    let ran = kit.deploy_with(&["--secrets-from-env"]).ok();
    let skipped: Vec<_> = ran
        .report
        .warnings
        .iter()
        .filter(|w| w.reason == Reason::EnvSkipped)
        .collect();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0].message.contains("ABSENT"), "{skipped:?}");

    // Without the flag the code gets no secret at all.
    let ran = kit.deploy();
    assert_eq!(ran.report.outcome, Outcome::Failed);
    assert_eq!(
        ran.report
            .warnings
            .iter()
            .filter(|w| w.reason == Reason::EnvSkipped)
            .count(),
        2
    );
}

#[test]
fn variables_that_the_platform_names_reach_imports_and_golden_calls() {
    let mut kit = Kit::new();
    kit.write(
        "env.yaml",
        "API_BASE: https://test\nABSENT: \"{{$g.ABSENT}}\"\n",
    );
    let code = "import os\nAT_IMPORT = os.environ['API_BASE']\n\ndef env():\n    return [AT_IMPORT, os.environ['ABSENT'], 'OTHER' in os.environ]\n";
    kit.tool("env", code, &json!({}));
    kit.golden(&[(
        "env",
        json!({}),
        json!({"text_contains": r#"["https://prod","here",false]"#}),
    )]);
    for (name, value) in [
        ("RAMEN_HOST_ENV", "API_BASE,ABSENT"),
        ("API_BASE", "https://prod"),
        ("ABSENT", "here"),
        ("OTHER", "x"),
    ] {
        kit.set(name, value);
    }
    let ran = kit.deploy().ok();
    assert_eq!(ran.report.golden.passed, 1);
    // What the platform sets was not left out.
    let skipped = |w: &ramen_group::Finding| w.reason == Reason::EnvSkipped;
    assert!(!ran.report.warnings.iter().any(skipped));
}

#[test]
fn secrets_are_in_no_report_and_no_output() {
    let mut kit = Kit::with_tool();
    let leak = "import os, sys\nV = os.environ['RAMEN_SECRET_G__KEY']\nprint('printed', V)\nprint(V, file=sys.stderr)\n";
    kit.tool(
        "prints",
        &format!("{leak}\ndef prints():\n    raise ValueError('sent ' + V)\n"),
        &json!({}),
    );
    kit.tool(
        "raises",
        &format!("{leak}\nraise RuntimeError('key ' + V)\n"),
        &json!({}),
    );
    kit.golden(&[(
        "prints",
        json!({}),
        json!({"text_contains": "nothing like it"}),
    )]);
    kit.set("RAMEN_SECRET_G__KEY", "s3cr3t-value");
    let ran = kit.deploy_with(&["--secrets-from-env", "--progress", "json"]);
    let whole = format!(
        "{}{}{}",
        serde_json::to_string(&ran.report).unwrap(),
        ran.stdout,
        ran.stderr
    );
    assert!(!whole.contains("s3cr3t-value"), "{whole}");
    assert!(
        ran.report.log.contains("] printed ***"),
        "{}",
        ran.report.log
    );
    assert!(
        ran.entry("tools/raises")
            .message
            .contains("RuntimeError: key ***"),
        "{:?}",
        ran.errors()
    );
}

#[test]
fn progress_is_one_json_object_a_line_and_nothing_else_is_on_stdout() {
    let kit = Kit::with_tool();
    crate::wheel::simple(&kit.wheels(), "alpha", "1.0", &[]);
    kit.requirements("alpha\n");
    kit.tool(
        "loud",
        "print('at import')\n\ndef loud():\n    print('in call')\n    return 1\n",
        &json!({}),
    );
    kit.golden(&[("loud", json!({}), json!({"text_contains": "1"}))]);
    let ran = kit.deploy_with(&["--progress", "json"]).ok();
    let events: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    for phase in ["check", "resolve", "install", "pack", "import", "test"] {
        assert!(
            events.iter().any(|event| event["phase"] == phase),
            "{phase}: {}",
            ran.stdout
        );
    }
    assert!(ran.report.log.contains("] at import"), "{}", ran.report.log);
    assert!(ran.report.log.contains("] in call"), "{}", ran.report.log);
    let quiet = kit.deploy_with(&["--progress", "none"]).ok();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[test]
fn exit_codes_tell_ok_partial_failed_and_usage() {
    let kit = Kit::with_tool();
    assert_eq!(kit.deploy().code, 0);
    kit.tool("bad", "raise ValueError('x')\n", &json!({}));
    let partial = kit.deploy();
    assert_eq!(
        (partial.code, partial.report.outcome),
        (3, Outcome::Partial)
    );
    assert_eq!(
        partial.report.desired_state().unwrap().exclude,
        ["tools/bad"]
    );
    std::fs::remove_dir_all(kit.path("repo/mcp/tools/ping")).unwrap();
    assert_eq!(kit.deploy().code, 4);
    assert_eq!(
        kit.command(&["--no-such-flag"]).status().unwrap().code(),
        Some(2)
    );
}

#[test]
fn an_empty_group_and_a_folder_without_mcp_say_so() {
    let kit = Kit::new();
    kit.write("readme.txt", "nothing here");
    kit.deploy().failed(Reason::NothingToServe);
    std::fs::remove_dir_all(kit.path("repo/mcp")).unwrap();
    kit.deploy().failed(Reason::McpFolderMissing);
}

#[test]
fn a_host_that_is_killed_while_it_loads_is_an_entry_and_no_package_serves() {
    use std::os::unix::fs::PermissionsExt as _;
    let kit = Kit::with_tool();
    let hosts = kit.path("hosts");
    std::fs::create_dir(&hosts).unwrap();
    // It says what it is, takes the first of what it is to load, and dies as under the kernel's memory limit.
    let real = bin_dir().join("ramen-host-3.11");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != --describe ] || exec '{}' --describe\nhead -c 1 <&3 >/dev/null\nkill -9 $$\n",
        real.display()
    );
    let host = hosts.join("ramen-host-3.11");
    std::fs::write(&host, script).unwrap();
    std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = kit.deploy_with(&["--host-dir", hosts.to_str().unwrap()]);
    let finding = ran.failed(Reason::HostCrashed);
    assert!(
        finding.message.contains("the host process ended"),
        "{}",
        finding.message
    );
    assert_eq!(ran.serving(), [""; 0]);
    // It was the host, not the code.
    kit.deploy().ok();
}

#[test]
fn a_python_without_a_host_names_those_there_are() {
    let mut kit = Kit::with_tool();
    kit.args = vec![];
    let empty = kit.path("no-hosts");
    std::fs::create_dir(&empty).unwrap();
    let ran = kit.deploy_with(&["--host-dir", empty.to_str().unwrap()]);
    assert!(
        ran.failed(Reason::PythonUnavailable)
            .message
            .contains("3.11")
    );
}

#[test]
fn no_install_checks_the_files_and_starts_nothing() {
    let mut kit = Kit::with_tool();
    kit.requirements("surely-not-there\n");
    kit.tool("bad", "raise ValueError('x')\n", &json!({}));
    kit.set("RAMEN_UV", "/no/such/uv");
    let ran = kit.deploy_with(&["--no-install"]).ok();
    assert!(ran.report.deps.is_none() && ran.report.code.is_some());
}

#[test]
fn pkg10_the_host_has_a_home_that_can_be_written() {
    let kit = Kit::new();
    let code = "import getpass, pathlib\n\ndef home():\n    p = pathlib.Path.home() / 'x'\n    p.write_text('1')\n    return p.read_text()\n";
    kit.tool("home", code, &json!({}));
    kit.golden(&[("home", json!({}), json!({"text_contains": "1"}))]);
    kit.deploy().ok();
}
