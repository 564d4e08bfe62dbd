//! ENV: what a message may look like. Everything here is also held byte for byte by the transcripts
//! of the protocol; these go through the whole worker to real tools.

use serde_json::{Value, json};

use crate::harness::{Client, Group, call, modern, text_of};
use crate::served::{Served, Setup, each_python};

fn group() -> Group {
    Group::new()
        .tool(
            "calc",
            &json!({"var1": {"type": "number"}, "var2": {"type": "number"}}),
            "def run(var1, var2): return var1 + var2",
        )
        .tool("admin", &json!({}), "def run(): return 'admin ran'")
        .tool(
            "meet",
            &json!({}),
            "import threading\nall_three = threading.Barrier(3)\n\
             def run():\n    all_three.wait(20)\n    return 'met'",
        )
}

async fn start(python: &str) -> (Served, Client) {
    let setup = Setup::new(python).set("RAMEN_HOSTS", "1");
    let served = setup.serve(&group()).await;
    let client = served.client().await;
    (served, client)
}

#[tokio::test]
async fn env01_env05_to_env08_ids_come_back_as_they_were_or_are_refused() {
    let long = "x".repeat(300);
    let echoed = [
        ("env01", r#""1""#.to_owned()),
        ("env03", "0".to_owned()),
        ("env07_hex", r#""14f40ee1b859ee70""#.to_owned()),
        ("env07_long", format!("\"{long}\"")),
        ("env08_empty", r#""""#.to_owned()),
        ("largest", "9007199254740991".to_owned()),
        ("escaped", r#""\u0061\/""#.to_owned()),
    ];
    let refused = [
        ("env05", "9007199254740993"),
        ("env05_negative", "-9007199254740993"),
        ("env06", "18446744073709551616"),
        ("env08_true", "true"),
        ("env08_list", "[1]"),
        ("env08_object", "{}"),
        ("fraction", "1.5"),
    ];
    each_python(async |python| {
        let (served, client) = start(python).await;
        for (row, id) in &echoed {
            for method in ["tools/list", "tools/call"] {
                let message = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"admin"}}}}"#
                );
                let answer = client.raw(message).await.unwrap();
                let answer = std::str::from_utf8(&answer).unwrap();
                let begin = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
                assert!(answer.starts_with(&begin), "{row}: {answer}");
            }
        }
        let before = served.calls().await;
        for (row, id) in refused {
            let message = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"admin"}}}}"#
            );
            let answer = json_of(&client, message.as_bytes()).await;
            assert_eq!(answer["error"]["code"], -32600, "{row}: {answer}");
            assert_eq!(answer.get("id"), Some(&Value::Null), "{row}: {answer}");
        }
        assert_eq!(served.calls().await, before, "nothing ran");
    })
    .await;
}

async fn json_of(client: &Client, message: &[u8]) -> Value {
    serde_json::from_slice(&client.raw(message.to_vec()).await.unwrap()).unwrap()
}

#[tokio::test]
async fn env03_three_calls_in_flight_keep_their_ids_apart() {
    each_python(async |python| {
        let (_served, client) = start(python).await;
        // One stream.
        let ids = [json!(0), json!(42), json!("0")];
        let mut session = client.session().await;
        for id in &ids {
            session.send(&call(id.clone(), "meet", json!({}))).await;
        }
        let mut answered = Vec::new();
        for _ in &ids {
            let answer = session.next().await;
            assert_eq!(text_of(&answer), "met");
            answered.push(answer["id"].clone());
        }
        for id in &ids {
            assert!(answered.contains(id), "{id} in {answered:?}");
        }
        // Three calls on one connection.
        let calls = ids.iter().map(async |id| {
            let answer = client
                .send(&call(id.clone(), "meet", json!({})))
                .await
                .unwrap();
            assert_eq!(&answer["id"], id);
        });
        futures::future::join_all(calls).await;
    })
    .await;
}

#[tokio::test]
async fn env04_an_unknown_tool_is_an_error_with_the_id() {
    each_python(async |python| {
        let (_served, client) = start(python).await;
        let legacy = client.send(&call(7, "nope", json!({}))).await.unwrap();
        assert_eq!(
            (&legacy["id"], &legacy["error"]["code"]),
            (&json!(7), &json!(-32601))
        );
        let message = modern(7, "tools/call", json!({"name": "nope", "arguments": {}}));
        let modern = client.send(&message).await.unwrap();
        assert_eq!(
            (&modern["id"], &modern["error"]["code"]),
            (&json!(7), &json!(-32602))
        );
    })
    .await;
}

