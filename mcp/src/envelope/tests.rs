use super::*;
use crate::code;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn reject_code(text: &str) -> Option<i32> {
    parse(&bytes(text)).err().map(|reject| reject.error.code)
}

fn nested(levels: usize) -> String {
    // The message, params and arguments are three of the levels.
    let inner = levels - 3;
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","arguments":{{"x":{}1{}}}}}}}"#,
        "[".repeat(inner),
        "]".repeat(inner)
    )
}

#[test]
fn env12_the_127th_level_parses_and_the_128th_does_not() {
    assert_eq!(reject_code(&nested(127)), None);
    assert_eq!(reject_code(&nested(128)), Some(code::PARSE_ERROR));
    assert_eq!(reject_code(&nested(5000)), Some(code::PARSE_ERROR));
    assert_eq!(reject_code(&"[".repeat(1_000_000)), Some(code::PARSE_ERROR));
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"x":"{}"}}}}"#,
        "[{".repeat(500)
    );
    assert_eq!(
        reject_code(&text),
        None,
        "brackets in a string are no levels"
    );
}

#[test]
fn env11_an_integer_of_5000_digits_is_refused_and_one_of_200_is_kept() {
    let with = |digits: usize| {
        let digits = "1".repeat(digits);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"name":{digits}}}}}"#)
    };
    assert_eq!(reject_code(&with(5000)), Some(code::PARSE_ERROR));
    let body = bytes(&with(200));
    let Ok(Message::Request(request)) = parse(&body) else {
        panic!("a request")
    };
    assert_eq!(request.params.name(), Some(&*"1".repeat(200)));
}

#[test]
fn env15_env20_what_peers_read_differently_is_refused_wherever_it_stands() {
    for bad in [
        r#"{"jsonrpc":"2.0","id":"\ud800","method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"\uDC00"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","unknown":{"\ud800":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\ud83d\u0041"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[-1e400]}"#,
        r#"{"jsonrpc":"2.0","id":1e999,"method":"a"}"#,
    ] {
        assert_eq!(reject_code(bad), Some(code::PARSE_ERROR), "{bad}");
    }
    for good in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":"\\ud800"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"\ud83d\ude00":1e-400}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1.5e3,"y":-0.0E-2}}"#,
    ] {
        assert_eq!(reject_code(good), None, "{good}");
    }
}

#[test]
fn parts_of_a_message_are_shared_not_copied() {
    let body =
        bytes(r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"arguments":{"a":1}}}"#);
    let Ok(Message::Request(request)) = parse(&body) else {
        panic!("a request")
    };
    let arguments = request.params.arguments().unwrap();
    let shared = request.params.share(arguments);
    assert_eq!(&*shared, br#"{"a":1}"#);
    let start = body.as_ptr() as usize;
    assert!((start..start + body.len()).contains(&(shared.as_ptr() as usize)));
}

#[test]
fn a_response_gives_its_result_or_its_error() {
    let body = bytes(r#"{"jsonrpc":"2.0","id":"a","result":{"x":1}}"#);
    let Ok(Message::Response(response)) = parse(&body) else {
        panic!("a response")
    };
    assert_eq!(response.outcome, Ok(r#"{"x":1}"#));
    assert_eq!(response.id, Some(RequestId::text("a")));
    let body = bytes(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#);
    let Ok(Message::Response(response)) = parse(&body) else {
        panic!("a response")
    };
    assert_eq!(
        (response.id, response.outcome),
        (None, Err(r#"{"code":1}"#))
    );
    assert_eq!(
        reject_code(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#),
        Some(code::INVALID_REQUEST)
    );
}

#[test]
fn metadata_is_read_with_the_message() {
    let body = bytes(
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":"t","traceparent":"00-x","tracestate":7,"io.modelcontextprotocol/logLevel":"alert"}}}"#,
    );
    let Ok(Message::Request(request)) = parse(&body) else {
        panic!("a request")
    };
    let meta = request.params.meta();
    assert!(meta.wants_notifications() && !meta.is_modern());
    assert_eq!(meta.progress, Some(RequestId::text("t")));
    assert_eq!(meta.log_level, Some(crate::LogLevel::Alert));
    let trace = meta.trace.as_deref().unwrap();
    assert_eq!(trace.traceparent.as_deref(), Some("00-x"));
    assert_eq!(trace.tracestate, None, "a malformed hint is left out");
}
