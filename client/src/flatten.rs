//! Results as plain text, which is what a model reads.

use ramen_mcp::model::Json;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    structured_content: Option<Json>,
}

/// The content of a `tools/call` result, block by block. Structured content stands in when there is no block, digit for
/// digit. Whether it is an error makes no difference: the model reads what went wrong.
pub(crate) fn tool_result(result: &Json) -> Result<String, serde_json::Error> {
    let result: ToolResult = result.to()?;
    let text = join(result.content.iter().map(block));
    Ok(match result.structured_content {
        Some(structured) if text.is_empty() && structured.get() != "null" => {
            structured.get().to_owned()
        }
        _ => text,
    })
}

/// The contents of a `resources/read` result.
pub(crate) fn resource(result: &Value) -> String {
    let contents = result.get("contents").and_then(Value::as_array);
    contents
        .map(|contents| join(contents.iter().map(contents_of)))
        .unwrap_or_default()
}

/// The messages of a `prompts/get` result; with who says them when there are several.
pub(crate) fn prompt(result: &Value) -> String {
    let messages = result.get("messages").and_then(Value::as_array);
    let messages: Vec<_> = messages.into_iter().flatten().collect();
    let said = |message: &&Value| match message.get("content") {
        // One block by the schema; some servers send a list.
        Some(Value::Array(blocks)) => join(blocks.iter().map(block)),
        Some(Value::String(text)) => text.clone(),
        Some(content) => block(content),
        None => String::new(),
    };
    if let [message] = messages.as_slice() {
        return said(message);
    }
    let lines = messages.iter().map(|message| {
        let role = message.get("role").and_then(Value::as_str);
        format!("{}: {}", role.unwrap_or("user"), said(message))
    });
    lines.collect::<Vec<_>>().join("\n\n")
}

fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn block(block: &Value) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    match text("type").unwrap_or("text") {
        "text" => text("text").unwrap_or_default().to_owned(),
        kind @ ("image" | "audio") => placeholder(
            kind,
            None,
            text("mimeType"),
            text("data").unwrap_or_default(),
        ),
        "resource" => block.get("resource").map(contents_of).unwrap_or_default(),
        "resource_link" => {
            let uri = text("uri").unwrap_or_default();
            format!("[resource {} at {uri}]", text("name").unwrap_or_default())
        }
        other => format!("[{other} content]"),
    }
}

/// Text as it is; bytes as a placeholder.
fn contents_of(contents: &Value) -> String {
    let field = |name: &str| contents.get(name).and_then(Value::as_str);
    match (field("text"), field("blob")) {
        (Some(text), _) => text.to_owned(),
        (None, Some(blob)) => placeholder("binary", field("uri"), field("mimeType"), blob),
        (None, None) => String::new(),
    }
}

/// What stands where bytes would be: results are text from end to end.
fn placeholder(kind: &str, uri: Option<&str>, mime: Option<&str>, base64: &str) -> String {
    let digits = base64.trim_end_matches('=').len();
    let bytes = digits * 3 / 4;
    let mime = mime.unwrap_or("application/octet-stream");
    match uri {
        Some(uri) => format!("[{kind} {uri}: {mime}, {bytes} bytes]"),
        None => format!("[{kind}: {mime}, {bytes} bytes]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn flat(result: &str) -> String {
        tool_result(&Json::parse(result).unwrap()).unwrap()
    }

    #[test]
    fn call_tool_flattens_the_result_into_plain_text() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a://c", "mimeType": "x/y", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "a://d", "name": "d"},
            {"type": "hologram", "voxels": []},
            {"type": "text", "text": ""},
        ]});
        assert_eq!(
            flat(&result.to_string()),
            "one\n[image: image/png, 5 bytes]\n[audio: audio/wav, 2 bytes]\ninside\n\
             [binary a://c: x/y, 3 bytes]\n[resource d at a://d]\n[hologram content]"
        );
    }

    #[test]
    fn structured_content_stands_in_when_there_is_no_block() {
        let exact = r#"{"structuredContent":{"a":1.50,"b":12345678901234567890123}}"#;
        assert_eq!(flat(exact), r#"{"a":1.50,"b":12345678901234567890123}"#);
        let both = r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}"#;
        assert_eq!(flat(both), "x");
        assert_eq!(flat("{}"), "");
    }

    #[test]
    fn read_resource_reports_a_blob_as_a_placeholder() {
        let result = json!({"contents": [
            {"uri": "a://t", "text": "text\n"},
            {"uri": "a://b", "mimeType": "image/png", "blob": "iVBORw0KGgo="},
        ]});
        assert_eq!(
            resource(&result),
            "text\n\n[binary a://b: image/png, 8 bytes]"
        );
    }

    #[test]
    fn get_prompt_flattens_its_messages_to_text() {
        let one =
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}]});
        assert_eq!(prompt(&one), "Hi");
        let two = json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": "Hi"}},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ]});
        assert_eq!(prompt(&two), "user: Hi\n\nassistant: a\nb");
    }
}