/// `(row, message, code, id)` of what is refused before anything runs.
fn refusals() -> Vec<(&'static str, Vec<u8>, i64, Value)> {
    let run = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"admin"}}"#;
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let tool = |params: &str| {
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        message.into_bytes()
    };
    let bytes = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "env09",
            bytes(&format!("[{run},{run}]")),
            -32600,
            Value::Null,
        ),
        ("env09_empty", bytes("[]"), -32600, Value::Null),
        (
            "env10",
            bytes(r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#),
            -32600,
            json!(4),
        ),
        (
            "env10_none",
            bytes(r#"{"id":4,"method":"ping"}"#),
            -32600,
            json!(4),
        ),
        (
            "env11",
            tool(&format!(
                r#"{{"name":"admin","arguments":{{}},"x":{}}}"#,
                "1".repeat(5000)
            )),
            -32700,
            Value::Null,
        ),
        (
            "env12",
            tool(&format!(r#"{{"name":"admin","arguments":{{"x":{deep}}}}}"#)),
            -32700,
            Value::Null,
        ),
        (
            "env14_name",
            tool(r#"{"name":"calc","name":"admin"}"#),
            -32600,
            json!(1),
        ),
        (
            "env14_id",
            bytes(
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"admin"}}"#,
            ),
            -32600,
            Value::Null,
        ),
        (
            "env15",
            tool(r#"{"name":"admin","arguments":{"x":"\ud800"}}"#),
            -32700,
            Value::Null,
        ),
        (
            "env16",
            [b"\xef\xbb\xbf", run.as_bytes()].concat(),
            -32700,
            Value::Null,
        ),
        (
            "env20",
            tool(r#"{"name":"calc","arguments":{"var1":1e400,"var2":1}}"#),
            -32700,
            Value::Null,
        ),
        (
            "env21_list",
            tool(r#"{"name":"admin","arguments":[]}"#),
            -32602,
            json!(1),
        ),
        (
            "env21_text",
            tool(r#"{"name":"admin","arguments":"x"}"#),
            -32602,
            json!(1),
        ),
        (
            "no_utf8",
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\xffng\"}".to_vec(),
            -32700,
            Value::Null,
        ),
        ("empty", Vec::new(), -32700, Value::Null),
    ]
}

#[tokio::test]
async fn env09_to_env16_and_env20_broken_messages_are_refused_and_run_nothing() {
    each_python(async |python| {
        let (mut served, client) = start(python).await;
        let mut session = client.session().await;
        let before = served.calls().await;
        for (row, message, code, id) in refusals() {
            let answer = json_of(&client, &message).await;
            assert_eq!(answer["error"]["code"], code, "{row}: {answer}");
            assert_eq!(answer.get("id"), Some(&id), "{row}: {answer}");
            // The same verdict on a stream, which goes on.
            session.send_raw(message).await;
            assert_eq!(session.next().await, answer, "{row}");
            session
                .send_raw(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#)
                .await;
            let ping = json!({"jsonrpc": "2.0", "id": 2, "result": {}});
            assert_eq!(session.next().await, ping, "{row}: exactly one answer");
        }
        assert_eq!(served.calls().await, before, "nothing ran");
        assert_eq!(client.text("admin", json!({})).await, "admin ran");
        served.assert_alive();
    })
    .await;
}

#[tokio::test]
async fn env13_a_name_in_another_case_chooses_no_tool() {
    each_python(async |python| {
        let (_served, client) = start(python).await;
        let params = json!({"name": "calc", "Name": "admin", "arguments": {"var1": 1, "var2": 2}});
        let answer = client.rpc("tools/call", params).await;
        assert_eq!(text_of(&answer), "3");
        let answer = client.rpc("tools/call", json!({"Name": "admin"})).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    })
    .await;
}

#[tokio::test]
async fn env22_the_version_answered_is_one_that_is_spoken() {
    let spoken = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    each_python(async |python| {
        let (_served, client) = start(python).await;
        let info = json!({"name": "t", "version": "1"});
        for version in spoken
            .iter()
            .copied()
            .chain(["2099-01-01"])
            .map(Some)
            .chain([None])
        {
            let mut params = json!({"capabilities": {}, "clientInfo": info});
            if let Some(version) = version {
                params["protocolVersion"] = version.into();
            }
            let answer = client.rpc("initialize", params).await;
            let answered = answer["result"]["protocolVersion"]
                .as_str()
                .unwrap_or_default();
            assert!(spoken.contains(&answered), "{version:?}: {answer}");
            if let Some(known) = version.filter(|version| spoken.contains(version)) {
                assert_eq!(answered, known);
            }
        }
    })
    .await;
}
