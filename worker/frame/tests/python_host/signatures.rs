//! PKG06, PKG07: what may be a callable, and how its parameters must fit.

use serde_json::json;

use crate::driver::{Group, each_python};

#[test]
fn pkg06_what_is_no_function_is_an_entry_and_what_can_be_called_is_called() {
    let group = Group::new()
        .tool("missing", &[], "def other(): pass")
        .tool("number", &[], "run = 5")
        .tool("position", &["a"], "def run(a, /): return a")
        .tool("partial", &["a"], "import functools\nrun = functools.partial(lambda a, b: a + b, b=1)")
        .tool("class", &["a"], "import dataclasses\n@dataclasses.dataclass\nclass run:\n    a: int\n    b: int = 2")
        .tool("async", &["a"], "async def run(a): return a")
        .tool("object", &["a"], "class C:\n    def __call__(self, a): return [a]\nrun = C()")
        .tool(
            "wrapped",
            &["a"],
            "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(*args, **kw): return f(*args, **kw) + 1\n    return inner\n@deco\ndef run(a): return a",
        )
        .tool("builtin", &["a"], "run = print")
        .tool("lambda", &["a"], "run = lambda a, *rest, b=2, **more: a + b")
        .tool("only", &["a"], "def run(*, a): return a");
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_fault("missing", "CallableMissing", &["run"]);
        host.assert_fault("number", "CallableNotCallable", &["run", "an int"]);
        host.assert_fault("position", "SignatureMismatch", &["a", "positional-only"]);
        assert!(host.outcome("async").is_async && !host.outcome("lambda").is_async);
        for (name, answer) in [
            ("partial", json!(6)),
            ("class", json!({"a": 5, "b": 2})),
            ("async", json!(5)),
            ("object", json!([5])),
            ("wrapped", json!(6)),
            ("lambda", json!(7)),
            ("only", json!(5)),
        ] {
            host.assert_ok(name);
            assert_eq!(host.call(name, &json!({"a": 5})).json(), answer, "{name}");
        }
    });
}

#[test]
fn pkg07_parameters_that_do_not_fit_the_input_are_named() {
    let group = Group::new()
        .tool("few", &["x", "y"], "def run(x): pass")
        .tool("many", &["x", "y"], "def run(x, y, z): pass")
        .tool("both", &["x", "y"], "def run(x, *, z): pass")
        .tool("default", &["x", "y"], "def run(x, y, z=1): return 'ok'")
        .tool("any", &["x", "y"], "def run(**kw): return sorted(kw)")
        .tool(
            "method",
            &["x"],
            "class C:\n    def m(self, x): return x\nrun = C().m",
        )
        .tool(
            "wrong-method",
            &["y"],
            "class C:\n    def m(self, x): return x\nrun = C().m",
        );
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_fault("few", "SignatureMismatch", &["input has y"]);
        host.assert_fault("many", "SignatureMismatch", &["requires z"]);
        host.assert_fault("both", "SignatureMismatch", &["input has y", "requires z"]);
        host.assert_fault(
            "wrong-method",
            "SignatureMismatch",
            &["input has y", "requires x"],
        );
        assert_eq!(
            host.call("default", &json!({"x": 1, "y": 2})).ok_text(),
            "ok"
        );
        assert_eq!(
            host.call("any", &json!({"x": 1, "y": 2})).json(),
            json!(["x", "y"])
        );
        assert_eq!(host.call("method", &json!({"x": 1})).json(), json!(1));
    });
}
