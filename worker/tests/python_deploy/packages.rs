//! The PKG rows of the deploy step: what imports find.

use ramen_group::{Outcome, Reason};
use serde_json::json;

use crate::kit::Kit;
use crate::wheel::Wheel;

fn returns(name: &str, value: &str) -> String {
    format!("def {name}():\n    return {value:?}\n")
}

#[test]
fn pkg01_two_packages_with_the_same_utils_module_each_get_their_own() {
    let kit = Kit::new();
    for name in ["a", "b"] {
        kit.tool(
            name,
            &format!("from common import V\n\ndef {name}():\n    return V\n"),
            &json!({}),
        );
        kit.write(
            &format!("tools/{name}/utils/common.py"),
            format!("V = {name:?}\n"),
        );
    }
    let exact = |text: &str| json!({"exact": {"content": [{"type": "text", "text": text}], "isError": false}});
    kit.golden(&[
        ("a", json!({}), exact("a")),
        ("b", json!({}), exact("b")),
        ("a", json!({}), exact("a")),
    ]);
    assert_eq!(kit.deploy().ok().report.golden.passed, 3);
}

#[test]
fn pkg02_the_installed_mcp_library_is_imported_and_not_the_folder_of_the_repo() {
    let kit = Kit::new();
    let files = [
        ("mcp/__init__.py", ""),
        ("mcp/types.py", "class Tool:\n    where = 'installed'\n"),
    ];
    Wheel {
        name: "mcp",
        version: "1.0",
        files: &files,
        ..Wheel::default()
    }
    .write(&kit.wheels());
    kit.requirements("mcp\n");
    kit.tool(
        "where",
        "from mcp.types import Tool\n\ndef where():\n    return Tool.where\n",
        &json!({}),
    );
    kit.golden(&[("where", json!({}), json!({"text_contains": "installed"}))]);
    kit.deploy().ok();
}

#[test]
fn pkg03_a_tool_named_like_an_installed_library_imports_the_library() {
    let kit = Kit::new();
    let files = [("requests/__init__.py", "WHERE = 'installed'\n")];
    Wheel {
        name: "requests",
        version: "1.0",
        files: &files,
        ..Wheel::default()
    }
    .write(&kit.wheels());
    kit.requirements("requests\n");
    kit.tool(
        "requests",
        "import requests as lib\n\ndef requests():\n    return lib.WHERE\n",
        &json!({}),
    );
    kit.golden(&[("requests", json!({}), json!({"text_contains": "installed"}))]);
    kit.deploy().ok();
}

#[test]
fn pkg04_a_circular_import_is_one_entry_and_the_rest_loads() {
    let kit = Kit::with_tool();
    kit.tool(
        "loop",
        "from helper import thing\n\nother = 1\n\ndef loop():\n    return thing\n",
        &json!({}),
    );
    kit.write(
        "tools/loop/utils/helper.py",
        "from helper2 import other\nthing = 1\n",
    );
    kit.write(
        "tools/loop/utils/helper2.py",
        "from helper import thing\nother = 1\n",
    );
    let ran = kit.deploy();
    assert_eq!((ran.code, ran.report.outcome), (3, Outcome::Partial));
    assert_eq!(ran.serving(), ["ping"]);
    let entry = ran.entry("tools/loop");
    assert_eq!(entry.reason, Reason::ImportFailed);
    assert!(entry.message.contains("ImportError: "), "{}", entry.message);
    assert_eq!(entry.path.as_deref(), Some("mcp/tools/loop/loop.py"));
}

#[test]
fn pkg05_imports_that_exit_sleep_spin_or_crash_are_entries_in_bounded_time() {
    let kit = Kit::with_tool();
    kit.tool(
        "exits",
        &format!("import sys\nsys.exit(1)\n{}", returns("exits", "")),
        &json!({}),
    );
    kit.tool(
        "sleeps",
        &format!("import time\ntime.sleep(3600)\n{}", returns("sleeps", "")),
        &json!({}),
    );
    kit.tool(
        "spins",
        &format!("while True: pass\n{}", returns("spins", "")),
        &json!({}),
    );
    kit.tool(
        "dies",
        &format!("import os\nos._exit(7)\n{}", returns("dies", "")),
        &json!({}),
    );
    kit.tool(
        "crashes",
        &format!(
            "import ctypes\nctypes.string_at(0)\n{}",
            returns("crashes", "")
        ),
        &json!({}),
    );
    let ran = kit.deploy_with(&["--import-timeout", "5", "--timeout", "60"]);
    assert_eq!(
        (ran.code, ran.report.outcome),
        (3, Outcome::Partial),
        "{:?}",
        ran.errors()
    );
    assert_eq!(ran.serving(), ["ping"]);
    assert_eq!(ran.report.errors.len(), 5, "{:?}", ran.errors());
    for package in ["tools/sleeps", "tools/spins"] {
        assert_eq!(ran.entry(package).reason, Reason::ImportTimeout);
    }
    for (package, reason, words) in [
        ("tools/exits", Reason::ImportFailed, "SystemExit"),
        ("tools/dies", Reason::ImportCrashed, "exit code 7"),
        ("tools/crashes", Reason::ImportCrashed, "signal 11"),
    ] {
        let entry = ran.entry(package);
        assert_eq!(entry.reason, reason, "{:?}", ran.errors());
        assert!(entry.message.contains(words), "{:?}", ran.errors());
    }
    let state = ran.report.desired_state().unwrap();
    assert_eq!(state.exclude.len(), 5);
}

