//! PKG: import scopes.

use serde_json::json;

use crate::driver::{Group, each_python};

#[test]
fn pkg01_two_packages_with_the_same_util_name_get_their_own_in_both_orders() {
    let source = "import importlib\n\
        from common import V\n\
        import common\n\
        def run():\n    \
            import common as late\n    \
            from utils import common as same\n    \
            named = importlib.import_module('common')\n    \
            assert common is late is same is named\n    \
            return V + late.V\n";
    let group = |reversed: bool| {
        let group = Group::new()
            .tool("a", &[], source)
            .file("tools/a/utils/common.py", "V = 'a'")
            .tool("b", &[], source)
            .file("tools/b/utils/common.py", "V = 'b'");
        if reversed { group.reversed() } else { group }
    };
    each_python(|python| {
        for reversed in [false, true] {
            let group = group(reversed);
            let mut host = group.start(python);
            assert_eq!(host.run("a").ok_text(), "aa");
            assert_eq!(host.run("b").ok_text(), "bb");
        }
    });
}

#[test]
fn a_util_named_like_a_standard_module_shadows_it_for_its_own_package_only() {
    let source = "import json\ndef run(): return getattr(json, 'MINE', 'standard')";
    let group = Group::new()
        .tool("mine", &[], source)
        .file("tools/mine/utils/json.py", "MINE = 'mine'")
        .tool("other", &[], source)
        .tool(
            "library",
            &[],
            "import logging.config\ndef run(): return logging.config.__name__",
        );
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("mine").ok_text(), "mine");
        assert_eq!(host.run("other").ok_text(), "standard");
        assert_eq!(host.run("library").ok_text(), "logging.config");
    });
}

#[test]
fn pkg02_and_pkg03_an_installed_library_of_the_name_mcp_or_of_the_package_itself_is_imported() {
    let mut group = Group::new()
        .tool(
            "typed",
            &[],
            "from mcp.types import Tool\ndef run(): return Tool",
        )
        .tool(
            "requests",
            &[],
            "import requests\ndef run(): return requests.WHO",
        )
        .tool(
            "lonely",
            &[],
            "import helper\nX = 'x'\ndef run(): return helper.back()",
        )
        .file(
            "tools/lonely/utils/helper.py",
            "import lonely\ndef back(): return lonely.X",
        )
        .file("deps/mcp/__init__.py", "")
        .file("deps/mcp/types.py", "Tool = 'installed'")
        .file("deps/requests/__init__.py", "WHO = 'installed'");
    group.deps = Some(group.folder.path().join("deps"));
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("typed").ok_text(), "installed");
        assert_eq!(host.run("requests").ok_text(), "installed");
        assert_eq!(host.run("lonely").ok_text(), "x");
    });
}

#[test]
fn pkg04_modules_that_import_each_others_names_are_an_entry_and_the_rest_loads() {
    let group = Group::new()
        .tool(
            "round",
            &[],
            "from other import b\na = 1\ndef run(): return b",
        )
        .file("tools/round/utils/other.py", "from round import a\nb = 1")
        .tool(
            "circle",
            &[],
            "from other import b\na = 1\ndef run(): return b",
        )
        .file("tools/circle/utils/other.py", "from circle import a\nb = 1")
        .tool("fine", &[], "def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_fault(
            "circle",
            "ImportFailed",
            &[
                "ImportError: cannot import name 'a' from",
                "(utils/other.py, line 1)",
            ],
        );
        let message = host.outcome("circle").message.clone().unwrap();
        assert!(
            message.contains("'circle'"),
            "the private name shows: {message}"
        );
        assert!(
            !message.contains(&*group.folder.path().to_string_lossy()),
            "{message}"
        );
        assert_eq!(host.run("fine").ok_text(), "fine");
    });
}

