//! `ramen call`: one tool call, its arguments typed by the tool's schema.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output::{self, OutputArg};
use crate::peer::Peer;

/// `ramen call`.
#[derive(Args)]
pub(crate) struct CallArgs {
    /// The tool
    tool: String,
    /// Arguments: name=value takes its type from the tool's schema, name:=json is JSON as written
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    /// All arguments as one JSON object
    #[arg(long, value_name = "OBJECT", conflicts_with = "arguments")]
    json: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: &CallArgs) -> Result<ExitCode, Failure> {
    let runtime = crate::runtime()?;
    let peer = Peer::open(&args.connect)?;
    peer.finish(&runtime, call(args, &peer))
}

async fn call(args: &CallArgs, peer: &Peer) -> Result<ExitCode, Failure> {
    let arguments = if let Some(text) = &args.json {
        object(text)?
    } else {
        // Also without arguments: a tool that is not there is told with those that are.
        let mut tool = peer.find("tools", "name", &args.tool).await?;
        let schema = tool["inputSchema"].take();
        arguments(&args.arguments, &schema)?
    };
    let name = Value::from(args.tool.as_str());
    let params = format!(r#"{{"name":{name},"arguments":{arguments}}}"#);
    let result = peer.request("tools/call", &params).await?;
    show(&result, args.output)
}

/// Checks `--json` and keeps its text.
fn object(text: &str) -> Result<String, Failure> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| Failure::usage(format!("--json: {error}")))?;
    if raw.get().starts_with('{') {
        Ok(raw.get().to_owned())
    } else {
        Err(Failure::usage("--json: an object is needed"))
    }
}

/// Builds the arguments object out of `name=value` and `name:=json` items.
fn arguments(items: &[String], schema: &Value) -> Result<String, Failure> {
    let mut out: Vec<(String, String)> = Vec::new();
    for item in items {
        let (name, value) = item
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{item:?} is no name=value")))?;
        let (name, json) = match name.strip_suffix(':') {
            Some(name) => {
                let raw: &RawValue = serde_json::from_str(value).map_err(|error| {
                    Failure::usage(format!("{name}: the value is no JSON: {error}"))
                })?;
                (name, raw.get().to_owned())
            }
            None => (name, typed(name, value, &schema["properties"][name])?),
        };
        if name.is_empty() {
            return Err(Failure::usage(format!("{item:?} has no name before `=`")));
        }
        if out.iter().any(|(known, _)| known == name) {
            return Err(Failure::usage(format!("{name} is given twice")));
        }
        out.push((name.to_owned(), json));
    }
    let members: Vec<String> = out
        .iter()
        .map(|(name, json)| format!("{}:{json}", Value::from(name.as_str())))
        .collect();
    Ok(format!("{{{}}}", members.join(",")))
}

/// The JSON text of a value, by the type that the schema gives; without one it is a string, and the worker judges.
fn typed(name: &str, value: &str, schema: &Value) -> Result<String, Failure> {
    let string = || Value::from(value).to_string();
    if let Some(choices) = schema["enum"].as_array() {
        let known = choices
            .iter()
            .find(|c| c.as_str() == Some(value) || *c == value);
        return Ok(known.map_or_else(string, Value::to_string));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(string()),
    };
    let json = serde_json::from_str::<&RawValue>(value.trim())
        .ok()
        .map(|raw| raw.get().to_owned());
    let is = |kind: &str, text: &str| match kind {
        "number" | "integer" => text.starts_with(|c: char| c == '-' || c.is_ascii_digit()),
        "boolean" => matches!(text, "true" | "false"),
        "array" => text.starts_with('['),
        "object" => text.starts_with('{'),
        "null" => text == "null",
        _ => false,
    };
    if let Some(json) = json
        && types.iter().any(|kind| is(kind, &json))
    {
        return Ok(json);
    }
    if types.contains(&"string") {
        return Ok(string());
    }
    Err(Failure::usage(format!(
        "{name}: {value:?} is no {}",
        types.join(" or ")
    )))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    is_error: bool,
}

fn show(raw: &RawValue, output: OutputArg) -> Result<ExitCode, Failure> {
    let result: ToolResult = serde_json::from_str(raw.get())
        .map_err(|error| Failure::error(format!("the result cannot be read: {error}")))?;
    if output.is_table() {
        let text: Vec<String> = result.content.iter().map(block).collect();
        if result.is_error {
            return Err(Failure::tool(text.join("\n")));
        }
        output::line(&text.join("\n"));
    } else {
        output.print_raw(raw)?;
    }
    Ok(ExitCode::from(if result.is_error {
        Failure::tool("").code()
    } else {
        0
    }))
}

/// A content block as text.
pub(crate) fn block(block: &Value) -> String {
    let field = |name: &str| block[name].as_str().unwrap_or("?");
    match block["type"].as_str() {
        Some("text") => field("text").to_owned(),
        Some(kind @ ("image" | "audio")) => {
            let bytes = block["data"]
                .as_str()
                .map_or(0, |data| data.trim_end_matches('=').len() * 3 / 4);
            format!(
                "[{kind} {}, {bytes} bytes; --output json shows it]",
                field("mimeType")
            )
        }
        Some("resource_link") => format!("[link {}]", field("uri")),
        _ => block.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn build(items: &[&str], schema: &Value) -> Result<String, String> {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        arguments(&items, schema).map_err(|failure| failure.to_string())
    }

    #[test]
    fn values_take_the_type_of_the_schema() {
        let schema = json!({"properties": {
            "n": {"type": "number"}, "i": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"},
            "f": {"enum": ["add", "1"]}, "l": {"type": "array"}, "u": {"type": ["string", "null"]},
        }});
        let built = build(
            &[
                "n=6",
                "i=123456789012345678901234567890",
                "s=5",
                "b=true",
                "f=1",
                "l=[1, 2]",
                "u=null",
                "x=7",
            ],
            &schema,
        );
        assert_eq!(
            built.unwrap(),
            r#"{"n":6,"i":123456789012345678901234567890,"s":"5","b":true,"f":"1","l":[1, 2],"u":null,"x":"7"}"#
        );
    }

    #[test]
    fn values_that_cannot_have_the_type_are_refused_here() {
        let schema = json!({"properties": {"n": {"type": "number"}, "b": {"type": "boolean"}}});
        assert_eq!(
            build(&["n=six"], &schema).unwrap_err(),
            "n: \"six\" is no number"
        );
        assert!(build(&["b=yes"], &schema).is_err());
        assert!(build(&["n"], &schema).is_err());
        assert!(build(&["=1"], &schema).unwrap_err().contains("no name"));
        assert!(
            build(&["n=1", "n=2"], &schema)
                .unwrap_err()
                .contains("twice")
        );
    }

    #[test]
    fn json_values_are_taken_as_written() {
        let schema = json!({"properties": {"s": {"type": "string"}}});
        assert_eq!(
            build(&["s:={\"a\": 1.50}"], &schema).unwrap(),
            r#"{"s":{"a": 1.50}}"#
        );
        assert_eq!(build(&["s=a=b"], &schema).unwrap(), r#"{"s":"a=b"}"#);
        assert!(build(&["s:=nope"], &schema).is_err());
    }

    #[test]
    fn blocks_that_are_no_text_are_named() {
        assert_eq!(block(&json!({"type": "text", "text": "a"})), "a");
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
        assert_eq!(
            block(&image),
            "[image image/png, 3 bytes; --output json shows it]"
        );
    }
}
