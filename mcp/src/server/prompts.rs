//! `prompts/get` and `completion/complete`.

use bytes::Bytes;
use serde_json::json;

use super::Server;
use crate::catalog::{ArgumentFault, Reference};
use crate::envelope::{Request, members, pairs, text};
use crate::era::Era;
use crate::error::McpError;
use crate::model::Prompt;

/// How many values a completion may hold.
const MAX_COMPLETIONS: usize = 100;

impl Server {
    pub(super) fn get_prompt(&self, request: &Request<'_>, era: Era) -> Result<Bytes, McpError> {
        let name = request
            .params
            .name()
            .and_then(text)
            .ok_or_else(|| McpError::invalid_params("`name` must be a string"))?;
        let index = self.find_prompt(&name)?;
        let arguments =
            prompt_arguments(&self.catalog.prompts()[index], request.params.arguments())
                .map_err(|fault| bad_argument(&fault))?;
        let rendered = self
            .catalog
            .render_prompt(index, &arguments)
            .map_err(|fault| bad_argument(&fault))?;
        let mut answer = self.answer(&request.id, 1024);
        if let Some(description) = &rendered.description {
            answer.json("description", description);
        }
        answer.json("messages", &rendered.messages);
        Ok(answer.finish(era))
    }

    pub(super) fn complete(&self, request: &Request<'_>, era: Era) -> Result<Bytes, McpError> {
        let [kind, name, uri] =
            strings(request.params.reference(), "ref", ["type", "name", "uri"])?;
        let [argument, typed, _] = strings(
            request.params.argument(),
            "argument",
            ["name", "value", "-"],
        )?;
        let argument =
            argument.ok_or_else(|| McpError::invalid_params("`argument.name` is missing"))?;
        let typed = typed.ok_or_else(|| McpError::invalid_params("`argument.value` is missing"))?;
        let reference = match (kind.as_deref(), name, uri) {
            (Some("ref/prompt"), Some(name), _) => {
                Some(Reference::Prompt(self.find_prompt(&name)?))
            }
            // A fixed resource has nothing to complete; an unknown URI may be one that is built.
            (Some("ref/resource"), _, Some(uri)) => {
                let mut templates = self.catalog.templates().iter();
                templates
                    .position(|known| known.uri_template == uri)
                    .map(Reference::Template)
            }
            _ => {
                let message = "`ref` must be a ref/prompt with a name or a ref/resource with a uri";
                return Err(McpError::invalid_params(message));
            }
        };
        let typed = typed.to_lowercase();
        let mut values = reference
            .map(|reference| self.catalog.choices(reference, &argument))
            .unwrap_or_default();
        values.retain(|value| value.to_lowercase().starts_with(&typed));
        let total = values.len();
        values.truncate(MAX_COMPLETIONS);
        let completion =
            json!({ "values": values, "total": total, "hasMore": total > values.len() });
        let mut answer = self.answer(&request.id, 256);
        answer.json("completion", &completion);
        Ok(answer.finish(era))
    }

    fn find_prompt(&self, name: &str) -> Result<usize, McpError> {
        let index = self.prompt_index.get(name).copied();
        index.ok_or_else(|| McpError::unknown_prompt(name))
    }
}

/// The arguments of a prompt by name, all of them strings, none missing, none extra.
fn prompt_arguments(
    prompt: &Prompt,
    json: Option<&str>,
) -> Result<Vec<(String, String)>, ArgumentFault> {
    let given = match json.filter(|json| *json != "null") {
        None => Vec::new(),
        Some(json) if json.starts_with('{') => {
            pairs(json).map_err(|_| ArgumentFault::whole("are not JSON"))?
        }
        Some(_) => return Err(ArgumentFault::whole("must be an object")),
    };
    let mut arguments: Vec<(String, String)> = Vec::with_capacity(given.len());
    for (name, value) in given {
        let shown = || crate::error::clip(&name).to_owned();
        if !prompt.arguments.iter().any(|known| known.name == name) {
            return Err(ArgumentFault::of(shown(), "is not one of this prompt"));
        }
        let Some(value) = text(value) else {
            return Err(ArgumentFault::of(shown(), "must be a string"));
        };
        if arguments.iter().any(|(seen, _)| *seen == name) {
            return Err(ArgumentFault::of(shown(), "is given twice"));
        }
        arguments.push((name, value.into_owned()));
    }
    let missing = prompt
        .arguments
        .iter()
        .filter(|known| known.required)
        .find(|known| arguments.iter().all(|(name, _)| *name != known.name));
    match missing {
        Some(known) => Err(ArgumentFault::of(known.name.clone(), "is missing")),
        None => Ok(arguments),
    }
}

/// The error of an argument that does not fit.
pub(super) fn bad_argument(fault: &ArgumentFault) -> McpError {
    let error = McpError::invalid_params(fault.to_string());
    match &fault.argument {
        Some(argument) => error.with_data(&json!({ "argument": argument })),
        None => error,
    }
}

/// String members of an object parameter.
fn strings(
    json: Option<&str>,
    what: &str,
    names: [&str; 3],
) -> Result<[Option<String>; 3], McpError> {
    let wrong = || McpError::invalid_params(format!("`{what}` must be an object of strings"));
    let json = json
        .filter(|json| json.starts_with('{'))
        .ok_or_else(wrong)?;
    let found = members(json, &names).map_err(|_| wrong())?;
    if found.repeated().is_some() {
        return Err(McpError::invalid_request(format!(
            "`{what}` has a member twice"
        )));
    }
    let mut values = [const { None }; 3];
    for (index, value) in values.iter_mut().enumerate() {
        if let Some(token) = found.get(index) {
            *value = Some(text(token).ok_or_else(wrong)?.into_owned());
        }
    }
    Ok(values)
}
