//! RES: what values become, by docs/reference/results.md.

use ramen_frame::Status;
use serde_json::json;

use crate::driver::{Group, each_python};

/// `(row, body of the function, status, exact payload)`.
const EXACT: &[(&str, &str, Status, &str)] = &[
    ("text", "return 'grüße\\n'", Status::Text, "grüße\n"),
    ("none", "return None", Status::Json, "null"),
    ("flag", "return True", Status::Json, "true"),
    ("number", "return -12", Status::Json, "-12"),
    (
        "res01_big_integer",
        "return 2**70",
        Status::Json,
        "1180591620717411303424",
    ),
    (
        "res01_smallest_i64",
        "return -2**63",
        Status::Json,
        "-9223372036854775808",
    ),
    ("whole_float", "return 8.0", Status::Json, "8.0"),
    (
        "float",
        "return 0.1 + 0.2",
        Status::Json,
        "0.30000000000000004",
    ),
    ("large_float", "return 1e16", Status::Json, "1e+16"),
    ("small_float", "return 1e-7", Status::Json, "1e-07"),
    ("minus_zero", "return -0.0", Status::Json, "-0.0"),
    (
        "dict",
        "return {'a': [1, (2, None)], 'ü': '\"\\\\\\x01'}",
        Status::Json,
        "{\"a\":[1,[2,null]],\"ü\":\"\\\"\\\\\\u0001\"}",
    ),
    (
        "other_keys",
        "return {1: 'a', True and None: 2, 1.5: 3}",
        Status::Json,
        "{\"1\":\"a\",\"null\":2,\"1.5\":3}",
    ),
    (
        "res11_text_enum",
        "import enum\n    class S(str, enum.Enum):\n        A = 'a'\n    return S.A",
        Status::Text,
        "a",
    ),
    (
        "res11_int_enum",
        "import enum\n    return enum.IntEnum('I', 'X Y').X",
        Status::Json,
        "1",
    ),
    (
        "res11_plain_enum",
        "import enum\n    return [enum.Enum('E', {'X': 'x'}).X]",
        Status::Json,
        "[\"x\"]",
    ),
    (
        "res11_enum_inside",
        "import enum\n    class S(str, enum.Enum):\n        A = 'a'\n    return {S.A: S.A}",
        Status::Json,
        "{\"a\":\"a\"}",
    ),
    (
        "res05_dataclass",
        "import dataclasses\n    P = dataclasses.make_dataclass('P', [('x', int), ('y', list)])\n    return P(1, [P(2, [])])",
        Status::Json,
        "{\"x\":1,\"y\":[{\"x\":2,\"y\":[]}]}",
    ),
    (
        "named_tuple",
        "import collections\n    return collections.namedtuple('N', 'a b')(1, 2)",
        Status::Json,
        "[1,2]",
    ),
    (
        "times",
        "import datetime as d\n    z = d.timezone.utc\n    return [d.datetime(2026, 1, 2, 3, 4, 5, tzinfo=z), d.date(2026, 1, 2), d.time(3, 4)]",
        Status::Json,
        "[\"2026-01-02T03:04:05+00:00\",\"2026-01-02\",\"03:04:00\"]",
    ),
    (
        "durations",
        "from datetime import timedelta as t\n    return [t(days=1, hours=2), t(0), t(seconds=-90), t(milliseconds=1500)]",
        Status::Json,
        "[\"P1DT2H\",\"PT0S\",\"-PT1M30S\",\"PT1.5S\"]",
    ),
    (
        "decimal",
        "from decimal import Decimal\n    return {'d': Decimal('1.10')}",
        Status::Json,
        "{\"d\":\"1.10\"}",
    ),
    (
        "uuid",
        "import uuid\n    return [uuid.UUID(int=1)]",
        Status::Json,
        "[\"00000000-0000-0000-0000-000000000001\"]",
    ),
    (
        "path",
        "import pathlib\n    return pathlib.Path('/a/b')",
        Status::Json,
        "\"/a/b\"",
    ),
    (
        "mapping",
        "import types\n    return types.MappingProxyType({'a': 1})",
        Status::Json,
        "{\"a\":1}",
    ),
    (
        "views",
        "return [{'a': 1}.keys(), {'a': 1}.values()]",
        Status::Json,
        "[[\"a\"],[1]]",
    ),
    (
        "deque",
        "import collections\n    return collections.deque([1])",
        Status::Json,
        "[1]",
    ),
    (
        "text_subclass",
        "class T(str):\n        def __str__(self): return 'no'\n    return T('yes')",
        Status::Text,
        "yes",
    ),
];

