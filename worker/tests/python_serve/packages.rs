//! PKG: what a package sees under a plain name.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{Group, bin_dir, eventually};
use crate::parallel::{beside, waiting};
use crate::served::{Setup, each_python};

#[tokio::test]
async fn pkg01_two_packages_with_the_same_utils_module_each_get_their_own() {
    let at_import = "import common\ndef run(): return common.V";
    let at_call =
        "def run():\n    from common import V\n    import common\n    return V + common.V";
    let mut group = Group::new();
    // In both load orders: the names are sorted.
    for (name, value, source) in [
        ("a1", "a", at_import),
        ("b1", "b", at_import),
        ("a2", "b", at_import),
        ("b2", "a", at_import),
        ("late_a", "a", at_call),
        ("late_b", "b", at_call),
    ] {
        group = group.tool(name, &json!({}), source).file(
            &format!("tools/{name}/utils/common.py"),
            format!("V = {value:?}"),
        );
    }
    let group = group
        .tool("none", &json!({}), "def run():\n    import common")
        .tool(
            "pickles",
            &json!({}),
            "import pickle, copy\nfrom shape import Point\n\
             def run(): return copy.deepcopy(pickle.loads(pickle.dumps(Point(3)))).x",
        )
        .file(
            "tools/pickles/utils/shape.py",
            "class Point:\n    def __init__(self, x): self.x = x\n",
        );
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        for (name, value) in [
            ("a1", "a"),
            ("b1", "b"),
            ("a2", "b"),
            ("b2", "a"),
            ("late_b", "bb"),
            ("late_a", "aa"),
            ("pickles", "3"),
        ] {
            assert_eq!(client.text(name, json!({})).await, value, "{name}");
        }
        let error = client.error("none", json!({})).await;
        assert_eq!(error, "ModuleNotFoundError: No module named 'common'");
    })
    .await;
}

#[tokio::test]
async fn pkg02_pkg03_an_installed_library_wins_over_a_folder_or_a_tool_of_its_name() {
    let deps = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = deps.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("mcp/__init__.py", "");
    write(
        "mcp/types.py",
        "class Tool:\n    origin = 'installed mcp'\n",
    );
    write("requests/__init__.py", "origin = 'installed requests'\n");
    let group = Group::new()
        .file("requirements.txt", "mcp\nrequests\n")
        .tool(
            "uses_mcp",
            &json!({}),
            "from mcp.types import Tool\ndef run(): return Tool.origin",
        )
        .tool(
            "requests",
            &json!({}),
            "import requests\ndef run(): return requests.origin",
        )
        .tool(
            "path",
            &json!({}),
            "import sys\ndef run(): return [entry for entry in sys.path if 'mcp' in entry.rsplit('/', 1)[-1]]",
        );
    each_python(async |python| {
        let served = Setup::new(python).deps(deps.path()).serve(&group).await;
        let client = served.client().await;
        assert_eq!(client.text("uses_mcp", json!({})).await, "installed mcp");
        assert_eq!(
            client.text("requests", json!({})).await,
            "installed requests"
        );
        assert_eq!(client.text("path", json!({})).await, "[]");
    })
    .await;
}

#[tokio::test]
async fn pkg05_a_reload_whose_import_never_ends_is_refused_and_the_old_generation_answers_on() {
    let spins = waiting().tool(
        "spins",
        &json!({}),
        "while True: pass\ndef run(): return 'never'",
    );
    let better = waiting().tool("better", &json!({}), "def run(): return 'better'");
    each_python(async |python| {
        let setup = Setup::new(python).set("RAMEN_IMPORT_TIMEOUT_SECS", "5");
        let mut served = setup.serve(&waiting()).await;
        let client = served.client().await;
        let hosts = served.children().len();
        let refused = beside(&client, served.reload(&spins, "two")).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let told = "tools/spins: the import took longer than 5s";
        assert!(refused.message().contains(told), "{refused}");
        let status = served.status().await;
        assert_eq!(
            (status.revision.as_str(), status.health.as_str()),
            ("one", "SERVING")
        );
        assert_eq!(status.desired_revision, "two");
        assert!(status.last_error.contains(told), "{}", status.last_error);
        eventually("what spun is gone", async || {
            (served.children().len() == hosts).then_some(())
        })
        .await;
        let loaded = beside(&client, served.reload(&better, "three")).await;
        assert_eq!(loaded.unwrap().tools, 4);
        assert_eq!(client.text("better", json!({})).await, "better");
        assert_eq!(served.status().await.last_error, "");
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn pkg09_near_equal_names_are_listed_and_each_runs_its_own_code() {
    let names = ["Calc", "calc", "read-file", "read_file"];
    let group = names.iter().fold(Group::new(), |group, name| {
        group.tool(name, &json!({}), &format!("def run(): return {name:?}"))
    });
    each_python(async |python| {
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        let listed = client.rpc("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        let listed: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(listed, names);
        for name in names {
            assert_eq!(client.text(name, json!({})).await, name);
        }
        let answer = client.tool("CALC", json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    })
    .await;
}

/// Compiles `source` to `target` such that an importer would use it unasked.
fn compile(python: &str, source: &str, target: &Path) {
    let host = bin_dir().join(format!("ramen-host-{python}"));
    let described = Command::new(host).arg("--describe").output().unwrap();
    let described: Value = serde_json::from_slice(&described.stdout).unwrap();
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    let text = target.with_extension("txt");
    std::fs::write(&text, source).unwrap();
    let code = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True, \
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)";
    let status = Command::new(described["executable"].as_str().unwrap())
        .args(["-c", code])
        .args([&text, target])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::remove_file(text).unwrap();
}

#[tokio::test]
async fn pkg11_the_source_runs_whatever_bytecode_lies_beside_it() {
    each_python(async |python| {
        let group = Group::new()
            .tool(
                "stale",
                &json!({}),
                "import helper\ndef run(): return 'fresh ' + helper.V",
            )
            .file("tools/stale/utils/helper.py", "V = 'fresh'")
            .tool(
                "lone",
                &json!({}),
                "def run():\n    import only_compiled\n    return 'found'",
            );
        let tools = group.path().join("mcp/tools");
        let tag = format!("cpython-{}", python.replace('.', ""));
        let stale = "def run(): return 'stale'";
        compile(
            python,
            stale,
            &tools.join(format!("stale/__pycache__/stale.{tag}.pyc")),
        );
        let helper = tools.join(format!("stale/utils/__pycache__/helper.{tag}.pyc"));
        compile(python, "V = 'stale'", &helper);
        compile(python, "V = 1", &tools.join("lone/utils/only_compiled.pyc"));
        compile(python, "V = 1", &tools.join("lone/only_compiled.pyc"));
        let served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        assert_eq!(client.text("stale", json!({})).await, "fresh fresh");
        let error = client.error("lone", json!({})).await;
        assert_eq!(
            error,
            "ModuleNotFoundError: No module named 'only_compiled'"
        );
    })
    .await;
}
