//! Rows of the deploy step about prompts, resources and names.

use ramen_group::{Outcome, Reason};
use serde_json::{Value, json};

use crate::kit::Kit;

fn resource(kit: &Kit, name: &str, uri: &str, mime: &str) {
    let descriptor = json!({
        "type": "resource", "name": name, "description": "A text.", "callable": "read",
        "uri": uri, "mime_type": mime,
    });
    kit.write(
        &format!("resources/{name}/{name}.json"),
        descriptor.to_string(),
    );
    kit.write(
        &format!("resources/{name}/{name}.py"),
        "def read():\n    return 'text'\n",
    );
}

fn prompt(kit: &Kit, name: &str, skill: &str, settings: Option<&str>) {
    let mut descriptor =
        json!({"type": "prompt", "name": name, "description": "A prompt.", "input": {}});
    if let Some(settings) = settings {
        descriptor["settings"] = Value::from("settings.json");
        kit.write(&format!("prompts/{name}/settings.json"), settings);
    }
    kit.write(
        &format!("prompts/{name}/{name}.json"),
        descriptor.to_string(),
    );
    kit.write(&format!("prompts/{name}/SKILL.md"), skill);
}

#[test]
fn a_group_of_prompts_needs_no_host_and_prm01_a_bom_before_front_matter_loads() {
    let kit = Kit::new();
    prompt(&kit, "greet", "\u{feff}---\nname: greet\n---\nBody", None);
    kit.deploy().ok();
    let none = tempfile::tempdir().unwrap();
    let without = ["--host-dir", none.path().to_str().unwrap()];
    let ran = kit.deploy_with(&without).ok();
    assert_eq!(ran.report.desired_state().unwrap().python, "3.11");
    // What has to be installed or imported does need one.
    kit.requirements("alpha\n");
    kit.deploy_with(&without).failed(Reason::PythonUnavailable);
    kit.requirements("");
    kit.tool("ping", "def ping():\n    return 'pong'\n", &json!({}));
    kit.deploy_with(&without).failed(Reason::PythonUnavailable);
}

#[test]
fn prm10_settings_that_are_no_object_are_an_entry_and_the_rest_loads() {
    let kit = Kit::new();
    prompt(&kit, "good", "Body", Some("{\"a\": 1}"));
    prompt(&kit, "list", "Body", Some("[1]"));
    prompt(&kit, "nan", "Body", Some("{\"a\": NaN}"));
    prompt(&kit, "empty", "", None);
    let ran = kit.deploy();
    assert_eq!(ran.report.outcome, Outcome::Partial);
    assert_eq!(ran.serving(), ["good"], "{:?}", ran.errors());
    for package in ["prompts/list", "prompts/nan"] {
        assert_eq!(ran.entry(package).reason, Reason::SettingsInvalid);
    }
    assert_eq!(ran.entry("prompts/empty").reason, Reason::SkillMissing);
}

#[test]
fn uri01_mime_parameters_are_accepted() {
    let kit = Kit::new();
    resource(&kit, "page", "demo://page", "text/html;profile=x");
    resource(
        &kit,
        "data",
        "demo://data",
        "application/json; charset=utf-8",
    );
    let ran = kit.deploy().ok();
    let uris: Vec<_> = ran
        .report
        .packages
        .iter()
        .filter_map(|p| p.uri.clone())
        .collect();
    assert_eq!(uris, ["demo://data", "demo://page"]);
}

#[test]
fn uri05_two_resources_with_one_uri_are_an_entry_each_that_names_the_other() {
    let kit = Kit::with_tool();
    resource(&kit, "one", "demo://same", "text/plain");
    resource(&kit, "two", "demo://same", "text/plain");
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["ping"], "{:?}", ran.errors());
    for (package, other) in [("resources/one", "two"), ("resources/two", "one")] {
        let entry = ran.entry(package);
        assert_eq!(entry.reason, Reason::UriDuplicate);
        assert!(entry.message.contains(other), "{}", entry.message);
    }
}

#[test]
fn git10_names_that_differ_only_in_unicode_form_are_an_entry_each() {
    let kit = Kit::with_tool();
    for name in ["caf\u{e9}", "cafe\u{301}"] {
        kit.tool(name, "def f():\n    return 1\n", &json!({}));
    }
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["ping"], "{:?}", ran.errors());
    assert!(ran.report.errors.len() >= 2, "{:?}", ran.errors());
}

#[test]
fn a_file_of_golden_calls_that_cannot_be_read_fails_the_revision() {
    let kit = Kit::with_tool();
    kit.write(
        "tests.yaml",
        "cases: [{name: x, tool: ping, args: {}, expect: {nothing: 1}}]\n",
    );
    let ran = kit.deploy();
    assert_eq!(ran.report.outcome, Outcome::Failed);
    assert!(
        ran.report
            .errors
            .iter()
            .all(|f| f.reason == Reason::TestsInvalid),
        "{:?}",
        ran.errors()
    );
}

#[test]
fn guardrails_load_with_a_warning_that_they_are_not_enforced() {
    let kit = Kit::with_tool();
    kit.write(
        "guardrails.yaml",
        "engine: policy\nfail: closed\ntimeout_s: 2\ntools: {ping: {pre: true, post: false}}\n",
    );
    kit.write(
        "guardrails/policy.py",
        "def pre(tool, arguments):\n    return None\n",
    );
    let ran = kit.deploy().ok();
    let [warning] = &ran.report.warnings[..] else {
        panic!("{:?}", ran.report.warnings);
    };
    assert_eq!(warning.reason, Reason::GuardrailsNotEnforced);
    assert_eq!(warning.path.as_deref(), Some("mcp/guardrails.yaml"));
    assert!(
        warning.message.contains("not enforce"),
        "{}",
        warning.message
    );
    // Nothing was to be run.
    kit.write("guardrails.yaml", "engine: none\nfail: closed\n");
    assert_eq!(kit.deploy().ok().report.warnings, []);
}

#[test]
fn files_that_tools_leave_behind_are_neither_packages_nor_faults() {
    let kit = Kit::with_tool();
    for path in [
        "tools/__pycache__/x.pyc",
        "tools/.DS_Store",
        "tools/ping/.ping.py.swp",
        ".pytest_cache/README.md",
        "tools/ping/__pycache__/ping.cpython-311.pyc",
        "prompts/.DS_Store",
    ] {
        kit.write(path, b"x");
    }
    let ran = kit.deploy().ok();
    assert_eq!(ran.serving(), ["ping"]);
    assert!(ran.report.warnings.is_empty(), "{:?}", ran.report.warnings);
}
