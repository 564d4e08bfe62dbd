//! One row for every error code and every place it can come from, with its id and HTTP status.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

#[path = "support/sample.rs"]
mod sample;

use std::sync::Arc;

use bytes::Bytes;
use ramen_mcp::model::{Json, Tool};
use ramen_mcp::names::meta_key;
use ramen_mcp::{Connection, HeaderCopies, McpError, Options, Server, Step, code, envelope};
use serde_json::{Value, json};

fn server(catalog: sample::Sample, page_size: usize) -> Server {
    Server::new(
        Arc::new(catalog),
        Options {
            page_size,
            ..Options::default()
        },
    )
}

fn ask(server: &Server, connection: &mut Connection, body: &Value) -> Value {
    ask_text(server, connection, &body.to_string())
}

fn ask_text(server: &Server, connection: &mut Connection, body: &str) -> Value {
    let body = Bytes::from(body.to_owned());
    let reply = match envelope::parse(&body) {
        Err(reject) => reject.answer().expect("a request is answered"),
        Ok(message) => match server.step(&message, connection) {
            Step::Reply(reply) => reply,
            other => panic!("not answered at once: {other:?}"),
        },
    };
    serde_json::from_slice(&reply).unwrap()
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        meta_key::PROTOCOL_VERSION: "2026-07-28",
        meta_key::CLIENT_CAPABILITIES: {},
    });
    json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})
}

fn legacy(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 9, "method": method, "params": params})
}

