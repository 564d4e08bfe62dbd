//! What servers list, and how lists are read page by page.

use std::collections::HashSet;
use std::fmt;

use ramen_mcp::model::Json;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::error::ClientError;
use crate::limits::Limits;

/// One tool that a server exposes. The definition is kept as it came: `input_schema` is JSON Schema already, which is what
/// a tool definition for a model needs, so nothing of it is touched.
#[derive(Clone, PartialEq, Eq)]
pub struct Tool {
    /// The name to call it by.
    pub name: String,
    /// What it does, for a model.
    pub description: String,
    /// JSON Schema of the arguments, untouched.
    pub input_schema: Json,
    /// The whole definition, with what this type does not name.
    pub definition: Json,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.name).finish()
    }
}

impl TryFrom<Json> for Tool {
    type Error = serde_json::Error;

    fn try_from(definition: Json) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Known {
            name: String,
            #[serde(default)]
            description: Option<String>,
            input_schema: Json,
        }
        let known: Known = definition.to()?;
        Ok(Self {
            name: known.name,
            description: known.description.unwrap_or_default(),
            input_schema: known.input_schema,
            definition,
        })
    }
}

impl Serialize for Tool {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.definition.serialize(out)
    }
}

impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let definition = Json::deserialize(reader)?;
        Self::try_from(definition).map_err(serde::de::Error::custom)
    }
}

/// A piece of readable data that a server exposes: a file, a row of a database, whatever it wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// What identifies it.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

/// A prompt template with parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// The name to get it by.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

/// A parameter of a prompt; its value is a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// Collects the pages of one list, within the bounds.
pub(crate) struct Pages<'a> {
    method: &'static str,
    key: &'static str,
    limits: &'a Limits,
    read: usize,
    bytes: usize,
    cursors: HashSet<String>,
    items: Vec<Json>,
}

impl<'a> Pages<'a> {
    /// `key` is the member that holds the items.
    pub(crate) fn new(method: &'static str, key: &'static str, limits: &'a Limits) -> Self {
        Self {
            method,
            key,
            limits,
            read: 0,
            bytes: 0,
            cursors: HashSet::new(),
            items: Vec::new(),
        }
    }

    /// Takes a page; gives the parameters of the next request, `None` after the last page.
    pub(crate) fn take(&mut self, page: &Json) -> Result<Option<String>, ClientError> {
        let bad = |why: String| ClientError::answer(self.method, why);
        let mut members: std::collections::HashMap<String, Json> =
            page.to().map_err(|error| bad(error.to_string()))?;
        let items = members
            .remove(self.key)
            .ok_or_else(|| bad(format!("it has no {:?}", self.key)))?;
        let items: Vec<Json> = items.to().map_err(|error| bad(error.to_string()))?;
        self.bytes += items.iter().map(|item| item.get().len()).sum::<usize>();
        self.items.extend(items);
        self.read += 1;
        if self.bytes > self.limits.list {
            return Err(bad(format!(
                "the list is larger than {} bytes",
                self.limits.list
            )));
        }
        if self.items.len() > self.limits.items {
            return Err(bad(format!("more than {} items", self.limits.items)));
        }
        let next: Option<String> = match members.remove("nextCursor") {
            None => None,
            Some(cursor) => cursor.to().map_err(|error| bad(error.to_string()))?,
        };
        let Some(cursor) = next else {
            return Ok(None);
        };
        if self.read >= self.limits.pages {
            return Err(bad(format!("more than {} pages", self.limits.pages)));
        }
        let params = json!({ "cursor": cursor }).to_string();
        if !self.cursors.insert(cursor) {
            return Err(bad("it gives the same cursor twice".to_owned()));
        }
        Ok(Some(params))
    }

    /// The items as they came.
    pub(crate) fn items(self) -> Vec<Json> {
        self.items
    }

