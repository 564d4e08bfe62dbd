//! "New and Config", and what `New` refuses.

use std::sync::Arc;

use ramen_gateway::operations::{
    Access, ConfigError, DEFAULT_MAX_RESULT, DefaultPolicy, Descriptor, Flags, GateError, new,
    tool_name,
};
use serde_json::json;

use crate::support::{Bench, Script, Shared, answering, config, operation};

fn script() -> Arc<Script> {
    Arc::default()
}

/// What a configuration is refused for when this is changed about a good one.
fn refused(
    change: impl FnOnce(&mut ramen_gateway::operations::Config, &Arc<Script>),
) -> ConfigError {
    let script = script();
    let mut config = config(&script);
    change(&mut config, &script);
    new(config, vec![operation(&script, "bookmarks.create")]).unwrap_err()
}

/// What a descriptor is refused for when this is changed about a good one.
fn refused_descriptor(change: impl FnOnce(&mut Descriptor)) -> ConfigError {
    let script = script();
    let mut descriptor = operation(&script, "bookmarks.create");
    change(&mut descriptor);
    new(config(&script), vec![descriptor]).unwrap_err()
}

const ID: &str = "bookmarks.create";

#[tokio::test]
async fn new_builds_the_endpoint_with_one_tool_per_descriptor() {
    assert_eq!(
        Bench::plain().names().await,
        ["bookmarks_create", "bookmarks_delete"]
    );
}

#[test]
fn new_returns_an_error_when_ctx_is_nil() {
    assert_eq!(
        refused(|config, _| config.context = None),
        ConfigError::NoContext
    );
}

#[test]
fn new_returns_an_error_when_authorize_is_nil() {
    assert_eq!(
        refused(|config, _| config.authorize = None),
        ConfigError::NoAuthorize
    );
}

#[tokio::test]
async fn authorize_is_required_and_the_default_policy_keeps_the_default() {
    let bench = Bench::with(Script::default(), |config, _| {
        config.authorize = Some(Arc::new(DefaultPolicy));
    });
    assert_eq!(
        bench.call("bookmarks_create").await.json()["result"]["structuredContent"]["done"],
        true
    );
}

#[test]
fn new_returns_an_error_when_gate_validate_fails() {
    assert_eq!(
        refused(|config, _| config.gate.verify = None),
        ConfigError::Gate(GateError::NoVerify)
    );
    assert_eq!(
        refused(|config, _| config.gate.admit = None),
        ConfigError::Gate(GateError::NoAdmit)
    );
    assert_eq!(
        refused(|config, _| config.gate.max_response = 0),
        ConfigError::Gate(GateError::NoResponse)
    );
}

#[test]
fn new_returns_an_error_when_guard_is_set_and_verify_is_no_rechecker() {
    let error = refused(|config, script| config.guard = Some(Arc::new(Shared(Arc::clone(script)))));
    assert_eq!(error, ConfigError::GuardWithoutRechecker);
}

#[test]
fn new_returns_an_error_when_guarded_is_set_and_there_is_no_guard() {
    assert_eq!(
        refused(|config, _| config.guarded = true),
        ConfigError::GuardedWithoutGuard
    );
}

#[test]
fn new_returns_an_error_when_guarded_is_set_and_there_is_no_rechecker() {
    let error = refused(|config, script| {
        config.guarded = true;
        config.guard = Some(Arc::new(Shared(Arc::clone(script))));
    });
    assert_eq!(error, ConfigError::GuardedWithoutRechecker);
}

#[test]
fn new_returns_an_error_when_a_descriptor_has_an_empty_id() {
    assert_eq!(
        refused_descriptor(|one| one.id = String::new()),
        ConfigError::EmptyId(0)
    );
}

#[test]
fn new_returns_an_error_when_a_descriptor_has_an_invalid_access() {
    for access in ["", "bookmarks", "Bookmarks:Write"] {
        let error = refused_descriptor(|one| one.access = Access::new(access));
        assert_eq!(error, ConfigError::BadAccess(ID.into()), "{access}");
    }
}

#[test]
fn new_returns_an_error_when_an_input_is_no_object_schema() {
    for input in [
        json!(null),
        json!({}),
        json!(true),
        json!({"type": "string"}),
        json!({"type": ["object", "null"]}),
    ] {
        let error = refused_descriptor(|one| one.input = input.clone());
        assert_eq!(error, ConfigError::BadInput(ID.into()), "{input}");
    }
}

#[test]
fn new_returns_an_error_when_a_result_is_neither_an_object_schema_nor_exactly_type_null() {
    for result in [
        json!(null),
        json!({}),
        json!({"type": "array"}),
        json!({"type": "null", "title": "nothing"}),
        json!({"type": ["null"]}),
    ] {
        let error = refused_descriptor(|one| one.result = result.clone());
        assert_eq!(error, ConfigError::BadResult(ID.into()), "{result}");
    }
    let script = script();
    let nothing = Descriptor {
        result: json!({"type": "null"}),
        ..operation(&script, ID)
    };
    assert!(new(config(&script), vec![nothing]).is_ok());
}

