//! RES: what a callable returns, as it arrives.

use serde_json::json;

use crate::harness::{Group, call, text_of};
use crate::served::{Setup, each_python};

const MAX: usize = 4 * 1024 * 1024;

enum Expect {
    Text(&'static str),
    Error(&'static str),
    ErrorStarts(&'static str),
}
use Expect::{Error, ErrorStarts, Text};

/// `(tool, source, what arrives)`; a tool is named by its row.
const VALUES: &[(&str, &str, Expect)] = &[
    (
        "res01",
        "def run(): return 2**70",
        Text("1180591620717411303424"),
    ),
    (
        "res02",
        "def run(): return 10**5000",
        ErrorStarts("ValueError: Exceeds the limit"),
    ),
    (
        "res04_set",
        "def run(): return {1, 2}",
        ErrorStarts("TypeError: Object of type set is not JSON serializable"),
    ),
    (
        "res04_object",
        "class Thing: pass\ndef run(): return {'a': [Thing()]}",
        Error("TypeError: Object of type Thing is not JSON serializable"),
    ),
    (
        "res05_dataclass",
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: str\n    z: list\n\
         def run(): return P(1, 'a', [P(2, 'b', [])])",
        Text(r#"{"x":1,"y":"a","z":[{"x":2,"y":"b","z":[]}]}"#),
    ),
    (
        "res06",
        "def run(): yield 1",
        Error("TypeError: Object of type generator is not JSON serializable"),
    ),
    (
        "res07",
        "async def run(): yield 1",
        Error("TypeError: Object of type async_generator is not JSON serializable"),
    ),
    (
        "res08",
        "import os\ndef run(): return os.fsdecode(b'caf\\xe9')",
        ErrorStarts("UnicodeEncodeError: "),
    ),
    (
        "res08_inside",
        "import os\ndef run(): return [os.fsdecode(b'caf\\xe9')]",
        ErrorStarts("UnicodeEncodeError: "),
    ),
    (
        "res09",
        "def run(): return {1: 2, '1': 3}",
        Error("ValueError: two keys are both \"1\" in JSON"),
    ),
    (
        "res10_circle",
        "def run():\n    a = []\n    a.append(a)\n    return a",
        Error("ValueError: Circular reference detected"),
    ),
    (
        "res10_key",
        "def run(): return {(1, 2): 3}",
        ErrorStarts("TypeError: keys must be "),
    ),
    (
        "res11_str",
        "import enum\nclass S(str, enum.Enum):\n    A = 'a'\ndef run(): return S.A",
        Text("a"),
    ),
    (
        "res11_int",
        "import enum\nclass S(enum.IntEnum):\n    A = 1\ndef run(): return S.A",
        Text("1"),
    ),
    (
        "res11_plain",
        "import enum\nclass S(enum.Enum):\n    A = 7\ndef run(): return [S.A]",
        Text("[7]"),
    ),
    (
        "res12",
        "def run():\n    a = []\n    for _ in range(5000):\n        a = [a]\n    return a",
        ErrorStarts("RecursionError: "),
    ),
    (
        "nan",
        "def run(): return float('nan')",
        ErrorStarts("ValueError: Out of range float"),
    ),
    ("nothing", "def run(): return None", Text("null")),
    (
        "text_as_it_is",
        "def run(): return 'a \"b\"\\n\\u2028ü😀'",
        Text("a \"b\"\n\u{2028}ü😀"),
    ),
];

#[tokio::test]
async fn res01_res02_res04_to_res12_values_follow_the_written_rules() {
    let group = VALUES
        .iter()
        .fold(Group::new(), |group, (name, source, _)| {
            group.tool(name, &json!({}), source)
        });
    each_python(async |python| {
        let mut served = Setup::new(python).serve(&group).await;
        let client = served.client().await;
        for (name, _, expect) in VALUES {
            let answer = client.tool(name, json!({})).await;
            let text = text_of(&answer);
            let failed = answer["result"]["isError"] == true;
            match expect {
                Text(wanted) => assert_eq!((failed, &*text), (false, *wanted), "{name}"),
                Error(wanted) => assert_eq!((failed, &*text), (true, *wanted), "{name}"),
                ErrorStarts(wanted) => {
                    assert!(failed && text.starts_with(wanted), "{name}: {answer}");
                    assert!(!text.contains('\n'), "{name}: {text}");
                }
            }
            for never in [" object at 0x", "<generator", "Traceback", "File \""] {
                assert!(!text.contains(never), "{name}: {text}");
            }
        }
        served.assert_alive();
        assert_eq!(served.metric("ramen_host_restarts_total").await, 0);
    })
    .await;
}

fn sizes() -> Group {
    Group::new()
        .tool(
            "length",
            &json!({"text": {"type": "string"}}),
            "def run(text): return len(text)",
        )
        .tool(
            "make",
            &json!({"text": {"type": "string"}, "times": {"type": "integer"}}),
            "def run(text, times): return text * times",
        )
}

/// A call whose message is `size` bytes, and the length of its argument.
fn padded(size: usize) -> (String, usize) {
    let around = call(1, "length", json!({"text": ""})).to_string().len();
    let length = size - around;
    let text = "x".repeat(length);
    (
        call(1, "length", json!({ "text": text })).to_string(),
        length,
    )
}

#[tokio::test]
async fn res13_a_message_of_4_mib_is_served_and_one_byte_more_is_refused_with_its_size() {
    each_python(async |python| {
        let served = Setup::new(python).serve(&sizes()).await;
        let client = served.client().await;
        for size in [MAX - 1, MAX] {
            let (message, length) = padded(size);
            let answer = client.raw(message).await.unwrap();
            let answer = serde_json::from_slice(&answer).unwrap();
            assert_eq!(text_of(&answer), length.to_string());
        }
        let before = served.calls().await;
        let (message, _) = padded(MAX + 1);
        let status = client.raw(message).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("4194305"), "{status}");
        assert_eq!(
            served.calls().await - before,
            1,
            "counted as refused, not run"
        );
        let refused = served.metric("ramen_calls_total{outcome=\"bad_transport\"}");
        assert_eq!(refused.await, 1);
        assert_eq!(client.text("length", json!({"text": "ü"})).await, "1");
    })
    .await;
}

#[tokio::test]
async fn res14_a_result_over_4_mib_once_escaped_is_a_size_error_and_the_channel_goes_on() {
    each_python(async |python| {
        let served = Setup::new(python).serve(&sizes()).await;
        let client = served.client().await;
        let large = json!({"text": "\u{1}", "times": 1_000_000});
        let status = client.try_tool("make", large.clone()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
        // Six bytes for each, and what stands around them.
        assert!(status.message().contains(" 60000"), "{status}");

        let mut session = client.session().await;
        session.send(&call("big", "make", large)).await;
        let answer = session.next().await;
        assert_eq!(answer["id"], "big");
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(
            answer["error"]["data"]["grpc"], "RESOURCE_EXHAUSTED",
            "{answer}"
        );
        let small = json!({"text": "ab", "times": 2});
        session.send(&call(2, "make", small.clone())).await;
        assert_eq!(text_of(&session.next().await), "abab");
        assert_eq!(client.text("make", small).await, "abab");
        // As it is not escaped, much more fits.
        let plain = client
            .text("make", json!({"text": "x", "times": 4_000_000}))
            .await;
        assert_eq!(plain.len(), 4_000_000);
    })
    .await;
}