/// What a row sends, and the code, id and HTTP status of the answer.
type Row = (&'static str, String, i32, Value, u16);

fn check(rows: &[Row]) {
    let server = server(sample::Sample::new(), 100);
    for (what, body, code, id, status) in rows {
        let answer = ask_text(&server, &mut Connection::unary(), body);
        assert_eq!(answer["error"]["code"], *code, "{what}: {answer}");
        assert_eq!(answer["id"], *id, "{what}");
        assert_eq!(answer["jsonrpc"], "2.0", "{what}");
        assert!(answer["error"]["message"].is_string(), "{what}");
        assert!(answer.get("result").is_none(), "{what}");
        assert_eq!(code::http_status(*code), *status, "{what}");
    }
}

#[test]
fn every_code_of_the_envelope_comes_with_its_id_and_status() {
    let row = |what, body: &str, code, id| (what, body.to_owned(), code, id, 400);
    check(&[
        row("not JSON", "{", -32700, Value::Null),
        row("batch", "[]", -32600, Value::Null),
        row(
            "bad id",
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            Value::Null,
        ),
        row(
            "no version",
            r#"{"id":9,"method":"ping"}"#,
            -32600,
            json!(9),
        ),
        row(
            "params",
            r#"{"jsonrpc":"2.0","id":9,"method":"ping","params":[]}"#,
            -32602,
            json!(9),
        ),
    ]);
}

#[test]
fn every_code_of_a_method_comes_with_its_id_and_status() {
    let old = |what, method, params: Value, code, status| {
        (
            what,
            legacy(method, &params).to_string(),
            code,
            json!(9),
            status,
        )
    };
    let new = |what, method, params, code, status| {
        (
            what,
            modern(method, params).to_string(),
            code,
            json!(9),
            status,
        )
    };
    let wrong_version = json!({"_meta": {
        meta_key::PROTOCOL_VERSION: "v9", meta_key::CLIENT_CAPABILITIES: {}
    }});
    check(&[
        old("unknown method, legacy", "x", json!({}), -32601, 404),
        new("unknown method, modern", "x", json!({}), -32601, 404),
        old(
            "env04 unknown tool, legacy",
            "tools/call",
            json!({"name": "x"}),
            -32601,
            404,
        ),
        new(
            "env04 unknown tool, modern",
            "tools/call",
            json!({"name": "x"}),
            -32602,
            400,
        ),
        old(
            "bad arguments, legacy",
            "tools/call",
            json!({"name": "calc"}),
            -32602,
            400,
        ),
        old(
            "no resource, legacy",
            "resources/read",
            json!({"uri": "x"}),
            -32002,
            200,
        ),
        new(
            "no resource, modern",
            "resources/read",
            json!({"uri": "x"}),
            -32602,
            400,
        ),
        new(
            "unknown prompt",
            "prompts/get",
            json!({"name": "x"}),
            -32602,
            400,
        ),
        new(
            "bad cursor",
            "tools/list",
            json!({"cursor": "x"}),
            -32602,
            400,
        ),
        old("unknown version", "tools/list", wrong_version, -32022, 400),
    ]);
}

#[test]
fn errors_carry_the_data_that_the_protocol_asks_for() {
    let unsupported = McpError::unsupported_version("v9");
    assert_eq!(
        unsupported.data,
        Some(Json::from(
            &json!({"supported": ["2026-07-28"], "requested": "v9"})
        ))
    );
    let missing = McpError::missing_capability(&json!({"sampling": {}}));
    assert_eq!(missing.code, code::MISSING_CLIENT_CAPABILITY);
    assert_eq!(
        missing.data,
        Some(Json::from(
            &json!({"requiredCapabilities": {"sampling": {}}})
        ))
    );
    assert_eq!(McpError::internal("x").code, code::INTERNAL_ERROR);
    assert_eq!(code::http_status(code::INTERNAL_ERROR), 200);
    let read: McpError = serde_json::from_str(
        r#"{"code":-32042,"message":"go there","data":{"url":"https://x"},"more":1}"#,
    )
    .unwrap();
    assert_eq!(read.code, code::URL_ELICITATION_REQUIRED);
}

#[test]
fn nothing_that_we_emit_lies_in_the_ranges_we_must_not_use() {
    let reserved = -32099..=-32020;
    let emitted = [
        code::HEADER_MISMATCH,
        code::MISSING_CLIENT_CAPABILITY,
        code::UNSUPPORTED_PROTOCOL_VERSION,
    ];
    for code in emitted {
        assert!(reserved.contains(&code));
    }
    for code in [code::BRIDGE_TRANSPORT, code::BRIDGE_UNAUTHENTICATED] {
        assert!((-32019..=-32000).contains(&code), "carried over, not new");
    }
}

#[test]
fn header_copies_are_judged_before_the_version() {
    let server = server(sample::Sample::new(), 100);
    let headers = |version: Option<&str>, method: Option<&str>, name: Option<&str>| HeaderCopies {
        protocol_version: version.map(str::to_owned),
        method: method.map(str::to_owned),
        name: name.map(str::to_owned),
    };
    let call = modern("tools/call", json!({"name": "nope"}));
    let v = Some("2026-07-28");
    let m = Some("tools/call");
    for (what, headers, code) in [
        ("equal", headers(v, m, Some("nope")), -32602),
        (
            "equal, encoded",
            headers(v, m, Some("=?base64?bm9wZQ==?=")),
            -32602,
        ),
        ("name missing", headers(v, m, None), -32020),
        ("name unequal", headers(v, m, Some("Nope")), -32020),
        (
            "name empty once decoded",
            headers(v, m, Some("=?base64??=")),
            -32020,
        ),
        (
            "name malformed",
            headers(v, m, Some("=?base64?!?=")),
            -32020,
        ),
        ("method missing", headers(v, None, Some("nope")), -32020),
        (
            "method unequal",
            headers(v, Some("tools/list"), Some("nope")),
            -32020,
        ),
        ("version missing", headers(None, m, Some("nope")), -32020),
        (
            "version unequal",
            headers(Some("2025-11-25"), m, Some("nope")),
            -32020,
        ),
    ] {
        let answer = ask(&server, &mut Connection::http(headers), &call);
        assert_eq!(answer["error"]["code"], code, "{what}: {answer}");
    }
    // The suite sends a known version in the header and an unknown one in the body.
    let mut odd = call.clone();
    odd["params"]["_meta"][meta_key::PROTOCOL_VERSION] = json!("v999.0.0");
    let answer = ask(
        &server,
        &mut Connection::http(headers(v, m, Some("nope"))),
        &odd,
    );
    assert_eq!(answer["error"]["code"], -32020);
    // A modern header over a body without metadata is a broken modern request, initialize too.
    for method in ["tools/list", "initialize"] {
        let body = legacy(method, &json!({}));
        let answer = ask(
            &server,
            &mut Connection::http(headers(v, Some(method), None)),
            &body,
        );
        assert_eq!(answer["error"]["code"], -32602, "{method}");
    }
    let plain = legacy("tools/list", &json!({}));
    for version in [None, Some("2025-06-18"), Some("2025-11-25")] {
        let answer = ask(
            &server,
            &mut Connection::http(headers(version, None, None)),
            &plain,
        );
        assert!(answer["result"]["tools"].is_array(), "{version:?}");
    }
}

#[test]
fn pages_hold_every_tool_once_in_order_and_end() {
    for (count, size) in [
        (0, 3),
        (1, 3),
        (3, 3),
        (4, 3),
        (10, 3),
        (10, 1),
        (5, 0),
        (250, 100),
    ] {
        let mut catalog = sample::Sample::new();
        let tool = catalog.tools.swap_remove(0);
        let named = |n: usize| Tool {
            name: format!("t{n:03}"),
            ..tool.clone()
        };
        catalog.tools = (0..count).rev().map(named).collect();
        let server = server(catalog, size);
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let params = cursor
                .take()
                .map_or(json!({}), |cursor| json!({ "cursor": cursor }));
            let answer = ask(
                &server,
                &mut Connection::unary(),
                &modern("tools/list", params),
            );
            let result = &answer["result"];
            assert_eq!(result["cacheScope"], "private");
            let tools = result["tools"].as_array().unwrap();
            assert!(tools.len() <= size.max(1));
            seen.extend(
                tools
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            match &result["nextCursor"] {
                Value::String(next) => cursor = Some(next.clone()),
                other => {
                    assert!(other.is_null() && result.get("nextCursor").is_none());
                    break;
                }
            }
        }
        let expected: Vec<_> = (0..count).map(|n| format!("t{n:03}")).collect();
        assert_eq!(seen, expected, "{count} tools, {size} a page");
        assert_eq!(pages, count.div_ceil(size.max(1)).max(1));
    }
}

#[test]
fn completion_offers_at_most_100_values() {
    let server = server(sample::Sample::new(), 100);
    let ask_for = |typed: &str| {
        let params = json!({
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "tone", "value": typed},
        });
        ask(
            &server,
            &mut Connection::unary(),
            &legacy("completion/complete", &params),
        )["result"]["completion"]
            .clone()
    };
    let all = ask_for("wa");
    assert_eq!(all["values"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&all["total"], &all["hasMore"]),
        (&json!(120), &json!(true))
    );
    assert_eq!(ask_for("WARM11")["total"], 11);
    assert_eq!(ask_for("x")["values"], json!([]));
}

