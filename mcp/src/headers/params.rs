//! `Mcp-Param-<X>`: copies of arguments whose schema says `"x-mcp-header": "<X>"`.

use serde_json::Value;

use super::decode;
use crate::error::McpError;

/// Beyond it an integer has no copy that every peer reads alike.
const MAX_SAFE: i64 = crate::id::MAX_SAFE_INTEGER;

/// An argument that has a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The header without its prefix, in lower case.
    pub header: String,
    /// Where the argument is: names of properties, outermost first.
    pub path: Vec<String>,
}

/// The `Mcp-Param-*` headers of a request: names without the prefix, in lower case, and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamCopies(pub Vec<(String, String)>);

/// The arguments of a tool that have copies, by its input schema: those reached through `properties`
/// alone.
pub fn param_headers(schema: &str) -> Vec<ParamHeader> {
    // Most schemas have none, and none of their text.
    if !schema.contains("x-mcp-header") {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Ok(schema) = serde_json::from_str::<Value>(schema) {
        walk(&schema, &mut Vec::new(), &mut found);
    }
    found
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) {
    if let Some(header) = schema["x-mcp-header"].as_str() {
        found.push(ParamHeader {
            header: header.to_ascii_lowercase(),
            path: path.clone(),
        });
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        walk(property, path, found);
        path.pop();
    }
}

impl ParamCopies {
    /// Holds the copies against the arguments, the text of a JSON object. Copies of anything else are
    /// left alone: proxies may add what they like.
    pub fn check(&self, expected: &[ParamHeader], arguments: &str) -> Result<(), McpError> {
        if expected.is_empty() {
            return Ok(());
        }
        let Ok(arguments) = serde_json::from_str::<Value>(arguments) else {
            // What reads the arguments says it better.
            return Ok(());
        };
        for param in expected {
            let argument = param
                .path
                .iter()
                .try_fold(&arguments, |value, name| value.get(name));
            let argument = argument.filter(|value| !value.is_null());
            let mut copies = self.0.iter().filter(|(name, _)| *name == param.header);
            let fault = match (argument, copies.next(), copies.next()) {
                (None, None, _) => continue,
                (None, Some(_), _) => "has no argument",
                (Some(_), None, _) => "is missing",
                (Some(_), Some(_), Some(_)) => "is there twice",
                (Some(argument), Some((_, copy)), None) => match decode(copy) {
                    None => "is not the base64 it says",
                    Some(copy) if same(argument, &copy) => continue,
                    Some(_) => "differs from the argument",
                },
            };
            return Err(McpError::header_mismatch(format!(
                "Mcp-Param-{} {fault}",
                param.header
            )));
        }
        Ok(())
    }
}

fn same(argument: &Value, copy: &str) -> bool {
    match argument {
        Value::String(text) => text == copy,
        Value::Bool(value) => copy == if *value { "true" } else { "false" },
        Value::Number(number) => {
            let whole = number.as_i64().or_else(|| whole(number.as_f64()?));
            let copied: Option<i64> = copy.parse().ok().filter(|_| !copy.starts_with('+'));
            whole.is_some_and(|value| value.abs() <= MAX_SAFE && copied == Some(value))
        }
        _ => false,
    }
}

/// `5.0` is the integer 5.
fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and small, so exact")]
    #[expect(clippy::cast_precision_loss, reason = "the bound is exact as a double")]
    (number.fract() == 0.0 && number.abs() <= MAX_SAFE as f64).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "n":{"type":"integer","x-mcp-header":"N"},
        "deep":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry"}}},
        "list":{"type":"array","items":{"type":"string","x-mcp-header":"No"}}}}"#;

    fn check(copies: &[(&str, &str)], arguments: &str) -> Result<(), i32> {
        let copies = copies
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ParamCopies(copies.collect())
            .check(&param_headers(SCHEMA), arguments)
            .map_err(|error| error.code)
    }

    #[test]
    fn copies_are_found_through_properties_alone() {
        let found = param_headers(SCHEMA);
        let found: Vec<_> = found
            .iter()
            .map(|param| (param.header.as_str(), param.path.join(".")))
            .collect();
        assert_eq!(
            found,
            [
                ("region", "region".into()),
                ("n", "n".into()),
                ("dry", "deep.dry".to_owned())
            ]
        );
        assert_eq!(param_headers("{}"), []);
    }

    #[test]
    fn a_copy_has_to_equal_its_argument() {
        let good: [(&[(&str, &str)], &str); 7] = [
            (&[], "{}"),
            (&[], r#"{"region":null}"#),
            (&[("region", "eu")], r#"{"region":"eu"}"#),
            (
                &[("region", "=?base64?Z3LDtsOfZQ==?=")],
                r#"{"region":"größe"}"#,
            ),
            (&[("region", "=?base64??=")], r#"{"region":""}"#),
            (
                &[("n", "5"), ("dry", "true")],
                r#"{"n":5.0,"deep":{"dry":true}}"#,
            ),
            (&[("other", "x")], "{}"),
        ];
        for (copies, arguments) in good {
            assert_eq!(check(copies, arguments), Ok(()), "{arguments}");
        }
        let bad: [(&[(&str, &str)], &str); 9] = [
            (&[("region", "eu")], "{}"),
            (&[("region", "eu")], r#"{"region":null}"#),
            (&[], r#"{"region":"eu"}"#),
            (&[("region", "EU")], r#"{"region":"eu"}"#),
            (&[("region", "=?base64?%%?=")], r#"{"region":"eu"}"#),
            (&[("region", "eu"), ("region", "eu")], r#"{"region":"eu"}"#),
            (&[("n", "+5")], r#"{"n":5}"#),
            (&[("n", "9007199254740993")], r#"{"n":9007199254740993}"#),
            (&[("dry", "1")], r#"{"deep":{"dry":true}}"#),
        ];
        for (copies, arguments) in bad {
            assert_eq!(check(copies, arguments), Err(-32020), "{arguments}");
        }
    }
}
