//! Whatever arrives: no panic, one answer at most, valid JSON, never another id.

#[path = "support/sample.rs"]
mod sample;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use proptest::prelude::*;
use ramen_mcp::{Connection, Message, Options, Outcome, RequestId, Server, Step, envelope};
use serde_json::Value;
use serde_json::value::RawValue;

static SERVER: LazyLock<Server> =
    LazyLock::new(|| Server::new(Arc::new(sample::Sample::new()), Options::default()));

/// Everything that one message leads to, as one reply.
fn reply(body: &Bytes, connection: &mut Connection) -> Option<Bytes> {
    let message = match envelope::parse(body) {
        Ok(message) => message,
        Err(reject) => return reject.answer(),
    };
    let expected = match &message {
        Message::Request(_) => 1,
        Message::Notification(_) | Message::Response(_) => 0,
    };
    let reply = match SERVER.step(&message, connection) {
        Step::Reply(reply) => Some(reply),
        Step::Silent | Step::Cancel(_) => None,
        Step::Listen(listen) => Some(listen.end()),
        Step::CallTool(call) => Some(SERVER.tool_reply(&call, Outcome::Json(b"{\"a\":1}"))),
        Step::ReadResource(read) => Some(SERVER.resource_reply(&read, Outcome::Text("x"))),
    };
    assert_eq!(usize::from(reply.is_some()), expected);
    reply
}

#[derive(serde::Deserialize)]
struct Answer<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    result: Option<Value>,
    error: Option<Value>,
}

fn answer(bytes: &Bytes) -> Answer<'_> {
    assert!(!bytes.contains(&b'\n'), "an answer is one line");
    let answer: Answer<'_> = serde_json::from_slice(bytes).expect("answers are JSON");
    assert_eq!(answer.jsonrpc, "2.0");
    assert_ne!(answer.result.is_some(), answer.error.is_some());
    answer
}

fn methods() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "initialize",
            "ping",
            "server/discover",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
            "subscriptions/listen",
            "notifications/cancelled",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "now",
            "calc",
            "greet",
            "demo://readme",
            "2026-07-28",
            "info"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names(), inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "_meta",
            "name",
            "arguments",
            "uri",
            "cursor",
            "level",
            "ref",
            "argument",
            "type",
            "value",
            "notifications",
            "requestId",
            "protocolVersion",
            "progressToken",
            "toolsListChanged",
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/clientCapabilities",
            "io.modelcontextprotocol/logLevel",
            "var1",
            "tone",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ]
}

fn connections() -> impl Strategy<Value = Connection> {
    prop::sample::select(vec![
        Connection::unary(),
        Connection::session(),
        Connection::stdio(),
    ])
}

proptest! {
    #[test]
    fn usable_ids_come_back_byte_for_byte_and_others_never(
        id in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            (-20_i64..20).prop_map(|n| (n.signum() * 9_007_199_254_740_991 + n).to_string()),
            "\"([ !#-\\[\\]-~äπ😀]|\\\\[\"\\\\/bfnrt]|\\\\u00[0-7][0-9a-fA-F]){0,12}\"",
            "-?[0-9]{1,25}(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
            json().prop_map(|value| value.to_string()),
        ],
        method in methods(),
        mut connection in connections(),
    ) {
        let method = Value::from(method);
        let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#));
        let usable = match serde_json::from_str::<Value>(&id) {
            Ok(Value::String(_)) => true,
            Ok(Value::Number(n)) => n.as_i64().is_some_and(|n| n.abs() <= 9_007_199_254_740_991),
            _ => false,
        };
        let reply = reply(&body, &mut connection).expect("it has an id, so it is answered");
        let answer = answer(&reply);
        if usable {
            prop_assert_eq!(answer.id.get(), &id);
            let key = RequestId::from_token(Bytes::from(id.clone())).unwrap().key();
            prop_assert_eq!(RequestId::from_token(Bytes::from(id)).unwrap().key(), key);
        } else {
            prop_assert_eq!(answer.id.get(), "null");
            let code = answer.error.unwrap()["code"].clone();
            prop_assert!(code == -32600 || code == -32700, "{}", code);
        }
    }

    #[test]
    fn any_request_is_answered_once_with_its_id(
        method in methods(),
        params in json(),
        id in any::<u32>(),
        mut connection in connections(),
    ) {
        let body = serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let reply = reply(&Bytes::from(body.to_string()), &mut connection).unwrap();
        prop_assert_eq!(answer(&reply).id.get(), id.to_string());
    }

    #[test]
    fn any_notification_stays_unanswered(
        method in methods(),
        params in json(),
        mut connection in connections(),
    ) {
        let body = serde_json::json!({"jsonrpc": "2.0", "method": method, "params": params});
        prop_assert!(reply(&Bytes::from(body.to_string()), &mut connection).is_none());
    }

    #[test]
    fn any_bytes_are_survived(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            "[\\[\\]{}\",:0-9eE.+\\\\u d8jsonrpcidmethod-]{0,80}".prop_map(String::into_bytes),
            json().prop_map(|value| value.to_string().into_bytes()),
        ],
        mut connection in connections(),
    ) {
        if let Some(reply) = reply(&Bytes::from(bytes), &mut connection) {
            answer(&reply);
        }
    }

    #[test]
    fn a_valid_message_cut_or_changed_anywhere_is_survived(
        at in 0..180_usize,
        put in prop::option::of(any::<u8>()),
        mut connection in connections(),
    ) {
        let good = br#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"calc","arguments":{"var1":1,"var2":2e1},"_meta":{"progressToken":"t\u0041"}}}"#;
        let mut bytes = good.to_vec();
        let at = at % bytes.len();
        match put {
            Some(byte) => bytes[at] = byte,
            None => bytes.truncate(at),
        }
        if let Some(reply) = reply(&Bytes::from(bytes), &mut connection) {
            answer(&reply);
        }
    }

    #[test]
    fn any_outcome_becomes_one_valid_response(
        text in "\\PC{0,40}|[\\x00-\\x7f]{0,40}|\\{\n\"a\":\r\n *[0-9]\\}|\\[\n\\{\n\\}\\]",
        kind in 0..5_usize,
        name in prop::sample::select(vec!["now", "profile"]),
        modern in any::<bool>(),
    ) {
        let meta = if modern {
            r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#
        } else {
            ""
        };
        let body = Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{{"name":"{name}"{meta}}}}}"#
        ));
        let message = envelope::parse(&body).unwrap();
        let Step::CallTool(call) = SERVER.step(&message, &mut Connection::unary()) else {
            return Err(TestCaseError::fail("a call"));
        };
        let outcome = match kind {
            0 => Outcome::Text(&text),
            1 => Outcome::Json(text.as_bytes()),
            2 => Outcome::Content(text.as_bytes()),
            3 => Outcome::Blob(text.as_bytes()),
            _ => Outcome::Error(&text),
        };
        let reply = SERVER.tool_reply(&call, outcome);
        let answer = answer(&reply);
        prop_assert_eq!(answer.id.get(), "\"i\"");
        if let Some(result) = answer.result {
            prop_assert!(result["content"].is_array());
            prop_assert_eq!(result["resultType"] == "complete", modern);
            if name == "profile" && result["isError"] == false {
                prop_assert!(result["structuredContent"].is_object());
            }
            if kind == 0 && result["isError"] == false {
                prop_assert_eq!(&result["content"][0]["text"], &Value::from(text));
            }
        }
    }
}