    /// The items that can be read as such; the others are counted in a warning. Of two with one name the first counts.
    pub(crate) fn read<T>(self, server: &str, name: impl Fn(&T) -> &str) -> Vec<T>
    where
        T: serde::de::DeserializeOwned,
    {
        let total = self.items.len();
        let mut names = HashSet::new();
        let mut out = Vec::with_capacity(total);
        for item in self.items {
            if let Ok(item) = item.to::<T>()
                && names.insert(name(&item).to_owned())
            {
                out.push(item);
            }
        }
        if out.len() < total {
            let (method, left_out) = (self.method, total - out.len());
            tracing::warn!(
                server,
                method,
                left_out,
                "items that cannot be used are left out"
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pages: &mut Pages<'_>, page: &str) -> Result<Option<String>, ClientError> {
        pages.take(&Json::parse(page).unwrap())
    }

    #[test]
    fn a_list_is_read_to_its_last_page_and_an_empty_cursor_is_a_cursor() {
        let limits = Limits::default();
        let mut pages = Pages::new("tools/list", "tools", &limits);
        let one = r#"{"tools":[{"name":"a","inputSchema":{}}],"nextCursor":""}"#;
        assert_eq!(
            take(&mut pages, one).unwrap().as_deref(),
            Some(r#"{"cursor":""}"#)
        );
        let two =
            r#"{"tools":[{"name":"b","inputSchema":{}},{"name":"a","inputSchema":{}},{"name":1}]}"#;
        assert_eq!(take(&mut pages, two).unwrap(), None);
        let tools = pages.read("s", |tool: &Tool| &tool.name);
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_cursor_that_comes_again_ends_the_list_with_an_error() {
        let limits = Limits::default();
        let mut pages = Pages::new("tools/list", "tools", &limits);
        let page = r#"{"tools":[],"nextCursor":"x"}"#;
        assert!(take(&mut pages, page).unwrap().is_some());
        let error = take(&mut pages, page).unwrap_err().to_string();
        assert!(error.contains("same cursor"), "{error}");
    }

    #[test]
    fn lists_are_bounded_in_pages_and_items() {
        let limits = Limits {
            pages: 2,
            items: 3,
            ..Limits::default()
        };
        let mut pages = Pages::new("tools/list", "tools", &limits);
        assert!(take(&mut pages, r#"{"tools":[1,2],"nextCursor":"a"}"#).is_ok());
        assert!(take(&mut pages, r#"{"tools":[],"nextCursor":"b"}"#).is_err());
        let mut pages = Pages::new("tools/list", "tools", &limits);
        assert!(take(&mut pages, r#"{"tools":[1,2,3,4]}"#).is_err());
        assert!(take(&mut pages, r#"{"nothing":[]}"#).is_err());
    }

    #[test]
    fn pages_that_are_small_each_are_bounded_together() {
        let limits = Limits {
            list: 1000,
            ..Limits::default()
        };
        let mut pages = Pages::new("tools/list", "tools", &limits);
        let page = |n: usize| {
            let text = "x".repeat(400);
            format!(r#"{{"tools":["{text}"],"nextCursor":"{n}"}}"#)
        };
        assert!(take(&mut pages, &page(1)).is_ok());
        assert!(take(&mut pages, &page(2)).is_ok());
        let error = take(&mut pages, &page(3)).unwrap_err().to_string();
        assert!(error.contains("larger than 1000 bytes"), "{error}");
    }

    #[test]
    fn prompts_and_resources_are_written_as_they_are_read_without_what_they_lack() {
        let plain = json!({"name": "review"});
        let full = json!({"name": "review", "description": "looks", "arguments": [
            {"name": "code", "description": "what", "required": true}, {"name": "tone"}]});
        for prompt in [plain, full] {
            let read: Prompt = serde_json::from_value(prompt.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), prompt);
        }
        let plain = json!({"uri": "a://b", "name": "b"});
        let full =
            json!({"uri": "a://b", "name": "b", "description": "x", "mimeType": "text/plain"});
        for resource in [plain, full] {
            let read: Resource = serde_json::from_value(resource.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), resource);
        }
    }

    #[test]
    fn the_input_schema_is_passed_through_untouched() {
        let text = r##"{"name":"t","inputSchema":{"$defs":{"a":{"type":"number","maximum":1.50}},"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#/properties/x"}}},"execution":{"taskSupport":"no"}}"##;
        let tool: Tool = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
        assert!(tool.input_schema.get().contains("1.50"));
    }
}
