//! Arguments that modern HTTP repeats in headers: properties annotated with `x-mcp-header`.

use std::collections::HashSet;

use ramen_mcp::headers::encode;
use ramen_mcp::model::Json;
use serde_json::{Map, Value};

const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "Mcp-Param-";
/// Integers beyond it are not the same number to every peer.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Whether the annotations of a schema can be followed. A tool whose cannot must not be offered over HTTP.
pub(crate) fn check(schema: &Json) -> Result<(), String> {
    let Ok(schema) = schema.to::<Value>() else {
        return Err("its inputSchema cannot be read".to_owned());
    };
    let mut names = HashSet::new();
    walk(&schema, true, false, &mut names)
}

/// Looks at a schema. `plain`: it is reached through `properties` alone; `property`: it is one.
fn walk(
    schema: &Value,
    plain: bool,
    property: bool,
    names: &mut HashSet<String>,
) -> Result<(), String> {
    match schema {
        Value::Array(items) => {
            for item in items {
                walk(item, false, false, names)?;
            }
        }
        Value::Object(members) => {
            if let Some(annotation) = members.get(ANNOTATION) {
                let name = annotated(annotation, members, plain && property)?;
                if !names.insert(name.to_ascii_lowercase()) {
                    return Err(format!("two of its properties have the header {name:?}"));
                }
            }
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        for property in properties.values() {
                            walk(property, plain, true, names)?;
                        }
                    }
                    // Not schemas, but values that may look like one.
                    ("const" | "enum" | "default" | "examples" | ANNOTATION, _) => {}
                    // Names of properties here, too, but no longer a plain path.
                    ("patternProperties" | "$defs" | "definitions", Value::Object(schemas)) => {
                        for schema in schemas.values() {
                            walk(schema, false, false, names)?;
                        }
                    }
                    (_, value) => walk(value, false, false, names)?,
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn annotated<'v>(
    annotation: &'v Value,
    schema: &Map<String, Value>,
    reachable: bool,
) -> Result<&'v str, String> {
    let name = annotation
        .as_str()
        .filter(|name| http::HeaderName::from_bytes(name.as_bytes()).is_ok())
        .ok_or_else(|| format!("{annotation} is no name of a header"))?;
    let kind = schema.get("type").and_then(Value::as_str);
    if !matches!(kind, Some("string" | "integer" | "boolean")) {
        return Err(format!(
            "the header {name:?} is on something that is no string, integer or boolean"
        ));
    }
    if !reachable {
        return Err(format!(
            "the header {name:?} is on something that is no plain property"
        ));
    }
    Ok(name)
}

/// The headers of one call. What is absent or null has none.
pub(crate) fn headers(schema: &Json, arguments: &Json) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if let (Ok(schema), Ok(arguments)) = (schema.to::<Value>(), arguments.to::<Value>()) {
        collect(&schema, &arguments, &mut out);
    }
    out
}

fn collect(schema: &Value, arguments: &Value, out: &mut Vec<(String, String)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        let Some(value) = arguments.get(key) else {
            continue;
        };
        if let Some(name) = property.get(ANNOTATION).and_then(Value::as_str)
            && let Some(text) = text(value)
        {
            out.push((format!("{PREFIX}{name}"), encode(&text).into_owned()));
        }
        collect(property, value, out);
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => match number.as_f64() {
            // `5.0` is an integer to JSON Schema; its header is `5`.
            Some(float) if float.fract() == 0.0 && float.abs() <= MAX_SAFE => {
                Some(format!("{float:.0}"))
            }
            _ => Some(number.to_string()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(value: &Value) -> Json {
        Json::from(value)
    }

    #[test]
    fn annotations_that_cannot_be_followed_are_refused() {
        let string = |name: Value| json!({"type": "string", ANNOTATION: name});
        for (good, value) in [
            (true, json!({"properties": {"a": string(json!("Region"))}})),
            (
                true,
                json!({"properties": {"o": {"type": "object", "properties": {"a": string(json!("X"))}}}}),
            ),
            (
                true,
                json!({"properties": {"x-mcp-header": {"type": "string"}}}),
            ),
            (
                true,
                json!({"properties": {"a": {"default": {ANNOTATION: 1}}}}),
            ),
            (false, json!({"properties": {"a": string(json!(""))}})),
            (false, json!({"properties": {"a": string(json!("a b"))}})),
            (false, json!({"properties": {"a": string(json!(1))}})),
            (
                false,
                json!({"properties": {"a": string(json!("X")), "b": string(json!("x"))}}),
            ),
            (
                false,
                json!({"properties": {"a": {"type": "number", ANNOTATION: "X"}}}),
            ),
            (false, json!({"properties": {"a": {ANNOTATION: "X"}}})),
            (
                false,
                json!({"properties": {"a": {"type": "array", "items": string(json!("X"))}}}),
            ),
            (
                false,
                json!({"allOf": [{"properties": {"a": string(json!("X"))}}]}),
            ),
            (false, json!({"$defs": {"a": string(json!("X"))}})),
            (false, json!({"type": "string", ANNOTATION: "X"})),
        ] {
            assert_eq!(check(&schema(&value)).is_ok(), good, "{value}");
        }
    }

    #[test]
    fn annotated_arguments_become_headers_and_absent_ones_none() {
        let schema = schema(&json!({"properties": {
            "a": {"type": "string", ANNOTATION: "Region"},
            "b": {"type": "integer", ANNOTATION: "Count"},
            "c": {"type": "boolean", ANNOTATION: "Flag"},
            "d": {"type": "string", ANNOTATION: "Gone"},
            "e": {"type": "string", ANNOTATION: "Null"},
            "o": {"type": "object", "properties": {"x": {"type": "string", ANNOTATION: "Deep"}}},
        }}));
        let arguments =
            Json::parse(r#"{"a":"köln","b":5.0,"c":false,"e":null,"o":{"x":" y"},"other":1}"#)
                .unwrap();
        let expected = [
            ("Mcp-Param-Region", "=?base64?a8O2bG4=?="),
            ("Mcp-Param-Count", "5"),
            ("Mcp-Param-Flag", "false"),
            ("Mcp-Param-Deep", "=?base64?IHk=?="),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers(&schema, &arguments), expected);
    }
}
