//! A small group, as `ramen-group` would load it.

use bytes::Bytes;
use ramen_mcp::catalog::ResourceEntry;
use ramen_mcp::model::{
    Implementation, Json, Prompt, PromptArgument, PromptMessage, Resource, ResourceTemplate, Tool,
};
use ramen_mcp::{ArgumentFault, Catalog, PromptText, Reference, ResourceTarget};
use serde_json::{Value, json};

/// Four tools, a resource, a template, two prompts.
pub(crate) struct Sample {
    info: Implementation,
    pub(crate) tools: Vec<Tool>,
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
    prompts: Vec<Prompt>,
}

fn tool(name: &str, input: &Value, output: Option<&Value>) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: Some(format!("The tool {name}.")),
        input_schema: Json::from(input),
        output_schema: output.map(Json::from),
        annotations: None,
        icons: Vec::new(),
        meta: None,
    }
}

impl Sample {
    /// The group of the golden files.
    pub(crate) fn new() -> Self {
        let number = json!({"type": "number"});
        let calc = json!({
            "type": "object",
            "properties": {"var1": number, "var2": number},
            "required": ["var1", "var2"],
            "additionalProperties": false
        });
        let nothing = json!({"type": "object", "additionalProperties": false});
        let argument = |name: &str, required| PromptArgument {
            name: name.to_owned(),
            required,
            ..PromptArgument::default()
        };
        Self {
            info: Implementation {
                name: "sample".to_owned(),
                version: "1.2.3".to_owned(),
                ..Implementation::default()
            },
            tools: vec![
                tool("now", &nothing, None),
                tool("calc", &calc, Some(&number)),
                tool("profile", &nothing, Some(&json!({"type": "object"}))),
                tool("Admin", &nothing, None),
            ],
            resources: vec![Resource {
                uri: "demo://readme".to_owned(),
                name: "readme".to_owned(),
                mime_type: Some("text/markdown".to_owned()),
                ..Resource::default()
            }],
            templates: vec![ResourceTemplate {
                uri_template: "demo://user/{id}".to_owned(),
                name: "user".to_owned(),
                ..ResourceTemplate::default()
            }],
            prompts: vec![
                Prompt {
                    name: "greet".to_owned(),
                    arguments: vec![argument("name", true), argument("tone", false)],
                    meta: Some(Json::from(&json!({"settings": {"temperature": 0.5}}))),
                    ..Prompt::default()
                },
                Prompt {
                    name: "bare".to_owned(),
                    ..Prompt::default()
                },
            ],
        }
    }
}

impl Catalog for Sample {
    fn server_info(&self) -> &Implementation {
        &self.info
    }

    fn instructions(&self) -> Option<&str> {
        Some("Ask for numbers.")
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    fn resources(&self) -> &[Resource] {
        &self.resources
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn prompts(&self) -> &[Prompt] {
        &self.prompts
    }

    fn check_arguments(
        &self,
        tool: usize,
        arguments: &str,
    ) -> Result<Option<Bytes>, ArgumentFault> {
        let given: Value =
            serde_json::from_str(arguments).map_err(|_| ArgumentFault::whole("are not JSON"))?;
        let given = given
            .as_object()
            .expect("the server lets objects through only");
        let schema: Value = self.tools[tool]
            .input_schema
            .to()
            .expect("the sample's schemas are JSON");
        let known = &schema["properties"];
        if let Some(extra) = given.keys().find(|name| known.get(name).is_none()) {
            return Err(ArgumentFault::of(extra, "is not one of this tool"));
        }
        for name in known.as_object().into_iter().flat_map(|known| known.keys()) {
            match given.get(name) {
                None => return Err(ArgumentFault::of(name, "is missing")),
                Some(value) if !value.is_number() => {
                    return Err(ArgumentFault::of(name, "is not a number"));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }

    fn check_output(&self, tool: usize, value: &str) -> Result<(), String> {
        let number = self.tools[tool].name == "calc";
        let fits = !number || serde_json::from_str::<f64>(value).is_ok();
        fits.then_some(()).ok_or_else(|| "not a number".to_owned())
    }

    fn resolve_resource(&self, uri: &str) -> Option<ResourceTarget> {
        if uri == "demo://readme" {
            return Some(ResourceTarget {
                entry: ResourceEntry::Fixed(0),
                mime_type: Some("text/markdown".to_owned()),
                arguments: Bytes::from_static(b"{}"),
            });
        }
        let id = uri.strip_prefix("demo://user/")?;
        Some(ResourceTarget {
            entry: ResourceEntry::Template(0),
            mime_type: None,
            arguments: Bytes::from(json!({ "id": id }).to_string()),
        })
    }

    fn render_prompt(
        &self,
        prompt: usize,
        arguments: &[(String, String)],
    ) -> Result<PromptText, ArgumentFault> {
        Ok(PromptText {
            description: Some(format!("About {}", self.prompts[prompt].name)),
            messages: vec![PromptMessage::user(format!("{arguments:?}"))],
        })
    }

    fn choices(&self, reference: Reference, argument: &str) -> Vec<String> {
        if (reference, argument) != (Reference::Prompt(0), "tone") {
            return Vec::new();
        }
        (0..120)
            .map(|n| format!("Warm{n}"))
            .chain(["cold".to_owned()])
            .collect()
    }
}
