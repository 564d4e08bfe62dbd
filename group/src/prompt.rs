//! Prompts: `SKILL.md` templates and their settings.

use ramen_mcp::catalog::ArgumentFault;
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

impl Prompt {
    /// The text of the one user message: the template with its arguments put in (one pass: what an
    /// argument brings is not looked at again, secrets are not resolved), then `## Settings`.
    ///
    /// That the arguments are strings, that none is missing, unknown or there twice is judged where they
    /// are read ([`ramen_mcp::Catalog::render_prompt`]); here they are held to their values.
    pub fn render(&self, given: &[(String, String)]) -> Result<String, ArgumentFault> {
        let mut values: Vec<&str> = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let value = given.iter().find(|(name, _)| *name == argument.name);
            let value = value
                .map(|(_, value)| value)
                .or(argument.default.as_ref())
                .map_or("", String::as_str);
            if !argument.values.is_empty() && !argument.values.iter().any(|known| known == value) {
                let allowed = argument.values.join(", ");
                let message = format!("must be one of: {allowed}");
                return Err(ArgumentFault::of(&argument.name, message));
            }
            values.push(value);
        }
        Ok(self.template.fill(&values))
    }
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
