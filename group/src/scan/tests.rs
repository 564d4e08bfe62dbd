use std::fs;

use serde::Deserialize;

use super::*;

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures"))
}

#[derive(Debug, Deserialize)]
struct Expected {
    #[serde(default)]
    package: Option<String>,
    #[serde(default)]
    stage: Option<String>,
    reason: Reason,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    line: Option<u32>,
    #[serde(default)]
    column: Option<u32>,
    #[serde(default)]
    says: Option<String>,
}

impl Expected {
    fn fits(&self, finding: &Finding) -> bool {
        let same = |wanted: Option<u32>, got: Option<u32>| wanted.is_none() || wanted == got;
        self.package == finding.package
            && self.reason == finding.reason
            && (self.path.is_none() || self.path == finding.path)
            && same(self.line, finding.line)
            && same(self.column, finding.column)
            && self
                .says
                .as_deref()
                .is_none_or(|says| finding.message.contains(says))
    }
}

/// Every expected entry is there, and no other.
fn assert_entries(expected: &[Expected], errors: &[Finding]) {
    let mut left: Vec<&Finding> = errors.iter().collect();
    for wanted in expected {
        let Some(at) = left.iter().position(|finding| wanted.fits(finding)) else {
            panic!("no entry for {wanted:?} among {left:#?}");
        };
        left.remove(at);
    }
    assert!(left.is_empty(), "entries that nobody expects: {left:#?}");
}

#[test]
fn every_case_of_the_broken_group_is_an_entry_and_the_rest_loads() {
    let dir = fixtures().join("broken_group");
    let text = fs::read_to_string(dir.join("expected.json")).unwrap();
    let expected: Vec<Expected> = serde_json::from_str(&text).unwrap();
    let (now, later): (Vec<_>, Vec<_>) = expected
        .into_iter()
        .partition(|entry| entry.stage.as_deref() == Some("scan"));
    let group = scan(&dir);
    assert_entries(&now, &group.errors);
    assert!(group.tool("good_tool").is_some());
    // What only an import can tell is served until the deploy step has looked.
    for entry in &later {
        let name = entry
            .package
            .as_deref()
            .and_then(|id| id.strip_prefix("tools/"))
            .unwrap();
        assert!(group.tool(name).is_some(), "{name}");
    }
    assert_eq!(group.tools.len(), later.len() + 1);
    assert!(group.resources.is_empty() && group.prompts.is_empty());
    let broken: Vec<_> = group
        .packages
        .iter()
        .filter(|p| !p.ok)
        .map(ReportPackage::id)
        .collect();
    for id in &broken {
        assert!(
            now.iter().any(|entry| entry.package.as_ref() == Some(id)),
            "{id}"
        );
    }
    assert!(
        !group
            .packages
            .iter()
            .any(|package| package.name == "left_over")
    );
    assert_eq!(
        crate::Outcome::of(&group.packages, &group.errors),
        crate::Outcome::Partial
    );
}