#[test]
fn pkg05_an_exit_at_import_is_an_entry_and_the_rest_loads() {
    let group = Group::new()
        .tool("leaves", &[], "import sys\nsys.exit(1)")
        .tool("stops", &[], "raise KeyboardInterrupt")
        .tool("wrong", &[], "def run(:\n  pass")
        .tool("fine", &[], "def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_fault(
            "leaves",
            "ImportFailed",
            &["SystemExit: 1 (leaves.py, line 2)"],
        );
        host.assert_fault("stops", "ImportFailed", &["KeyboardInterrupt"]);
        host.assert_fault(
            "wrong",
            "ImportFailed",
            &["SyntaxError: ", "(wrong.py, line 1)"],
        );
        assert_eq!(host.run("fine").ok_text(), "fine");
        assert!(host.run("leaves").error().starts_with("LookupError: "));
    });
}

#[test]
fn every_import_is_announced_before_it_starts() {
    let group = Group::new()
        .tool("a", &[], "def run(): pass")
        .tool("b", &[], "def run(): pass");
    each_python(|python| {
        let host = group.start(python);
        let announced = host.events.iter().filter_map(|event| match event {
            crate::driver::Event::Importing(id) => Some(*id),
            _ => None,
        });
        assert_eq!(announced.collect::<Vec<_>>(), [10, 11]);
    });
}

#[test]
fn pkg09_near_equal_names_run_their_own_code() {
    let mut group = Group::new();
    for name in [
        "read-file",
        "read_file",
        "Calc",
        "calc",
        "utils",
        "json",
        "ramen_runtime",
    ] {
        group = group.tool(name, &[], &format!("def run(): return '{name}'"));
    }
    group = group
        .resource("shared", "def run(): return 'resource'")
        .file("tools/x", "");
    each_python(|python| {
        let mut host = group.start(python);
        for name in [
            "read-file",
            "read_file",
            "Calc",
            "calc",
            "utils",
            "json",
            "ramen_runtime",
        ] {
            assert_eq!(host.run(name).ok_text(), name);
        }
        assert_eq!(host.run("shared").ok_text(), "resource");
    });
}

#[test]
fn pkg11_stale_bytecode_is_not_used_and_a_lone_one_cannot_be_imported() {
    let group = Group::new()
        .tool("stale", &[], "import helper\ndef run(): return helper.V")
        .file("tools/stale/utils/helper.py", "V = 'new'")
        .tool("lone", &[], "import gone\ndef run(): return gone.V");
    // Same size and same time stamp as the source: what a layer with all times alike looks like.
    let compile = "import py_compile, os, sys\n\
        path = sys.argv[1]\n\
        new = open(path).read()\n\
        open(path, 'w').write(new.replace('new', 'old'))\n\
        os.utime(path, (0, 0))\n\
        py_compile.compile(path, doraise=True)\n\
        py_compile.compile(path, cfile=sys.argv[2], doraise=True)\n\
        open(path, 'w').write(new)\n\
        os.utime(path, (0, 0))\n";
    each_python(|python| {
        let root = group.folder.path();
        let lone = root.join("tools/lone/utils/gone.pyc");
        std::fs::create_dir_all(lone.parent().unwrap()).unwrap();
        let described = python.describe();
        assert_eq!(described["python"], format!("3.{}", python.minor));
        let done = std::process::Command::new(described["executable"].as_str().unwrap())
            .args(["-c", compile])
            .arg(root.join("tools/stale/utils/helper.py"))
            .arg(&lone)
            .status()
            .unwrap();
        assert!(done.success());
        let mut host = group.start(python);
        assert_eq!(host.run("stale").ok_text(), "new");
        host.assert_fault(
            "lone",
            "ImportFailed",
            &["ModuleNotFoundError: No module named 'gone'"],
        );
        assert!(
            !root.join("tools/stale/__pycache__").exists(),
            "bytecode was written"
        );
    });
}