/// `(row, body of the function, start of the error)`.
const ERRORS: &[(&str, &str, &str)] = &[
    (
        "res02_too_many_digits",
        "return 10**5000",
        "ValueError: Exceeds the limit",
    ),
    (
        "nan",
        "return float('nan')",
        "ValueError: Out of range float values are not JSON compliant: nan",
    ),
    (
        "infinity",
        "return [float('-inf')]",
        "ValueError: Out of range float values",
    ),
    (
        "res04_set",
        "return {1, 2}",
        "TypeError: Object of type set is not JSON serializable",
    ),
    (
        "res04_object",
        "return object()",
        "TypeError: Object of type object is not JSON serializable",
    ),
    (
        "res04_raised_object",
        "raise ValueError(object())",
        "ValueError: <object object>",
    ),
    (
        "res06_generator",
        "yield 1",
        "TypeError: Object of type generator is not JSON serializable",
    ),
    (
        "res08_lone_surrogate",
        "import os\n    return os.fsdecode(b'caf\\xe9')",
        "UnicodeEncodeError: ",
    ),
    (
        "res08_lone_surrogate_inside",
        "return {'\\ud800': 1}",
        "UnicodeEncodeError: ",
    ),
    (
        "res09_twin_keys",
        "return {1: 2, '1': 3}",
        "ValueError: two keys are both \"1\" in JSON",
    ),
    (
        "res10_circular",
        "a = []\n    a.append(a)\n    return a",
        "ValueError: Circular reference detected",
    ),
    (
        "res10_circular_dict",
        "a = {}\n    a['b'] = [a, a]\n    return a",
        "ValueError: Circular reference detected",
    ),
    (
        "res10_tuple_key",
        "return {(1, 2): 3}",
        "TypeError: keys must be str, int, float, bool or None, not tuple",
    ),
    (
        "res12_deep_list",
        "a = []\n    for _ in range(5000): a = [a]\n    return a",
        "RecursionError: ",
    ),
    (
        "bytes_of_a_tool",
        "return b'x'",
        "TypeError: a tool cannot return bytes",
    ),
    (
        "bytes_inside",
        "return [b'x']",
        "TypeError: Object of type bytes is not JSON serializable",
    ),
    ("run05_no_message", "raise ValueError()", "ValueError"),
    (
        "run03_keyboard_interrupt",
        "raise KeyboardInterrupt",
        "KeyboardInterrupt",
    ),
    (
        "system_exit",
        "import sys\n    sys.exit(3)",
        "SystemExit: 3",
    ),
    (
        "run06_lines",
        "raise ValueError('a\\n  b\\r\\n\\tc')",
        "ValueError: a b c",
    ),
    (
        "run06_chained",
        "try:\n        1 / 0\n    except Exception as e:\n        raise KeyError('k') from e",
        "KeyError: 'k'",
    ),
    (
        "run06_group",
        "raise ExceptionGroup('g', [ValueError('a'), TypeError('b')])",
        "ExceptionGroup: g (2 sub-exceptions): ValueError: a; TypeError: b",
    ),
    (
        "run06_large_group",
        "raise ExceptionGroup('g', [ValueError(n) for n in range(7)])",
        "ExceptionGroup: g (7 sub-exceptions): ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4; …",
    ),
    (
        "long_text",
        "raise ValueError('ü' * 20000)",
        "ValueError: ü",
    ),
    (
        "str_fails",
        "class E(Exception):\n        def __str__(self): 1 / 0\n    raise E",
        "E: <str() of it raised ZeroDivisionError>",
    ),
    ("recursion", "def f(): f()\n    f()", "RecursionError: "),
    (
        "surrogate_in_error",
        "raise ValueError('\\udce9')",
        "ValueError: \\udce9",
    ),
];

fn function(body: &str, name: &str) -> String {
    format!("def row_{name}():\n    {body}\n\n")
}