#[test]
fn every_reason_of_the_contract_has_a_fixture() {
    let mut seen: Vec<Reason> = scan(&fixtures().join("broken_group"))
        .errors
        .iter()
        .map(|finding| finding.reason)
        .collect();
    for case in fs::read_dir(fixtures().join("broken_files")).unwrap() {
        seen.extend(
            scan(&case.unwrap().path())
                .errors
                .iter()
                .map(|finding| finding.reason),
        );
    }
    let missing: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| reason.stage() == crate::Stage::Contract && !seen.contains(reason))
        // Remarks, not rejections.
        .filter(|reason| {
            !matches!(
                reason,
                Reason::EnvSkipped
                    | Reason::GuardrailsNotEnforced
                    | Reason::StdlibShadowed
                    | Reason::ModuleReserved
                    | Reason::DescriptionMissing
                    | Reason::FieldUnknown
                    | Reason::LayoutIgnored
            )
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_case_of_the_files_beside_the_packages_is_an_entry() {
    for case in fs::read_dir(fixtures().join("broken_files")).unwrap() {
        let dir = case.unwrap().path();
        let text = fs::read_to_string(dir.join("expected.json")).unwrap();
        let expected: Vec<Expected> = serde_json::from_str(&text).unwrap();
        let group = scan(&dir);
        assert!(group.tool("ok").is_some(), "{}", dir.display());
        assert_entries(&expected, &group.errors);
    }
}

#[test]
fn the_good_group_loads_without_a_remark() {
    let group = scan(&fixtures().join("good_group"));
    assert_eq!((&*group.errors, &*group.warnings), (&[][..], &[][..]));
    let names: Vec<_> = group.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["calculator", "every-field"]);
    let every = group.tool("every-field").unwrap();
    assert_eq!(every.timeout, Some(Duration::from_millis(2500)));
    assert!(every.output.as_ref().unwrap().is_object());
    assert_eq!(group.tests.as_ref().unwrap().cases.len(), 2);
    assert_eq!(group.env.as_ref().unwrap().entries.len(), 2);
    assert!(!group.requirements.as_ref().unwrap().wants_anything);
    assert!(group.guardrails.is_some());
    let prompt = group.prompt("solve").unwrap();
    assert_eq!(
        prompt.settings.as_ref().unwrap().get(),
        r#"{"temperature":0.20,"seed":9007199254740993}"#
    );
    assert_eq!(
        prompt
            .render(&[("request".to_owned(), "2+2".to_owned())])
            .unwrap(),
        "# Task\n\n2+2 (short)\n\n---\nKeep {{ this }}.\n\n## Settings\n\n```json\n{\n  \
         \"temperature\": 0.20,\n  \"seed\": 9007199254740993\n}\n```\n"
    );
    let resource = group.resource("demo://a/../readme").unwrap();
    assert_eq!(
        resource.mime_type.as_deref(),
        Some("text/markdown; charset=utf-8")
    );
    assert!(
        group.resource("demo://readme").is_none(),
        "uri04: exact match only"
    );
    assert!(
        scan(&fixtures().join("good_group/mcp")).errors.is_empty(),
        "the folder itself works too"
    );
}

/// A group in a temporary folder, from paths and contents.
fn group_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join("mcp").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let group = scan(dir.path());
    (dir, group)
}

fn tool(name: &str) -> Vec<(String, String)> {
    let json = format!(
        r#"{{"type":"tool","name":"{name}","description":"d","callable":"f","input":{{}}}}"#
    );
    vec![
        (format!("tools/{name}/{name}.json"), json),
        (
            format!("tools/{name}/{name}.py"),
            "def f():\n    return 1\n".to_owned(),
        ),
    ]
}

fn tools(names: &[&str], more: &[(&str, &str)]) -> (tempfile::TempDir, Group) {
    let files: Vec<_> = names.iter().flat_map(|name| tool(name)).collect();
    let files: Vec<_> = files
        .iter()
        .map(|(a, b)| (&**a, &**b))
        .chain(more.iter().copied())
        .collect();
    group_of(&files)
}

#[test]
fn pkg09_near_equal_names_are_all_listed() {
    let (_dir, group) = tools(&["read-file", "read_file", "Calc", "calc"], &[]);
    assert_eq!(group.errors, []);
    let names: Vec<_> = group.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["Calc", "calc", "read-file", "read_file"]);
    for name in names {
        assert_eq!(group.tool(name).unwrap().dir, format!("tools/{name}"));
    }
    let twins: Vec<_> = group
        .warnings
        .iter()
        .map(|w| (w.reason, w.package.as_deref()))
        .collect();
    assert_eq!(
        twins,
        [(Reason::CaseTwins, Some("tools/calc"))],
        "git10: told, not lost"
    );
}

#[test]
fn git03_a_submodule_is_an_entry_with_its_path() {
    let (_dir, group) = tools(
        &["ok"],
        &[
            ("tools/sub/.git", "gitdir: x"),
            ("tools/sub/sub.json", "{}"),
        ],
    );
    let entry = group
        .errors
        .iter()
        .find(|e| e.reason == Reason::SubmoduleRefused)
        .unwrap();
    assert_eq!(entry.path.as_deref(), Some("mcp/tools/sub"));
    assert_eq!(entry.package.as_deref(), Some("tools/sub"));
    assert!(group.tool("ok").is_some());
}

