//! A loaded group as [`ramen_mcp::Server`] serves it.

use std::collections::HashMap;

use bytes::Bytes;
use ramen_mcp::catalog::ResourceEntry;
use ramen_mcp::model::{self, Implementation, Json};
use ramen_mcp::{ArgumentFault, Catalog, PromptText, Reference, ResourceTarget};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{ArgFaults, Group, Prompt, Resource, Tool};

/// A [`Group`] with its lists made ready. Index `i` of a list is index `i` of the group's own.
#[derive(Debug)]
pub struct GroupCatalog {
    group: Group,
    info: Implementation,
    tools: Vec<model::Tool>,
    resources: Vec<model::Resource>,
    prompts: Vec<model::Prompt>,
    by_uri: HashMap<String, usize>,
}

/// A hint that was checked when the descriptor was read.
fn hint<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

fn json(raw: &RawValue) -> Option<Json> {
    Json::parse(raw.get()).ok()
}

impl GroupCatalog {
    /// Makes the lists.
    pub fn new(group: Group, info: Implementation) -> Self {
        let tools = group.tools.iter().map(listed_tool).collect();
        let resources = group.resources.iter().map(listed_resource).collect();
        let prompts = group.prompts.iter().map(listed_prompt).collect();
        let uris = group.resources.iter().enumerate();
        let by_uri = uris
            .map(|(at, resource)| (resource.uri.clone(), at))
            .collect();
        Self {
            group,
            info,
            tools,
            resources,
            prompts,
            by_uri,
        }
    }

    /// The same under another version.
    #[must_use]
    pub fn with_version(&self, version: &str) -> Self {
        let info = Implementation {
            version: version.to_owned(),
            ..self.info.clone()
        };
        Self::new(self.group.clone(), info)
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The tool behind an index of [`Catalog::tools`].
    pub fn tool_at(&self, at: usize) -> Option<&Tool> {
        self.group.tools.get(at)
    }

    /// The resource behind an index of [`Catalog::resources`].
    pub fn resource_at(&self, at: usize) -> Option<&Resource> {
        self.group.resources.get(at)
    }

    /// The prompt behind an index of [`Catalog::prompts`].
    pub fn prompt_at(&self, at: usize) -> Option<&Prompt> {
        self.group.prompts.get(at)
    }
}

fn listed_tool(tool: &Tool) -> model::Tool {
    model::Tool {
        name: tool.name.to_string(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: json(tool.input.json()).expect("an input schema is kept as JSON"),
        output_schema: tool.output.as_ref().and_then(|output| json(output.json())),
        annotations: tool.annotations.as_deref().map(|raw| hint(Some(raw))),
        icons: hint(tool.icons.as_deref()),
        meta: None,
    }
}

fn listed_resource(resource: &Resource) -> model::Resource {
    model::Resource {
        uri: resource.uri.clone(),
        name: resource.name.to_string(),
        title: resource.title.clone(),
        description: resource.description.clone(),
        mime_type: resource.mime_type.clone(),
        size: None,
        annotations: resource.annotations.as_deref().map(|raw| hint(Some(raw))),
        icons: hint(resource.icons.as_deref()),
        meta: None,
    }
}

fn listed_prompt(prompt: &Prompt) -> model::Prompt {
    let meta = prompt
        .settings
        .as_ref()
        .and_then(|settings| Json::parse(format!("{{\"settings\":{}}}", settings.get())).ok());
    let arguments = prompt
        .arguments
        .iter()
        .map(|argument| model::PromptArgument {
            name: argument.name.clone(),
            title: None,
            description: argument.description.clone(),
            required: argument.required,
        });
    model::Prompt {
        name: prompt.name.to_string(),
        title: prompt.title.clone(),
        description: prompt.description.clone(),
        arguments: arguments.collect(),
        icons: hint(prompt.icons.as_deref()),
        meta,
    }
}

fn argument_fault(faults: &ArgFaults) -> ArgumentFault {
    match faults {
        ArgFaults::NotAnObject => ArgumentFault::whole("must be an object"),
        ArgFaults::Malformed(message) => {
            ArgumentFault::whole(format!("are not good JSON: {message}"))
        }
        ArgFaults::Faults(list) => {
            let Some((first, rest)) = list.split_first() else {
                return ArgumentFault::whole("are not valid");
            };
            let mut message = first.message.clone();
            for fault in rest {
                message.push_str("; ");
                message.push_str(&fault.to_string());
            }
            ArgumentFault {
                argument: first.argument.clone(),
                message,
            }
        }
    }
}

impl Catalog for GroupCatalog {
    fn server_info(&self) -> &Implementation {
        &self.info
    }

    fn tools(&self) -> &[model::Tool] {
        &self.tools
    }

    fn resources(&self) -> &[model::Resource] {
        &self.resources
    }

    fn prompts(&self) -> &[model::Prompt] {
        &self.prompts
    }

    fn check_arguments(
        &self,
        tool: usize,
        arguments: &str,
    ) -> Result<Option<Bytes>, ArgumentFault> {
        let Some(tool) = self.group.tools.get(tool) else {
            return Err(ArgumentFault::whole("belong to no tool"));
        };
        match tool.input.check(arguments) {
            Ok(rewritten) => Ok(rewritten.map(Bytes::from)),
            Err(faults) => Err(argument_fault(&faults)),
        }
    }

    fn check_output(&self, tool: usize, value: &str) -> Result<(), String> {
        match self
            .group
            .tools
            .get(tool)
            .and_then(|tool| tool.output.as_ref())
        {
            Some(output) => output.check(value).map_err(|fault| fault.to_string()),
            None => Ok(()),
        }
    }

    fn resolve_resource(&self, uri: &str) -> Option<ResourceTarget> {
        let at = *self.by_uri.get(uri)?;
        Some(ResourceTarget {
            entry: ResourceEntry::Fixed(at),
            mime_type: self.group.resources.get(at)?.mime_type.clone(),
            arguments: Bytes::from_static(b"{}"),
        })
    }

    fn render_prompt(
        &self,
        prompt: usize,
        arguments: &[(String, String)],
    ) -> Result<PromptText, ArgumentFault> {
        let Some(prompt) = self.group.prompts.get(prompt) else {
            return Err(ArgumentFault::whole("belong to no prompt"));
        };
        let text = prompt.render(arguments)?;
        Ok(PromptText {
            description: prompt.description.clone(),
            messages: vec![model::PromptMessage::user(text)],
        })
    }

    fn choices(&self, reference: Reference, argument: &str) -> Vec<String> {
        match reference {
            Reference::Prompt(at) => self
                .group
                .prompts
                .get(at)
                .and_then(|prompt| prompt.arguments.iter().find(|a| a.name == argument))
                .map(|argument| argument.values.clone())
                .unwrap_or_default(),
            Reference::Template(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
