//! `tools/call`.

use std::sync::atomic::Ordering;

use ramen_gateway::operations::{Context, OpError, invoke};
use serde_json::{Value, json};

use crate::support::{Bench, KEY, Script, answering, post};
use ramen_redact::KeyDigest;

#[tokio::test]
async fn a_call_runs_admit_before_invoke() {
    let bench = Bench::plain();
    let rule = Some((
        "bookmarks.create".into(),
        0,
        OpError::Forbidden("no".into()),
    ));
    *bench.script.not_admitted.lock().unwrap() = rule;
    assert_eq!(
        bench.call("bookmarks_create").await.refusal()["code"],
        "forbidden"
    );
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_invoke_that_skips_the_check_is_still_checked() {
    let bench = Bench::rechecking();
    let rule = Some((
        "bookmarks.create".into(),
        0,
        OpError::Forbidden("no".into()),
    ));
    *bench.script.not_authorized.lock().unwrap() = rule;
    assert_eq!(
        bench.call("bookmarks_create").await.refusal()["code"],
        "forbidden"
    );
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_agent_without_a_session_is_refused_where_one_is_needed_and_with_one_is_not() {
    let bench = Bench::rechecking_with(|descriptors| descriptors[0].flags.agent_session = true);
    assert_eq!(
        bench.call("bookmarks_create").await.refusal()["code"],
        "forbidden"
    );
    let body =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bookmarks_create"}}"#;
    let mut request = post(body);
    request
        .headers_mut()
        .insert("ramen-agent-session", "s-1".parse().unwrap());
    assert_eq!(bench.send(request).await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn a_refusal_is_a_tool_error_holding_the_apis_error_envelope() {
    for (error, code) in [
        (OpError::Forbidden("why".into()), "forbidden"),
        (OpError::NotFound("why".into()), "not_found"),
        (OpError::Invalid("why".into()), "invalid"),
        (OpError::Conflict("why".into()), "conflict"),
        (OpError::Unavailable("why".into()), "unavailable"),
    ] {
        let bench = Bench::with(Script::default(), |_, descriptors| {
            *descriptors = vec![answering("a", move |_| Err(error.clone()))];
        });
        let got = bench.call("a").await;
        assert_eq!(got.refusal(), json!({"code": code, "message": "why"}));
        assert_eq!(got.json()["result"].get("structuredContent"), None);
    }
}

#[tokio::test]
async fn a_panic_in_a_call_is_an_internal_tool_error_with_a_ref() {
    let bench = Bench::with(Script::default(), |_, descriptors| {
        let at_once = answering("a", |_| unreachable!("the secret of a test"));
        let mut later = answering("b", |_| Ok(json!({})));
        later.invoke = Some(invoke(|_: Context, _: Value| async {
            tokio::task::yield_now().await;
            unreachable!("the secret of a test")
        }));
        descriptors.extend([at_once, later]);
    });
    for tool in ["a", "b"] {
        let refusal = bench.call(tool).await.refusal();
        assert_eq!(refusal["code"], "internal");
        assert_eq!(refusal["ref"].as_str().unwrap().len(), 16);
        assert!(!refusal.to_string().contains("secret"));
    }
    assert_eq!(
        bench.call("bookmarks_create").await.json()["result"]["isError"],
        false,
        "others go on"
    );
}

#[tokio::test]
async fn a_panic_of_admit_check_or_guard_is_one_too_and_fails_a_list_in_the_same_way() {
    for who in ["admit", "authorize", "guard"] {
        let bench = Bench::rechecking();
        *bench.script.panics.lock().unwrap() = Some(who);
        let refusal = bench.call("bookmarks_create").await.refusal();
        assert_eq!(refusal["code"], "internal", "{who}");
        assert_eq!(refusal["ref"].as_str().unwrap().len(), 16);
        let list = bench.rpc("tools/list", json!({})).await.json();
        assert_eq!(list["error"]["code"], -32603, "{who}");
        assert_eq!(list["error"]["data"]["ref"].as_str().unwrap().len(), 16);
        assert!(!format!("{refusal}{list}").contains("secret"));
    }
}

#[tokio::test]
async fn a_result_that_is_no_object_null_included_is_internal_when_result_is_an_object_schema() {
    for result in [json!(null), json!([]), json!("text"), json!(1), json!(true)] {
        let value = result.clone();
        let bench = Bench::with(Script::default(), |_, descriptors| {
            *descriptors = vec![answering("a", move |_| Ok(value.clone()))];
        });
        let refusal = bench.call("a").await.refusal();
        assert_eq!(refusal["code"], "internal", "{result}");
        assert!(refusal["ref"].is_string());
    }
}

#[tokio::test]
async fn an_operation_without_a_result_answers_null() {
    let nothing = |value: Value| {
        let mut descriptor = answering("a", move |_| Ok(value.clone()));
        descriptor.result = json!({"type": "null"});
        Bench::with(Script::default(), |_, descriptors| {
            *descriptors = vec![descriptor];
        })
    };
    let body = nothing(json!(null)).call("a").await.json();
    assert_eq!(body["result"]["isError"], false);
    assert_eq!(body["result"].get("structuredContent"), None);
    assert_eq!(
        nothing(json!({})).call("a").await.refusal()["code"],
        "internal"
    );
}

#[tokio::test]
async fn a_result_goes_out_twice_as_structured_content_and_as_text() {
    let bench = Bench::plain();
    let body = bench
        .rpc(
            "tools/call",
            json!({"name": "bookmarks_create", "arguments": {"n": 3}}),
        )
        .await
        .json();
    let result = &body["result"];
    assert_eq!(
        result["structuredContent"],
        json!({"done": true, "got": {"n": 3}})
    );
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"]);
}

#[tokio::test]
async fn a_result_of_the_largest_size_goes_out_however_much_escaping_makes_of_it() {
    let bench = Bench::with(Script::default(), |config, descriptors| {
        config.max_result = 10_000;
        *descriptors = vec![answering("a", |_| {
            Ok(json!({ "text": "\"".repeat(4_900) }))
        })];
    });
    assert_eq!(bench.call("a").await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn ctx_builds_the_context_and_mcp_sets_actor_and_authorize_on_a_copy_of_it() {
    let bench = Bench::with(Script::default(), |_, descriptors| {
        descriptors[0].invoke = Some(invoke(|context: Context, _| async move {
            let actor = context.actor.ok_or(OpError::Internal("no actor".into()))?;
            Ok(json!({
                "actor": &*actor.id,
                "authorize": context.authorize.is_some(),
                "peer": context.peer.to_string(),
                "session": context.agent_session,
            }))
        }));
    });
    let body =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bookmarks_create"}}"#;
    let mut request = post(body);
    request
        .headers_mut()
        .insert("ramen-agent-session", "s-1".parse().unwrap());
    let body = bench.send(request).await.json();
    let actor = format!("key:{}", KeyDigest::of(KEY).fingerprint());
    let wanted = json!({"actor": actor, "authorize": true, "peer": "127.0.0.1", "session": "s-1"});
    assert_eq!(body["result"]["structuredContent"], wanted);
}

#[tokio::test]
async fn arguments_that_do_not_fit_never_reach_the_operation() {
    let bench = Bench::plain();
    for arguments in [json!({"n": "3"}), json!({"m": 1}), json!({"n": 1.5})] {
        let body = bench
            .rpc(
                "tools/call",
                json!({"name": "bookmarks_create", "arguments": arguments}),
            )
            .await
            .json();
        assert_eq!(body["error"]["code"], -32602, "{body}");
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bookmarks_create","arguments":{"n":1,"n":2}}}"#;
    assert_eq!(
        bench.send(post(twice)).await.json()["error"]["code"],
        -32602
    );
    assert_eq!(bench.script.ran.load(Ordering::SeqCst), 0);
}