#[test]
fn pkg05_a_deadline_that_passes_during_imports_fails_the_revision_and_names_the_package() {
    let kit = Kit::with_tool();
    let code = format!("import time\ntime.sleep(3600)\n{}", returns("sleeps", ""));
    kit.tool("sleeps", &code, &json!({}));
    let ran = kit.deploy_with(&["--timeout", "10"]);
    assert_eq!(
        (ran.code, ran.report.outcome),
        (4, Outcome::Failed),
        "{:?}",
        ran.errors()
    );
    let entry = &ran.report.errors[0];
    assert_eq!(entry.reason, Reason::ImportTimeout, "{entry:?}");
    assert!(entry.message.contains("tools/sleeps"), "{entry:?}");
    assert_eq!(entry.path.as_deref(), Some("mcp/tools/sleeps/sleeps.py"));
    assert!(ran.serving().is_empty());
}

/// Takes memory without end.
const GROWS: &str = "kept = []\nwhile True: kept.append(b'x' * 1_000_000 + b'y')\n";

#[test]
fn pkg05_an_import_that_allocates_without_end_is_an_entry_with_the_bound_and_the_rest_loads() {
    let mut kit = Kit::with_tool();
    kit.set("RAMEN_HOSTS_MEMORY_MIB", "300");
    kit.tool(
        "grows",
        &format!("{GROWS}{}", returns("grows", "")),
        &json!({}),
    );
    kit.tool(
        "forks",
        &format!(
            "import os\nif os.fork(): os.wait()\n{GROWS}{}",
            returns("forks", "")
        ),
        &json!({}),
    );
    let ran = kit.deploy();
    assert_eq!(
        (ran.code, ran.report.outcome),
        (3, Outcome::Partial),
        "{:?}",
        ran.errors()
    );
    assert_eq!(ran.serving(), ["ping"]);
    for package in ["tools/grows", "tools/forks"] {
        let entry = ran.entry(package);
        assert_eq!(entry.reason, Reason::ImportCrashed, "{entry:?}");
        for words in ["importing was ended for its memory: it held", "300 MiB"] {
            assert!(entry.message.contains(words), "{entry:?}");
        }
    }
}

#[test]
fn pkg06_what_callable_names_must_be_callable_by_keyword() {
    let kit = Kit::new();
    let one = json!({"a": {"type": "number", "description": "x"}});
    kit.tool("missing", "x = 1\n", &json!({}));
    kit.tool("number", "number = 1\n", &json!({}));
    kit.tool("positional", "def positional(a, /):\n    return a\n", &one);
    kit.tool(
        "partial",
        "import functools\npartial = functools.partial(lambda a, b: a + b, b=1)\n",
        &one,
    );
    kit.tool("later", "async def later(a):\n    return a\n", &one);
    kit.tool(
        "made",
        "class made:\n    def __init__(self, a): pass\n",
        &one,
    );
    let ran = kit.deploy();
    assert_eq!(ran.report.outcome, Outcome::Partial);
    assert_eq!(ran.entry("tools/missing").reason, Reason::CallableMissing);
    assert_eq!(
        ran.entry("tools/number").reason,
        Reason::CallableNotCallable
    );
    assert_eq!(
        ran.entry("tools/positional").reason,
        Reason::SignatureMismatch
    );
    let serving = ran.serving();
    for name in ["partial", "later"] {
        assert!(
            serving.iter().any(|n| n == name),
            "{name}: {:?}",
            ran.errors()
        );
    }
    // A class either loads or has its own entry.
    let class = ran
        .report
        .errors
        .iter()
        .any(|f| f.package.as_deref() == Some("tools/made"));
    assert_ne!(class, serving.iter().any(|n| n == "made"));
}

#[test]
fn pkg07_a_signature_that_does_not_fit_input_names_the_parameter() {
    let kit = Kit::new();
    let input = json!({"x": {"type": "number"}, "y": {"type": "number"}});
    kit.tool("fewer", "def fewer(x):\n    return x\n", &input);
    kit.tool("more", "def more(x, y, z):\n    return x\n", &input);
    kit.tool("fits", "def fits(x, y, z=1):\n    return x\n", &input);
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["fits"], "{:?}", ran.errors());
    for (package, parameter) in [("tools/fewer", "y"), ("tools/more", "z")] {
        let entry = ran.entry(package);
        assert_eq!(entry.reason, Reason::SignatureMismatch);
        let words: Vec<_> = entry.message.split([' ', ',', '`']).collect();
        assert!(words.contains(&parameter), "{}", entry.message);
    }
}

