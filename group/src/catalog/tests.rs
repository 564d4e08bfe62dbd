use std::path::Path;

use ramen_mcp::Catalog as _;
use serde_json::{Value, json};

use super::*;

fn catalog() -> GroupCatalog {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/good_group");
    GroupCatalog::new(crate::scan(&dir), Implementation::default())
}

#[test]
fn lists_hold_what_the_descriptors_say() {
    let catalog = catalog();
    let tools: Value = serde_json::to_value(catalog.tools()).unwrap();
    assert_eq!(tools[0]["name"], "calculator");
    assert_eq!(tools[0]["outputSchema"], json!({"type": "number"}));
    assert_eq!(tools[1]["title"], "Every field");
    assert_eq!(
        tools[1]["annotations"],
        json!({"readOnlyHint": true, "openWorldHint": false})
    );
    assert_eq!(tools[1]["icons"][0]["theme"], "dark");
    assert_eq!(
        tools[1]["inputSchema"]["properties"]["region"]["x-mcp-header"],
        "Region"
    );
    for (at, tool) in catalog.tools().iter().enumerate() {
        assert_eq!(catalog.tool_at(at).unwrap().name, *tool.name);
    }
    let resources: Value = serde_json::to_value(catalog.resources()).unwrap();
    assert_eq!(resources[0]["uri"], "demo://a/../readme", "uri03");
    assert_eq!(
        resources[0]["mimeType"], "text/markdown; charset=utf-8",
        "uri01"
    );
    let prompts = serde_json::to_string(catalog.prompts()).unwrap();
    assert!(
        prompts.contains(r#""_meta":{"settings":{"temperature":0.20,"seed":9007199254740993}}"#)
    );
    let prompts: Value = serde_json::from_str(&prompts).unwrap();
    assert_eq!(
        prompts[0]["arguments"],
        json!([
            {"name": "request", "description": "the task", "required": true},
            {"name": "style", "required": false}
        ])
    );
}

#[test]
fn arguments_and_results_are_judged_by_index() {
    let catalog = catalog();
    let good = r#"{"var1":1,"var2":2,"func":"add"}"#;
    assert_eq!(catalog.check_arguments(0, good).unwrap(), None);
    let fault = catalog
        .check_arguments(0, r#"{"var1":"1","func":"add"}"#)
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "argument `var1` must be a number; argument `var2` is missing"
    );
    let filled = catalog
        .check_arguments(1, r#"{"query":"x"}"#)
        .unwrap()
        .unwrap();
    let filled: Value = serde_json::from_slice(&filled).unwrap();
    assert_eq!(filled["window"], json!({"from": 0}));
    assert!(catalog.check_arguments(9, good).is_err());
    assert_eq!(catalog.check_output(0, "3.5"), Ok(()));
    assert_eq!(
        catalog.check_output(0, "\"3\""),
        Err("must be a number".to_owned())
    );
    assert_eq!(
        catalog.check_output(1, r#"{"hits":[{"name":"a"}]}"#),
        Ok(())
    );
    assert_eq!(
        catalog.check_output(1, r#"{"hits":[{}]}"#),
        Err("`hits[0].name` is missing".to_owned())
    );
}

#[test]
fn resources_are_found_by_exactly_their_uri() {
    let catalog = catalog();
    let target = catalog.resolve_resource("demo://a/../readme").unwrap();
    assert_eq!(
        target.mime_type.as_deref(),
        Some("text/markdown; charset=utf-8")
    );
    for other in [
        "demo://readme",
        "demo://a/%2e%2e/readme",
        "DEMO://a/../readme",
        "",
    ] {
        assert!(catalog.resolve_resource(other).is_none(), "uri04: {other}");
    }
}

#[test]
fn prompts_render_and_offer_their_choices() {
    let catalog = catalog();
    let pairs = [("request".to_owned(), "2+2".to_owned())];
    let text = catalog.render_prompt(0, &pairs).unwrap();
    assert_eq!(text.messages.len(), 1);
    assert_eq!(
        catalog.choices(Reference::Prompt(0), "style"),
        ["short", "long"]
    );
    assert!(catalog.choices(Reference::Prompt(0), "request").is_empty());
    let wrong = [pairs[0].clone(), ("style".to_owned(), "loud".to_owned())];
    let fault = catalog.render_prompt(0, &wrong).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "argument `style` must be one of: short, long"
    );
}
