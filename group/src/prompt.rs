//! Prompts: `SKILL.md` templates and their settings.

use serde_json::value::RawValue;

use crate::PackageName;

/// A prompt package.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Its name.
    pub name: PackageName,
    /// `prompts/<name>`.
    pub dir: String,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// The arguments, from `input`.
    pub arguments: Vec<PromptArgument>,
    /// `settings.json`, minified, numbers as written: for `_meta.settings`.
    pub settings: Option<Box<RawValue>>,
    /// `icons`.
    pub icons: Option<Box<RawValue>>,
    /// The text with its places for arguments.
    pub template: Template,
}

/// One argument of a prompt. Prompt arguments are strings.
#[derive(Debug, Clone)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether a call must give it.
    pub required: bool,
    /// Used when a call does not give it.
    pub default: Option<String>,
    /// The allowed values, empty for free text.
    pub values: Vec<String>,
}

/// A `SKILL.md` without its front matter, cut at the places of its arguments.
#[derive(Debug, Clone)]
pub struct Template {}

/// Why a prompt could not be rendered. Messages name the argument, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptFault {
    /// `arguments` is no JSON object.
    #[error("`arguments` must be an object of strings")]
    NotAnObject,
    /// A required argument is not given.
    #[error("missing required argument `{0}`")]
    Missing(String),
    /// An argument that the prompt does not have.
    #[error("unknown argument `{0}`")]
    Unknown(String),
    /// A value that is no string.
    #[error("argument `{0}` must be a string")]
    NotAString(String),
    /// A value outside the enum.
    #[error("argument `{0}` is not one of its allowed values")]
    NotAllowed(String),
    /// The JSON itself is bad.
    #[error("{0}")]
    Malformed(String),
}

impl Prompt {
    /// The text of the one user message: the template with its arguments put in (one pass: what an
    /// argument brings is not looked at again, secrets are not resolved), then `## Settings`.
    pub fn render(&self, arguments: Option<&[u8]>) -> Result<String, PromptFault> {
        let _ = arguments;
        todo!()
    }
}