#[test]
fn res_values_become_what_the_results_page_says() {
    let mut source = "def run(name):\n    return globals()['row_' + name]()\n\n".to_owned();
    for (name, body, ..) in EXACT {
        source.push_str(&function(body, name));
    }
    for (name, body, _) in ERRORS {
        source.push_str(&function(body, name));
    }
    let group = Group::new().tool("values", &["name"], &source);
    each_python(|python| {
        let mut host = group.start(python);
        host.assert_ok("values");
        for (name, _, status, payload) in EXACT {
            let reply = host.call("values", &json!({"name": name}));
            let text = match reply.status {
                Status::Error => reply.error(),
                _ => reply.text(),
            };
            assert_eq!((reply.status, text), (*status, *payload), "{name}");
        }
        for (name, _, start) in ERRORS {
            let reply = host.call("values", &json!({"name": name}));
            let error = reply.error();
            assert!(error.starts_with(start), "{name}: {error}");
            for forbidden in ["Traceback", "File \"", " at 0x", "\n"] {
                assert!(!error.contains(forbidden), "{name}: {error}");
            }
        }
        // Still alive, and exact messages where nothing may follow.
        let reply = host.call("values", &json!({"name": "run05_no_message"}));
        assert_eq!(reply.error(), "ValueError");
        let reply = host.call("values", &json!({"name": "long_text"}));
        let whole = format!("ValueError: {}", "ü".repeat(20_000));
        let cut: String = whole.chars().take(16_384).chain(['…']).collect();
        assert_eq!(reply.error(), cut);
    });
}

#[test]
fn uri02_bytes_of_a_resource_are_a_blob_and_uri06_its_dict_is_json() {
    let group = Group::new()
        .resource("picture", "def run(): return b'\\x89PNG\\r\\n'")
        .resource("array", "def run(): return bytearray(b'\\xff')")
        .resource("view", "def run(): return memoryview(b'\\xfe')")
        .resource("table", "def run(): return {'a': 1}")
        .resource("page", "def run(): return '# t'")
        .resource("broken", "def run(): raise KeyError('s3cr3t')");
    each_python(|python| {
        let mut host = group.start(python);
        for (name, bytes) in [
            ("picture", &b"\x89PNG\r\n"[..]),
            ("array", b"\xff"),
            ("view", b"\xfe"),
        ] {
            let reply = host.run(name);
            assert_eq!(
                (reply.status, reply.payload.as_slice()),
                (Status::Blob, bytes)
            );
        }
        assert_eq!(host.run("table").json(), json!({"a": 1}));
        assert_eq!(host.run("page").ok_text(), "# t");
        assert_eq!(host.run("broken").error(), "KeyError: 's3cr3t'");
    });
}

#[test]
fn a_result_over_the_frame_limit_is_an_error_and_the_channel_lives() {
    let group = Group::new()
        .tool("huge", &["n"], "def run(n): return 'x' * n")
        .tool("long", &["n"], "def run(n): return list(range(n))");
    each_python(|python| {
        let mut host = group.start(python);
        let reply = host.call("huge", &json!({"n": 17 * 1024 * 1024}));
        assert!(
            reply
                .error()
                .starts_with("ValueError: the result is too large")
        );
        let reply = host.call("long", &json!({"n": 4_000_000}));
        assert!(
            reply.error().starts_with("ValueError: "),
            "{}",
            reply.error()
        );
        assert_eq!(
            host.call("huge", &json!({"n": 4 * 1024 * 1024}))
                .text()
                .len(),
            4 * 1024 * 1024
        );
        assert_eq!(host.call("huge", &json!({"n": 2})).ok_text(), "xx");
    });
}

#[test]
fn arguments_arrive_exact_and_whole() {
    let group = Group::new().tool(
        "kinds",
        &["x"],
        "def run(x): return f'{type(x).__name__} {x!r}'",
    );
    each_python(|python| {
        let mut host = group.start(python);
        let call = |host: &mut crate::driver::Host, json: &str| {
            let package = host.ids["kinds"];
            let arguments = format!("{{\"x\":{json}}}");
            host.send(&ramen_frame::ToHost::Call {
                call: 999,
                package,
                arguments: arguments.as_bytes(),
            });
            host.result(999).ok_text().to_owned()
        };
        for (json, seen) in [
            ("5", "int 5"),
            ("1180591620717411303424", "int 1180591620717411303424"),
            ("5.0", "float 5.0"),
            ("true", "bool True"),
            ("null", "NoneType None"),
            ("\"\\ud83d\\ude00\"", "str '😀'"),
            ("[1,{\"a\":[]}]", "list [1, {'a': []}]"),
        ] {
            assert_eq!(call(&mut host, json), seen);
        }
    });
}

#[test]
fn a_list_of_one_large_string_ends_at_the_limit_not_at_the_memory() {
    let group = Group::new()
        .tool("endless", &[], "def run(): return ['x' * 10**6] * 10**5")
        .tool("fine", &[], "def run(): return 'fine'");
    each_python(|python| {
        let mut host = group.start(python);
        assert_eq!(
            host.run("endless").error(),
            "ValueError: the result is larger than 16 MiB"
        );
        assert_eq!(host.run("fine").ok_text(), "fine");
    });
}