#[test]
fn git04_git05_pointers_and_links_beside_the_packages_are_told() {
    let (dir, _) = tools(
        &["ok"],
        &[("libs/x.bin", "version https://git-lfs.github.com/spec/v1\n")],
    );
    std::os::unix::fs::symlink("../tools/ok", dir.path().join("mcp/libs/link")).unwrap();
    let group = scan(dir.path());
    let told: Vec<_> = group
        .errors
        .iter()
        .map(|e| (e.reason, e.package.as_deref(), e.path.as_deref().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (Reason::SymlinkRefused, None, "mcp/libs/link"),
            (Reason::LfsPointer, None, "mcp/libs/x.bin"),
        ]
    );
    assert!(group.tool("ok").is_some());
}

#[test]
fn git10_names_in_two_unicode_forms_are_an_entry_each() {
    let (_dir, group) = tools(&["caf\u{e9}", "cafe\u{301}"], &[]);
    let invalid = group
        .errors
        .iter()
        .filter(|e| e.reason == Reason::NameInvalid)
        .count();
    assert_eq!(invalid, 2, "{:?}", group.errors);
}

#[test]
fn pkg11_left_overs_are_neither_packages_nor_faults() {
    let (_dir, group) = tools(
        &["ok"],
        &[
            ("tools/ok/__pycache__/ok.cpython-311.pyc", ""),
            ("tools/ok/x.pyc", ""),
            ("tools/ok/.ok.py.swp", ""),
            ("tools/gone/__pycache__/gone.cpython-311.pyc", ""),
            ("tools/.pytest_cache/v/x", ""),
            ("tools/__pycache__/x.pyc", ""),
            ("tools/README.md", "text"),
            ("tools/__init__.py", ""),
            ("guardrails/actions.py", ""),
            ("README.md", ""),
        ],
    );
    assert_eq!((&*group.errors, &*group.warnings), (&[][..], &[][..]));
    assert_eq!(group.packages.len(), 1);
}

#[test]
fn guardrails_that_nothing_enforces_are_remarked_on_and_those_that_are_off_are_not() {
    let policy = ("guardrails/policy.py", "");
    let cases = [
        ("engine: policy\nfail: closed\n", "", true),
        (
            "engine: nemo\ntools: {ok: {pre: true}}\n",
            "nemoguardrails\n",
            true,
        ),
        ("engine: none\nfail: closed\n", "", false),
    ];
    for (file, requirements, told) in cases {
        let files = [
            ("guardrails.yaml", file),
            ("requirements.txt", requirements),
            policy,
        ];
        let (_dir, group) = tools(&["ok"], &files);
        assert_eq!(group.errors, [], "{file}");
        let remarks: Vec<_> = group.warnings.iter().map(|w| w.reason).collect();
        let expected: &[Reason] = if told {
            &[Reason::GuardrailsNotEnforced]
        } else {
            &[]
        };
        assert_eq!(remarks, expected, "{file}");
    }
}

#[test]
fn slips_in_the_layout_are_remarked_on() {
    let (_dir, group) = tools(
        &["ok"],
        &[
            ("tools/loose.py", ""),
            ("tools/loose.json", ""),
            ("tool/x/x.json", ""),
            ("Prompts/x/x.json", ""),
            ("env.yml", ""),
            ("tools/ok/utils/json.py", ""),
            ("tools/ok/utils/email/__init__.py", ""),
            ("tools/ok/utils/common.py", ""),
            ("tools/ok/utils/ramen_runtime.py", ""),
        ],
    );
    assert_eq!(group.errors, []);
    let told: Vec<_> = group
        .warnings
        .iter()
        .map(|w| (w.reason, w.path.as_deref().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (Reason::LayoutIgnored, "mcp/Prompts"),
            (Reason::LayoutIgnored, "mcp/env.yml"),
            (Reason::LayoutIgnored, "mcp/tool"),
            (Reason::LayoutIgnored, "mcp/tools/loose.json"),
            (Reason::LayoutIgnored, "mcp/tools/loose.py"),
            (
                Reason::StdlibShadowed,
                "mcp/tools/ok/utils/email/__init__.py"
            ),
            (Reason::StdlibShadowed, "mcp/tools/ok/utils/json.py"),
            (
                Reason::ModuleReserved,
                "mcp/tools/ok/utils/ramen_runtime.py"
            ),
        ]
    );
}

