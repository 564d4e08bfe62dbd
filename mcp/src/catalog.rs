//! What a loaded group offers. `ramen-group` implements [`Catalog`]; [`crate::Server`] serves it.

use std::fmt;

use bytes::Bytes;

use crate::model::{Implementation, Prompt, PromptMessage, Resource, ResourceTemplate, Tool};

/// Everything one loaded revision of a group offers. Object safe.
///
/// The slices must not change during the life of the value: indices into them travel through
/// [`crate::ToolCall`] and [`ResourceTarget`]. Their order does not matter, lists are sorted by name.
pub trait Catalog: Send + Sync {
    /// Name, version and the like of the server.
    fn server_info(&self) -> &Implementation;

    /// How a model should use this server, if the group says.
    fn instructions(&self) -> Option<&str> {
        None
    }

    /// The tools.
    fn tools(&self) -> &[Tool];

    /// The resources with a fixed URI.
    fn resources(&self) -> &[Resource];

    /// The resources whose URI is a template.
    fn templates(&self) -> &[ResourceTemplate] {
        &[]
    }

    /// The prompts.
    fn prompts(&self) -> &[Prompt];

    /// Judges `arguments`, the text of a JSON object, for `tools()[tool]`. Syntax, depth, number range
    /// and surrogates were judged before. Members given twice are for this method to refuse.
    ///
    /// `Ok(None)`: pass them on as sent. `Ok(Some(bytes))`: pass these on instead (defaults filled in,
    /// `5.0` written as `5`).
    fn check_arguments(&self, tool: usize, arguments: &str)
    -> Result<Option<Bytes>, ArgumentFault>;

    /// Judges a tool's return value, JSON text, against its declared output.
    fn check_output(&self, tool: usize, value: &str) -> Result<(), String> {
        let _ = (tool, value);
        Ok(())
    }

    /// Finds who reads `uri`: a fixed resource first, then the templates.
    fn resolve_resource(&self, uri: &str) -> Option<ResourceTarget>;

    /// Renders `prompts()[prompt]`. Required arguments are there, extra ones are not, all are strings.
    fn render_prompt(
        &self,
        prompt: usize,
        arguments: &[(String, String)],
    ) -> Result<PromptText, ArgumentFault>;

    /// The values `argument` can take (an enum's), or nothing when it is free text or unknown.
    fn choices(&self, reference: Reference, argument: &str) -> Vec<String> {
        let _ = (reference, argument);
        Vec::new()
    }
}

/// Which primitive a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Index into [`Catalog::prompts`].
    Prompt(usize),
    /// Index into [`Catalog::templates`].
    Template(usize),
}

/// Who reads a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTarget {
    /// Which one.
    pub entry: ResourceEntry,
    /// The MIME type of what it returns.
    pub mime_type: Option<String>,
    /// JSON object of the variables that a template took from the URI; `{}` for a fixed one.
    pub arguments: Bytes,
}

/// Where a resource stands in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceEntry {
    /// Index into [`Catalog::resources`].
    Fixed(usize),
    /// Index into [`Catalog::templates`].
    Template(usize),
}

/// A rendered prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptText {
    /// What it is for.
    pub description: Option<String>,
    /// The messages.
    pub messages: Vec<PromptMessage>,
}

/// An argument that does not fit. Its text reaches the caller, so it must not quote the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentFault {
    /// The argument, when one is at fault.
    pub argument: Option<String>,
    /// What is wrong, in words: `is not a number`.
    pub message: String,
}

impl ArgumentFault {
    /// A fault of one argument.
    pub fn of(argument: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            argument: Some(argument.into()),
            message: message.into(),
        }
    }

    /// A fault of the arguments as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self {
            argument: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for ArgumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "argument `{argument}` {}", self.message),
            None => write!(f, "arguments {}", self.message),
        }
    }
}

impl std::error::Error for ArgumentFault {}
