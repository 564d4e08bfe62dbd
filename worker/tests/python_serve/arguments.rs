//! ENV: what arguments a callable gets, and what `output` promises.

use serde_json::{Value, json};

use crate::harness::{Client, Group, call, modern, text_of};
use crate::served::{Setup, each_python};

fn group() -> Group {
    let show = "def run(x): return [type(x).__name__, x]";
    Group::new()
        .tool(
            "calc",
            &json!({
                "var1": {"type": "number"}, "var2": {"type": "number"},
                "func": {"enum": ["add", "subtract"]},
            }),
            "def run(var1, var2, func): return var1 + var2 if func == 'add' else var1 - var2",
        )
        .tool("integer", &json!({"x": {"type": "integer"}}), show)
        .tool("number", &json!({"x": {"type": "number"}}), show)
        .tool("boolean", &json!({"x": {"type": "boolean"}}), show)
        .tool(
            "text",
            &json!({"x": {"type": "string"}}),
            "def run(x): return [len(x), x]",
        )
        .tool("nothing", &json!({}), "def run(): return 'ran'")
        .tool(
            "names",
            &json!({"a": {"type": "integer"}, "b": {"type": "integer", "default": 7}}),
            "def run(**arguments): return arguments",
        )
        .tool_with(
            "half",
            &json!({"x": {"type": "number"}}),
            "def run(x): return x / 2",
            &json!({"output": {"type": "number"}, "error": {"type": "string"}}),
        )
        .tool_with(
            "broken_promise",
            &json!({}),
            "def run(): return [1]",
            &json!({"output": {"type": "object", "properties": {"a": {"type": "integer"}}}}),
        )
        .tool_with(
            "broken_number",
            &json!({}),
            "def run(): return 'many'",
            &json!({"output": {"type": "number"}}),
        )
}

/// An argument failure: `-32602` that names it in the legacy era, a result with `isError` in the
/// modern one. The callable does not run.
async fn refused(client: &Client, row: &str, tool: &str, arguments: Value, argument: &str) {
    let answer = client.tool(tool, arguments.clone()).await;
    assert_eq!(answer["error"]["code"], -32602, "{row}: {answer}");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(argument), "{row}: {answer}");
    let params = json!({"name": tool, "arguments": arguments});
    let answer = client.send(&modern(1, "tools/call", params)).await.unwrap();
    assert_eq!(answer["result"]["isError"], true, "{row}: {answer}");
    assert!(text_of(&answer).contains(argument), "{row}: {answer}");
}

#[tokio::test]
async fn env17_env19_arguments_that_do_not_fit_are_named_and_nothing_runs() {
    let calc = |var1: Value, more: Value| {
        let mut arguments = json!({"var1": var1, "var2": 2, "func": "add"});
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        arguments
    };
    let rows = [
        (
            "env17",
            "calc",
            calc(json!(1), json!({"round": 2})),
            "round",
        ),
        ("missing", "calc", json!({"var1": 1, "func": "add"}), "var2"),
        ("no_coercion", "calc", calc(json!("1"), json!({})), "var1"),
        ("null", "calc", calc(Value::Null, json!({})), "var1"),
        (
            "true_is_no_number",
            "calc",
            calc(json!(true), json!({})),
            "var1",
        ),
        (
            "enum",
            "calc",
            calc(json!(1), json!({"func": "power"})),
            "func",
        ),
        ("env19_fraction", "integer", json!({"x": 5.5}), "x"),
        ("env19_true", "integer", json!({"x": true}), "x"),
        ("one_is_not_true", "boolean", json!({"x": 1}), "x"),
        ("text", "text", json!({"x": 1}), "x"),
        ("extra_of_none", "nothing", json!({"x": 1}), "x"),
    ];
    each_python(async |python| {
        let served = Setup::new(python).serve(&group()).await;
        let client = served.client().await;
        for (row, tool, arguments, argument) in &rows {
            refused(&client, row, tool, arguments.clone(), argument).await;
        }
        assert_eq!(served.calls().await, 0, "nothing ran");
    })
    .await;
}

#[tokio::test]
async fn env15_env18_to_env21_arguments_reach_python_as_what_they_are() {
    // Arguments as text: how a number is written matters.
    let rows = [
        ("env15", "text", r#"{"x":"\ud83d\ude00"}"#, r#"[1,"😀"]"#),
        ("env19", "integer", r#"{"x":5.0}"#, r#"["int",5]"#),
        (
            "env19_exponent",
            "integer",
            r#"{"x":1e2}"#,
            r#"["int",100]"#,
        ),
        (
            "big",
            "integer",
            r#"{"x":123456789012345678901234567890}"#,
            r#"["int",123456789012345678901234567890]"#,
        ),
        ("float", "number", r#"{"x":5.0}"#, r#"["float",5.0]"#),
        ("int_as_number", "number", r#"{"x":5}"#, r#"["int",5]"#),
        ("bool", "boolean", r#"{"x":true}"#, r#"["bool",true]"#),
        (
            "zero_byte",
            "text",
            r#"{"x":"a\u0000b"}"#,
            "[3,\"a\\u0000b\"]",
        ),
        ("env18", "names", r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#),
        ("default", "names", r#"{"a":1}"#, r#"{"a":1,"b":7}"#),
        ("env21_null", "nothing", "null", "ran"),
        ("env21_empty", "nothing", "{}", "ran"),
    ];
    each_python(async |python| {
        let served = Setup::new(python).serve(&group()).await;
        let client = served.client().await;
        for (row, tool, arguments, wanted) in rows {
            let message = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"p"}}}}}}"#
            );
            let answer = serde_json::from_slice(&client.raw(message).await.unwrap()).unwrap();
            assert_eq!(text_of(&answer), wanted, "{row}");
        }
        let answer = client.rpc("tools/call", json!({"name": "nothing"})).await;
        assert_eq!(text_of(&answer), "ran", "env21: absent");
    })
    .await;
}

#[tokio::test]
async fn env23_a_scalar_output_is_a_schema_with_a_value_or_neither() {
    each_python(async |python| {
        let served = Setup::new(python).serve(&group()).await;
        let client = served.client().await;
        let listed = |answer: &Value| {
            let tools = answer["result"]["tools"].as_array().unwrap();
            tools
                .iter()
                .find(|tool| tool["name"] == "half")
                .unwrap()
                .clone()
        };
        let legacy = client.rpc("tools/list", json!({})).await;
        assert!(listed(&legacy).get("outputSchema").is_none(), "{legacy}");
        let answer = client
            .send(&call(1, "half", json!({"x": 5})))
            .await
            .unwrap();
        assert_eq!(text_of(&answer), "2.5");
        assert!(
            answer["result"].get("structuredContent").is_none(),
            "{answer}"
        );

        let list = client
            .send(&modern(1, "tools/list", json!({})))
            .await
            .unwrap();
        assert_eq!(listed(&list)["outputSchema"]["type"], "number", "{list}");
        let params = json!({"name": "half", "arguments": {"x": 5}});
        let answer = client.send(&modern(1, "tools/call", params)).await.unwrap();
        assert_eq!(answer["result"]["structuredContent"], 2.5, "{answer}");

        // It is held to it whether the client is shown it or not.
        for broken in ["broken_promise", "broken_number"] {
            let error = client.error(broken, json!({})).await;
            assert!(error.starts_with("OutputMismatch: "), "{error}");
            let params = json!({"name": broken, "arguments": {}});
            let answer = client.send(&modern(1, "tools/call", params)).await.unwrap();
            assert_eq!(text_of(&answer), error);
        }
    })
    .await;
}
