//! The JSON API described: `OpenAPI` 3.1, made of the same descriptors that are served.

use std::sync::Arc;

use ramen_mcp::model::Implementation;
use serde_json::{Map, Value, json};

use super::config::Served;

/// The description of these operations.
pub(super) fn document(info: &Implementation, served: &[Arc<Served>]) -> Value {
    let paths: Map<String, Value> = served
        .iter()
        .map(|served| (path_of(&served.descriptor.id), path(served)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": info.name, "version": info.version },
        "paths": paths,
        "security": [{ "key": [] }],
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The key of an operator, or a token of an issuer that the gateway trusts.",
                },
            },
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": {
                            "type": "object",
                            "properties": {
                                "code": { "type": "string" },
                                "message": { "type": "string" },
                                "ref": { "type": "string" },
                            },
                            "required": ["code", "message"],
                        },
                    },
                    "required": ["error"],
                },
            },
            "responses": {
                "Error": {
                    "description": "A refusal or a failure.",
                    "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
                },
            },
        },
    })
}

/// Where an operation is.
pub(super) fn path_of(id: &str) -> String {
    format!("/api/v1/{}", id.replace('.', "/"))
}

fn path(served: &Served) -> Value {
    let descriptor = &served.descriptor;
    let done = if served.result.is_some() {
        let schema = &descriptor.result;
        json!({ "200": { "description": "Done.", "content": { "application/json": { "schema": schema } } } })
    } else {
        json!({ "204": { "description": "Done." } })
    };
    let mut responses = done;
    responses["default"] = json!({ "$ref": "#/components/responses/Error" });
    let mut post = json!({
        "operationId": descriptor.id,
        "summary": descriptor.summary,
        "x-access": descriptor.access.as_str(),
        "requestBody": {
            "content": { "application/json": { "schema": descriptor.input } },
        },
        "responses": responses,
    });
    let mut path = Map::new();
    if descriptor.flags.read_only {
        let mut get = post.clone();
        if let Some(get) = get.as_object_mut() {
            get.remove("requestBody");
            get.insert("parameters".to_owned(), parameters(&descriptor.input));
        }
        path.insert("get".to_owned(), get);
        post["operationId"] = format!("{}.post", descriptor.id).into();
    }
    path.insert("post".to_owned(), post);
    Value::Object(path)
}

fn parameters(input: &Value) -> Value {
    let required = |name: &str| {
        let names = input["required"].as_array();
        names.is_some_and(|names| names.iter().any(|known| known == name))
    };
    let properties = input["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, schema)| json!({ "name": name, "in": "query", "required": required(name), "schema": schema }))
        .collect()
}
