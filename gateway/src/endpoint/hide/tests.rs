use std::sync::Arc;

use ramen_group::AccessRules;
use ramen_group::access::RuleText;
use serde_json::{Value, json};

use super::*;

fn allowed() -> Allowed {
    let rule = RuleText {
        keys: vec!["k".into()],
        tools: vec!["add".into(), "long*".into()],
        resources: vec!["demo://a".into()],
        ..RuleText::default()
    };
    let rules = Arc::new(AccessRules::new(vec![rule]).unwrap());
    rules.of_key(Some("k")).unwrap()
}

fn id() -> RequestId {
    RequestId::from_token(Bytes::from_static(b"7")).unwrap()
}

#[test]
fn pages_become_one_list_that_names_nothing_else() {
    let mut list = Shortened::new(List::of("tools/list").unwrap());
    let page = |names: &[&str], cursor: Option<&str>| {
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let mut result = json!({"tools": tools, "ttlMs": 5000, "_meta": {"n": 3.0}});
        if let Some(cursor) = cursor {
            result["nextCursor"] = cursor.into();
        }
        json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string()
    };
    let next = list.take(page(&["add", "hidden"], Some("c")).as_bytes(), &allowed());
    assert_eq!(next, Some(Next::Page("\"c\"".to_owned())));
    let next = list.take(page(&["long1", "other"], None).as_bytes(), &allowed());
    assert_eq!(next, Some(Next::Nothing));
    let all: Value = serde_json::from_slice(&list.finish(&id()).unwrap()).unwrap();
    assert_eq!(
        all,
        json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": [{"name": "add"}, {"name": "long1"}], "ttlMs": 5000, "_meta": {"n": 3.0}}})
    );
}

#[test]
fn resources_are_judged_by_their_uri_and_templates_by_their_text() {
    for (method, reply, kept) in [
        (
            "resources/list",
            json!({"resources": [{"name": "x", "uri": "demo://a"}, {"name": "demo://a", "uri": "demo://b"}]}),
            json!({"resources": [{"name": "x", "uri": "demo://a"}]}),
        ),
        (
            "resources/templates/list",
            json!({"resourceTemplates": [{"name": "x", "uriTemplate": "demo://{a}"}]}),
            json!({"resourceTemplates": []}),
        ),
        (
            "prompts/list",
            json!({"prompts": [{"name": "add"}]}),
            json!({"prompts": []}),
        ),
    ] {
        let mut list = Shortened::new(List::of(method).unwrap());
        let page = json!({"jsonrpc": "2.0", "id": 1, "result": reply}).to_string();
        list.take(page.as_bytes(), &allowed()).unwrap();
        let all: Value = serde_json::from_slice(&list.finish(&id()).unwrap()).unwrap();
        assert_eq!(all["result"], kept, "{method}");
    }
}

#[test]
fn a_list_that_cannot_be_read_gives_nothing_out() {
    for page in [
        "",
        "[]",
        r#"{"result":{"tools":[1]}}"#,
        r#"{"result":{"tools":[{}]}}"#,
    ] {
        let mut list = Shortened::new(List::of("tools/list").unwrap());
        assert_eq!(list.take(page.as_bytes(), &allowed()), None, "{page}");
    }
}

#[test]
fn a_name_is_found_and_replaced_where_it_stands() {
    for (method, params, target_of, nobody) in [
        (
            "tools/call",
            r#"{"arguments":{"name":"x"},"name":"a\u0062c"}"#,
            Target::Tool("abc".into()),
            r#"{"arguments":{"name":"x"},"name":"-"}"#,
        ),
        (
            "resources/read",
            r#"{"uri":"demo://x"}"#,
            Target::Resource("demo://x".into()),
            r#"{"uri":"-"}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}"#,
            Target::Prompt("p".into()),
            r#"{"ref":{"type":"ref/prompt","name":"-"},"argument":{"name":"a","value":"b"}}"#,
        ),
    ] {
        let text = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
        };
        let body = Bytes::from(text(params));
        let Ok(Message::Request(request)) = envelope::parse(&body) else {
            panic!("{params}")
        };
        let (found, token) = target(&request).unwrap();
        assert_eq!(found, target_of);
        assert_eq!(for_nobody(&body, token), text(nobody));
    }
}

#[test]
fn an_error_about_nobody_is_about_the_name_that_was_asked_for_and_others_stay() {
    for (target, era, hidden, wanted) in [
        (
            Target::Tool("abc".into()),
            Era::Modern,
            McpError::unknown_tool(NOBODY, Era::Modern),
            McpError::unknown_tool("abc", Era::Modern),
        ),
        (
            Target::Resource("demo://x".into()),
            Era::Modern,
            McpError::unknown_resource(NOBODY, Era::Modern),
            McpError::unknown_resource("demo://x", Era::Modern),
        ),
        (
            Target::Prompt("p".into()),
            Era::Modern,
            McpError::unknown_prompt(NOBODY),
            McpError::unknown_prompt("p"),
        ),
        (
            Target::Prompt("p".into()),
            Era::Modern,
            McpError::invalid_params("`argument.name` is missing"),
            McpError::invalid_params("`argument.name` is missing"),
        ),
    ] {
        let answer = put_back(&target, era, &id(), hidden.body(&id()));
        assert_eq!(answer, wanted.body(&id()), "{target:?}");
    }
}

#[test]
fn a_page_is_asked_for_with_everything_that_the_first_was() {
    let body = Bytes::from_static(
        br#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":{"x":1},"cursor":"old"}}"#,
    );
    let Ok(Message::Request(request)) = envelope::parse(&body) else {
        panic!()
    };
    let next: Value = serde_json::from_slice(&at_cursor(&request, "\"new\"").unwrap()).unwrap();
    assert_eq!(
        next,
        json!({"jsonrpc": "2.0", "id": "a", "method": "tools/list", "params": {"_meta": {"x": 1}, "cursor": "new"}})
    );
}