#[test]
fn pkg08_descriptors_with_a_bom_or_crlf_load_and_loose_json_is_an_entry_with_its_place() {
    let kit = Kit::new();
    let descriptor = |name: &str| {
        format!(
            "{{\n  \"type\": \"tool\",\n  \"name\": \"{name}\",\n  \"description\": \"x\",\n  \"callable\": \"f\"\n}}\n"
        )
    };
    let put = |name: &str, json: String| {
        kit.write(
            &format!("tools/{name}/{name}.py"),
            "def f():\n    return 1\n",
        );
        kit.write(&format!("tools/{name}/{name}.json"), json);
    };
    put("bom", format!("\u{feff}{}", descriptor("bom")));
    put("crlf", descriptor("crlf").replace('\n', "\r\n"));
    put("comma", descriptor("comma").replace("\"f\"\n", "\"f\",\n"));
    put(
        "comment",
        descriptor("comment").replace("{\n", "{\n  // why\n"),
    );
    put(
        "twice",
        descriptor("twice").replace("\"f\"\n", "\"f\",\n  \"callable\": \"g\"\n"),
    );
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["bom", "crlf"], "{:?}", ran.errors());
    for package in ["tools/comma", "tools/comment", "tools/twice"] {
        let entry = ran.entry(package);
        assert_eq!(entry.reason, Reason::DescriptorInvalid);
        assert!(entry.line.is_some() && entry.column.is_some(), "{entry:?}");
    }
}

#[test]
fn pkg09_near_equal_names_all_load_and_run_their_own_code() {
    let kit = Kit::new();
    for name in ["read-file", "read_file", "Calc", "calc"] {
        kit.tool(name, &returns(&name.replace('-', "_"), name), &json!({}));
    }
    let cases: Vec<_> = ["read-file", "read_file", "Calc", "calc"]
        .iter()
        .map(|name| {
            (
                *name,
                json!({}),
                json!({"exact": {"content": [{"type": "text", "text": name}], "isError": false}}),
            )
        })
        .collect();
    kit.golden(&cases);
    let ran = kit.deploy();
    assert_eq!(ran.report.golden.passed, 4, "{:?}", ran.errors());
    assert_eq!(ran.report.outcome, Outcome::Ok, "{:?}", ran.errors());
}

#[test]
fn pkg11_stale_bytecode_in_the_repo_is_never_used() {
    let kit = Kit::new();
    kit.tool(
        "fresh",
        "from helper import V\n\ndef fresh():\n    return V\n",
        &json!({}),
    );
    kit.write("tools/fresh/utils/helper.py", "V = 'source'\n");
    kit.write(
        "tools/fresh/utils/__pycache__/helper.cpython-311.pyc",
        b"stale",
    );
    kit.write("tools/fresh/__pycache__/fresh.cpython-311.pyc", b"stale");
    kit.write("tools/fresh/utils/only.pyc", b"stale");
    kit.golden(&[("fresh", json!({}), json!({"text_contains": "source"}))]);
    kit.tool(
        "lone",
        "import only\n\ndef lone():\n    return 1\n",
        &json!({}),
    );
    kit.write("tools/lone/only.pyc", b"stale");
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["fresh"], "{:?}", ran.errors());
    assert!(
        ran.entry("tools/lone")
            .message
            .contains("ModuleNotFoundError"),
        "{:?}",
        ran.errors()
    );
}

#[test]
fn env24_names_that_break_the_rule_are_one_entry_each_and_the_rest_loads() {
    let kit = Kit::with_tool();
    let long = "x".repeat(65);
    for name in ["demo.calc", "my tool", &long] {
        kit.tool(name, "def f():\n    return 1\n", &json!({}));
    }
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["ping"]);
    assert_eq!(ran.report.errors.len(), 3, "{:?}", ran.errors());
    for finding in &ran.report.errors {
        assert_eq!(finding.reason, Reason::NameInvalid);
        assert!(
            finding.message.contains("^[A-Za-z][A-Za-z0-9_-]{0,63}$"),
            "{}",
            finding.message
        );
    }
}

#[test]
fn git04_git05_links_and_lfs_pointers_are_entries_with_their_path() {
    let kit = Kit::with_tool();
    kit.tool("linked", "def linked():\n    return 1\n", &json!({}));
    std::os::unix::fs::symlink("../ping", kit.path("repo/mcp/tools/linked/utils")).unwrap();
    kit.tool("stored", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n", &json!({}));
    let ran = kit.deploy();
    assert_eq!(ran.serving(), ["ping"], "{:?}", ran.errors());
    let linked = ran.entry("tools/linked");
    assert_eq!(linked.reason, Reason::SymlinkRefused);
    assert_eq!(linked.path.as_deref(), Some("mcp/tools/linked/utils"));
    let stored = ran.entry("tools/stored");
    assert_eq!(stored.reason, Reason::LfsPointer);
    assert_eq!(stored.path.as_deref(), Some("mcp/tools/stored/stored.py"));
}