#[test]
fn new_returns_an_error_when_a_descriptor_has_a_nil_invoke() {
    assert_eq!(
        refused_descriptor(|one| one.invoke = None),
        ConfigError::NoInvoke(ID.into())
    );
}

#[test]
fn new_returns_an_error_when_a_descriptor_fails_check_flags() {
    let flags = Flags {
        read_only: true,
        destructive: true,
        ..Flags::default()
    };
    let error = refused_descriptor(|one| one.flags = flags);
    assert!(matches!(error, ConfigError::BadFlags(id, _) if id == ID));
}

#[test]
fn new_returns_an_error_when_a_tool_name_does_not_match() {
    let long = format!("a{}", "b".repeat(64));
    for id in [
        "Bookmarks.create",
        "1bookmarks",
        "_a",
        "book-marks",
        "lesezeichen.größe",
        "a b",
        &long,
    ] {
        let error = refused_descriptor(|one| one.id = id.into());
        assert_eq!(
            error,
            ConfigError::BadToolName(id.into(), id.replace('.', "_")),
            "{id}"
        );
    }
    let script = script();
    let longest = format!("a{}", "b".repeat(63));
    assert!(new(config(&script), vec![operation(&script, &longest)]).is_ok());
}

#[test]
fn new_returns_an_error_when_two_descriptors_have_the_same_tool_name() {
    let script = script();
    let two = vec![operation(&script, "a.b"), operation(&script, "a_b")];
    let error = new(config(&script), two).unwrap_err();
    assert_eq!(
        error,
        ConfigError::SameToolName("a.b".into(), "a_b".into(), "a_b".into())
    );
}

#[test]
fn new_returns_an_error_when_the_sdk_refuses_a_tool() {
    let broken =
        json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": "one"}}});
    let error = refused_descriptor(|one| one.input = broken.clone());
    assert!(
        matches!(&error, ConfigError::Tool(id, _) if id == ID),
        "{error}"
    );
    let error = refused_descriptor(|one| one.result = broken);
    assert!(
        matches!(&error, ConfigError::Tool(id, _) if id == ID),
        "{error}"
    );
}

#[tokio::test]
async fn name_and_version_are_the_servers_in_the_handshake() {
    let got = Bench::plain()
        .rpc("initialize", json!({"protocolVersion": "2025-11-25"}))
        .await;
    let info = &got.json()["result"]["serverInfo"];
    assert_eq!(
        (info["name"].as_str(), info["version"].as_str()),
        (Some("a platform"), Some("1.2.3"))
    );
}

#[tokio::test]
async fn instructions_follow_the_frameworks_own() {
    let got = Bench::plain()
        .rpc("initialize", json!({"protocolVersion": "2025-11-25"}))
        .await;
    let instructions = got.json()["result"]["instructions"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        instructions.starts_with("These tools are the operations"),
        "{instructions}"
    );
    assert!(instructions.ends_with("\n\nBe kind."), "{instructions}");
}

#[tokio::test]
async fn max_result_caps_one_tool_result_in_bytes() {
    let room = r#"{"text":""}"#.len();
    for (size, fits) in [(100 - room, true), (101 - room, false)] {
        let bench = Bench::with(Script::default(), |config, descriptors| {
            config.max_result = 100;
            *descriptors = vec![answering("a", move |_| {
                Ok(json!({ "text": "x".repeat(size) }))
            })];
        });
        let got = bench.call("a").await;
        if fits {
            assert_eq!(got.json()["result"]["isError"], false);
        } else {
            assert_eq!(got.refusal()["code"], "result_too_large");
        }
    }
}

#[tokio::test]
async fn a_max_result_of_zero_means_2_mib() {
    assert_eq!(DEFAULT_MAX_RESULT, 2 * 1024 * 1024);
    let room = r#"{"text":""}"#.len();
    for (size, fits) in [
        (DEFAULT_MAX_RESULT - room, true),
        (DEFAULT_MAX_RESULT - room + 1, false),
    ] {
        let bench = Bench::with(Script::default(), |_, descriptors| {
            *descriptors = vec![answering("a", move |_| {
                Ok(json!({ "text": "x".repeat(size) }))
            })];
        });
        assert_eq!(
            bench.call("a").await.json()["result"]["isError"],
            !fits,
            "{size}"
        );
    }
}

#[test]
fn new_raises_max_response_when_it_is_lower_to_three_times_max_result_plus_64_kib() {
    let response = |max_response, max_result| {
        let script = script();
        let mut config = config(&script);
        config.gate.max_response = max_response;
        config.max_result = max_result;
        new(config, Vec::new()).unwrap().max_response()
    };
    assert_eq!(response(1, 1000), 3 * 1000 + 64 * 1024);
    assert_eq!(response(1, 0), 3 * 2 * 1024 * 1024 + 64 * 1024);
    assert_eq!(response(10_000_000, 1000), 10_000_000);
}

#[test]
fn the_tool_of_bookmarks_create_is_bookmarks_create_with_an_underscore() {
    assert_eq!(tool_name("bookmarks.create"), "bookmarks_create");
    assert_eq!(tool_name("a.b.c"), "a_b_c");
    assert_eq!(tool_name("plain"), "plain");
}
