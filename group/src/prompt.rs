//! Prompts: `SKILL.md` templates and their settings.

use serde_json::value::RawValue;

use crate::PackageName;
use crate::json::{Kind, Reader};

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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    /// The `## Settings` block, ready to append.
    settings: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Argument(usize),
}

/// Why a prompt could not be rendered. Messages name the argument, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PromptFault {
    /// `arguments` is no JSON object.
    #[error("arguments must be an object of strings")]
    NotAnObject,
    /// A required argument is not given.
    #[error("argument `{0}` is missing")]
    Missing(String),
    /// An argument that the prompt does not have.
    #[error("argument `{0}` is not known here")]
    Unknown(String),
    /// An argument given twice.
    #[error("argument `{0}` is given twice")]
    Twice(String),
    /// A value that is no string.
    #[error("argument `{0}` must be a string")]
    NotAString(String),
    /// A value outside the enum.
    #[error("argument `{name}` must be one of: {allowed}")]
    NotAllowed {
        /// The argument.
        name: String,
        /// Its values.
        allowed: String,
    },
    /// The JSON itself is bad.
    #[error("arguments are not good JSON: {0}")]
    Malformed(&'static str),
}

impl PromptFault {
    /// The argument at fault.
    pub fn argument(&self) -> Option<&str> {
        match self {
            Self::Missing(name)
            | Self::Unknown(name)
            | Self::Twice(name)
            | Self::NotAString(name)
            | Self::NotAllowed { name, .. } => Some(name),
            Self::NotAnObject | Self::Malformed(_) => None,
        }
    }
}

impl Prompt {
    /// The text of the one user message, from the text of the call's `arguments`. Absent and `null`
    /// count as `{}`.
    pub fn render(&self, arguments: Option<&str>) -> Result<String, PromptFault> {
        let mut reader = Reader::new(arguments.unwrap_or("{}"));
        let bad = |fault: crate::json::Fault| PromptFault::Malformed(fault.message);
        let mut pairs: Vec<(String, String)> = Vec::new();
        match reader.peek().map_err(bad)? {
            Kind::Null => {
                reader.word().map_err(bad)?;
            }
            Kind::Object => {
                let mut more = reader.open().map_err(bad)?;
                while more {
                    let name = reader.key().map_err(bad)?.decode().into_owned();
                    if reader.peek().map_err(bad)? != Kind::String {
                        return Err(PromptFault::NotAString(short(&name)));
                    }
                    let value = reader.string().map_err(bad)?.decode().into_owned();
                    if pairs.iter().any(|(known, _)| *known == name) {
                        return Err(PromptFault::Twice(short(&name)));
                    }
                    pairs.push((name, value));
                    more = reader.next(b'}').map_err(bad)?;
                }
            }
            _ => return Err(PromptFault::NotAnObject),
        }
        reader.finish().map_err(bad)?;
        self.render_pairs(&pairs)
    }

    /// The text of the one user message: the template with its arguments put in (one pass: what an
    /// argument brings is not looked at again, secrets are not resolved), then `## Settings`.
    pub fn render_pairs(&self, given: &[(String, String)]) -> Result<String, PromptFault> {
        for (name, _) in given {
            if !self.arguments.iter().any(|argument| argument.name == *name) {
                return Err(PromptFault::Unknown(short(name)));
            }
        }
        let mut values: Vec<&str> = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let value = given.iter().find(|(name, _)| *name == argument.name);
            let value = match (value, &argument.default) {
                (Some((_, value)), _) => value,
                (None, Some(default)) => default,
                (None, None) => return Err(PromptFault::Missing(argument.name.clone())),
            };
            if !argument.values.is_empty() && !argument.values.contains(value) {
                return Err(PromptFault::NotAllowed {
                    name: argument.name.clone(),
                    allowed: argument.values.join(", "),
                });
            }
            values.push(value);
        }
        Ok(self.template.fill(&values))
    }
}

fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

impl Template {
    /// Cuts a `SKILL.md` (without a BOM): takes off the front matter and finds `{{name}}` and
    /// `{{ name }}` of the given names. All other braces stay as they are.
    pub fn parse(text: &str, names: &[&str]) -> Self {
        let body = strip_front_matter(text);
        let mut parts = Vec::new();
        let mut kept = 0;
        let mut from = 0;
        while let Some(at) = body.get(from..).and_then(|rest| rest.find("{{")) {
            let at = from + at;
            match placeholder(&body[at..]) {
                Some((name, length)) if names.contains(&name) => {
                    if kept < at {
                        parts.push(Part::Text(body[kept..at].to_owned()));
                    }
                    let index = names.iter().position(|known| *known == name).unwrap_or(0);
                    parts.push(Part::Argument(index));
                    from = at + length;
                    kept = from;
                }
                _ => from = at + 1,
            }
        }
        if kept < body.len() {
            parts.push(Part::Text(body[kept..].to_owned()));
        }
        Self {
            parts,
            settings: None,
        }
    }

    /// Adds the block of `settings.json`, which is shown as written.
    #[must_use]
    pub fn with_settings(mut self, json: &str) -> Self {
        let json = json.trim().replace("\r\n", "\n");
        let longest = json.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.settings = Some(format!("## Settings\n\n{fence}json\n{json}\n{fence}\n"));
        self
    }

    fn fill(&self, values: &[&str]) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Argument(at) => out.push_str(values.get(*at).copied().unwrap_or("")),
            }
        }
        if let Some(settings) = &self.settings {
            if !out.is_empty() {
                out.push_str(if out.ends_with('\n') { "\n" } else { "\n\n" });
            }
            out.push_str(settings);
        }
        out
    }
}

/// `{{name}}` or `{{ name }}` at the start of `text`: the name and the length of the whole.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix("{{")?;
    let inner = inner.trim_start_matches([' ', '\t']);
    let length = inner
        .bytes()
        .take(65)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        .count();
    let (name, rest) = inner.split_at(length);
    let rest = rest.trim_start_matches([' ', '\t']).strip_prefix("}}")?;
    (!name.is_empty()).then(|| (name, text.len() - rest.len()))
}

/// What follows the front matter: a first line of `---` up to the next line of `---`. Without both,
/// the whole text.
fn strip_front_matter(text: &str) -> &str {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return text;
    };
    let mut length = first.len();
    for line in lines {
        length += line.len();
        if is_fence(line) {
            return &text[length..];
        }
    }
    text
}

#[cfg(test)]
mod tests;