#[test]
fn a_folder_without_a_group_says_so() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(scan(dir.path()).errors[0].reason, Reason::McpFolderMissing);
    assert_eq!(
        scan(&dir.path().join("nowhere")).errors[0].reason,
        Reason::McpFolderMissing
    );
    fs::create_dir(dir.path().join("mcp")).unwrap();
    assert_eq!(scan(dir.path()).errors[0].reason, Reason::NothingToServe);
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(dir.path().join("mcp"), linked.path().join("mcp")).unwrap();
    assert_eq!(scan(linked.path()).errors[0].reason, Reason::SymlinkRefused);
}

#[test]
fn a_tree_that_is_too_deep_is_refused_as_a_whole() {
    let deep = format!("tools/a/{}x", "d/".repeat(40));
    let (_dir, group) = tools(&["ok"], &[(&deep, "")]);
    assert_eq!(group.errors[0].reason, Reason::TreeTooLarge);
    assert!(group.is_empty());
}

#[test]
fn a_large_settings_file_is_kept_exactly() {
    let text = format!("{{\"text\": \"{}\"}}", "x".repeat(1 << 20));
    let json = r#"{"type":"prompt","name":"p","description":"d"}"#;
    let (_dir, group) = group_of(&[
        ("prompts/p/p.json", json),
        ("prompts/p/SKILL.md", "Body"),
        ("prompts/p/settings.json", &text),
    ]);
    assert_eq!(group.errors, [], "prm10");
    let settings = group.prompts[0].settings.as_ref().unwrap().get();
    let value: serde_json::Value = serde_json::from_str(settings).unwrap();
    assert_eq!(
        value,
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    );
}

#[test]
fn prm01_a_mark_does_not_hide_the_front_matter() {
    let json = r#"{"type":"prompt","name":"p","description":"d"}"#;
    let (_dir, group) = group_of(&[
        ("prompts/p/p.json", json),
        ("prompts/p/SKILL.md", "\u{feff}---\nname: x\n---\nBody"),
    ]);
    assert_eq!(group.prompts[0].render(&[]).unwrap(), "Body");
}

#[test]
fn excluded_packages_are_left_out() {
    let (_dir, group) = tools(&["a", "b"], &[]);
    let group = group.without(&["tools/a".to_owned()]);
    assert!(group.tool("a").is_none() && group.tool("b").is_some());
    let ok: Vec<_> = group.packages.iter().map(|package| package.ok).collect();
    assert_eq!(ok, [false, true]);
}

#[test]
fn arguments_are_checked_before_secrets_are_put_in() {
    let json = r#"{"type":"tool","name":"t","description":"d","callable":"f","input":{
        "a":{"type":"string","maxLength":12},"b":{"enum":["x"],"default":"x"}}}"#;
    let (_dir, group) = group_of(&[("tools/t/t.json", json), ("tools/t/t.py", "")]);
    let tool = group.tool("t").unwrap();
    let long = "v".repeat(40);
    let secrets = SecretTable::from_env("g", [("RAMEN_SECRET_G__KEY".to_owned(), long.clone())]);
    let ready = tool
        .prepare(Some(r#"{"a":"{{$g.KEY}}"}"#), &secrets)
        .unwrap();
    assert_eq!(ready, format!(r#"{{"a":"{long}","b":"x"}}"#));
    let sent = r#"{"a":"plain","b":"x"}"#;
    assert!(
        matches!(tool.prepare(Some(sent), &secrets), Ok(Cow::Borrowed(_))),
        "no copy"
    );
    let fault = tool
        .prepare(Some(r#"{"a":"{{$g.NO}}"}"#), &secrets)
        .unwrap_err();
    assert!(matches!(&fault, CallFault::Secret(_)), "{fault}");
    let fault = tool
        .prepare(Some(r#"{"a":"a","b":"{{$g.KEY}}"}"#), &secrets)
        .unwrap_err();
    assert_eq!(fault.to_string(), "argument `b` must be one of: x");
    for absent in [None, Some("null"), Some("{}")] {
        let fault = tool.prepare(absent, &secrets).unwrap_err();
        assert_eq!(fault.to_string(), "argument `a` is missing", "env21");
    }
}