#[test]
fn req09_the_built_in_ramen_runtime_wins_and_the_clash_is_told() {
    let mut group = Group::new()
        .tool(
            "a",
            &[],
            "import ramen_runtime\ndef run(): return ramen_runtime.secrets.__name__",
        )
        .file("tools/a/utils/ramen_runtime.py", "1 / 0")
        .file("deps/ramen_runtime/__init__.py", "1 / 0");
    group.deps = Some(group.folder.path().join("deps"));
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(host.run("a").ok_text(), "ramen_runtime.secrets");
        let warnings = host.loaded.warnings.join("\n");
        assert!(
            warnings.contains("requirements install a module named ramen_runtime"),
            "{warnings}"
        );
        assert!(
            warnings.contains("tools/a/utils/ramen_runtime.py"),
            "{warnings}"
        );
    });
}

#[test]
fn packages_folders_relative_imports_and_lookups_by_module_name_work() {
    let group = Group::new()
        .tool(
            "rich",
            &[],
            "import copy, dataclasses, pickle, typing\n\
             from .utils.shapes import Point\n\
             import shapes.deep.inner\n\
             from shapes import area\n\
             from shapes.deep import inner as second\n\
             from . import beside\n\
             import beside as again\n\
             @dataclasses.dataclass\n\
             class Mine:\n    p: 'Point'\n    q: typing.ClassVar[int] = 1\n\
             def run():\n    \
                 m = pickle.loads(pickle.dumps(Mine(Point(1, 2))))\n    \
                 assert m == Mine(Point(1, 2)) and type(m) is Mine and type(m.p) is Point\n    \
                 assert typing.get_type_hints(Mine)['p'] is Point\n    \
                 assert copy.deepcopy(m) == m\n    \
                 assert shapes.deep.inner is second and beside is again\n    \
                 return [area(m.p), second.up(), beside.N, sorted(shapes.__all__)]\n",
        )
        .file("tools/rich/beside.py", "N = 5")
        .file(
            "tools/rich/utils/shapes/__init__.py",
            "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\n\
             __all__ = ['Point', 'area']\n\
             def area(p): return p.x * p.y\n",
        )
        .file("tools/rich/utils/shapes/deep/__init__.py", "")
        .file(
            "tools/rich/utils/shapes/deep/inner.py",
            "from .. import area\nfrom ... import shapes\ndef up(): return shapes.area is area\n",
        );
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_ok("rich");
        assert_eq!(
            host.run("rich").json(),
            json!([2, true, 5, ["Point", "area"]])
        );
    });
}

#[test]
fn a_data_folder_does_not_hide_an_installed_library_and_nothing_is_on_the_path() {
    let mut group = Group::new()
        .tool(
            "a",
            &[],
            "import table, sys\ndef run(): return [table.WHO, sys.path, 'common' in sys.modules]",
        )
        .file("tools/a/table/rows.csv", "1")
        .file("tools/a/utils/common.py", "")
        .file("deps/table.py", "WHO = 'installed'");
    group.deps = Some(group.folder.path().join("deps"));
    each_python(|python| {
        let mut host = group.start(python);
        let answer = host.run("a").json();
        assert_eq!(answer[0], "installed");
        let deps = group.deps.as_ref().unwrap().to_string_lossy().into_owned();
        for entry in answer[1].as_array().unwrap() {
            let entry = entry.as_str().unwrap();
            let inside = entry.starts_with(&*group.folder.path().to_string_lossy());
            assert!(!inside || entry == deps, "{entry} is on sys.path");
            assert!(
                !entry.is_empty() && !entry.contains("site-packages"),
                "{entry}"
            );
        }
        assert_eq!(answer[2], false);
    });
}

#[test]
fn pth_files_of_the_dependency_layer_are_read() {
    let mut group = Group::new()
        .tool("a", &[], "import far\ndef run(): return far.V")
        .file("deps/x.pth", "nested\n")
        .file("deps/nested/far.py", "V = 'far'");
    group.deps = Some(group.folder.path().join("deps"));
    each_python(|python| assert_eq!(group.start(python).run("a").ok_text(), "far"));
}
