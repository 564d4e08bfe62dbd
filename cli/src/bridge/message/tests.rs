use super::*;

fn request(line: &str) -> Request {
    match parse(line.as_bytes()) {
        Ok(Message::Request(request)) => request,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn ids_keep_their_token_and_compare_by_value() {
    let number = request(r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}"#);
    assert_eq!(number.id.raw(), "9007199254740993");
    let string = request(r#"{"jsonrpc":"2.0","id":"9007199254740993","method":"ping"}"#);
    assert_ne!(number.id.key(), string.id.key());
    let escaped = request(r#"{"jsonrpc":"2.0","id":"\u0031","method":"ping"}"#);
    let plain = request(r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#);
    assert_eq!(escaped.id.key(), plain.id.key());
    assert_eq!(escaped.id.raw(), r#""\u0031""#);
}

#[test]
fn ids_of_other_types_are_invalid_requests() {
    for id in ["null", "true", "[1]", "{}", "1.0", "1e3"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert!(
            matches!(parse(line.as_bytes()), Err(Fault::Invalid(_))),
            "{id}"
        );
    }
}

#[test]
fn streaming_requests_are_told_by_their_metadata() {
    assert!(!request(r#"{"id":1,"method":"tools/call","params":{"name":"a"}}"#).streams);
    assert!(
        request(r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":0}}}"#).streams
    );
    assert!(
        !request(r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":null}}}"#)
            .streams
    );
    let modern = request(
        r#"{"id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/logLevel":"info"}}}"#,
    );
    assert!(modern.streams && modern.modern);
    assert!(request(r#"{"id":1,"method":"subscriptions/listen"}"#).streams);
}

#[test]
fn a_cancellation_names_the_id_it_ends() {
    let line = br#"{"method":"notifications/cancelled","params":{"requestId":"a"}}"#;
    match parse(line) {
        Ok(Message::Notification {
            cancels: Some(id), ..
        }) => assert_eq!(id.key(), "sa"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn broken_lines_are_told_apart() {
    for line in [
        &b"{"[..],
        b"nope",
        b"\xEF\xBB\xBF{}",
        b"{\"a\":\"\xff\"}",
        b"{} {}",
    ] {
        assert!(matches!(parse(line), Err(Fault::Parse(_))), "{line:?}");
    }
    for line in [
        &b"[]"[..],
        b"3",
        b"{}",
        br#"{"id":1,"id":2,"method":"ping"}"#,
        br#"{"id":1,"method":2}"#,
    ] {
        assert!(matches!(parse(line), Err(Fault::Invalid(_))), "{line:?}");
    }
}

#[test]
fn deep_nesting_is_left_to_the_worker() {
    let line = format!(
        r#"{{"id":1,"method":"tools/call","params":{{"arguments":{}{}}}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(request(&line).method, "tools/call");
}

#[test]
fn a_pretty_message_becomes_one_line_of_the_same_value() {
    let pretty = b"{\n  \"a\": \"x\\ny\"\r\n}";
    let line = one_line(pretty);
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
    let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["a"], "x\ny");
}