#[test]
fn notifications_are_built_from_what_the_host_sends() {
    use ramen_mcp::server::ListKind;
    use ramen_mcp::{LogLevel, RequestId, notify};

    let token = RequestId::text("t");
    let text = |bytes: Option<Bytes>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    assert_eq!(
        text(notify::progress(&token, br#"{"message":"half","total":100,"progress":50.5,"x":1}"#)),
        Some(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":50.5,"total":100,"message":"half"}}"#.to_owned())
    );
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"progress":"x"}"#,
        r#"{"progress":NaN}"#,
        "{\"progress\":1e999}",
    ] {
        assert_eq!(notify::progress(&token, bad.as_bytes()), None, "{bad}");
    }
    let log = br#"{"level":"notice","logger":"a","data":{"k":1}}"#;
    assert_eq!(
        text(notify::log_message(LogLevel::Info, log)),
        Some(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"notice","logger":"a","data":{"k":1}}}"#.to_owned())
    );
    assert_eq!(notify::log_message(LogLevel::Warning, log), None);
    let broken = text(notify::log_message(
        LogLevel::Info,
        b"{\"level\":\"info\",\"data\":[\n1]}",
    ));
    assert!(!broken.unwrap().contains('\n'), "a message is one line");
    for bad in [
        "",
        "{}",
        r#"{"level":"loud","data":1}"#,
        r#"{"level":"info"}"#,
    ] {
        assert_eq!(
            notify::log_message(LogLevel::Debug, bad.as_bytes()),
            None,
            "{bad}"
        );
    }
    assert_eq!(
        &*notify::list_changed(ListKind::Tools),
        br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
    );
    assert_eq!(
        &*notify::cancelled(&RequestId::number(7), "user \"x\""),
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"user \"x\""}}"#
    );
}
