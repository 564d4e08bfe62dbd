//! `<name>.json`: one descriptor. What is checked here is what `tests/fixtures/proto.schema.json`
//! says, plus a few rules that a schema cannot express.

mod extras;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::value::RawValue;

use crate::json::{self, Member, Node};
use crate::schema::Problem;
use crate::{Finding, InputSchema, NAME_RULE, OutputSchema, PackageKind, PackageName, Reason};

/// Longest time that `timeout_seconds` can ask for.
const MAX_TIMEOUT_SECONDS: f64 = 3600.0;

/// A descriptor that passed all checks that need nothing but its own text.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// `type`.
    pub kind: PackageKind,
    /// `name`.
    pub name: PackageName,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `callable`; empty for prompts.
    pub callable: String,
    /// `input`.
    pub input: InputSchema,
    /// `output`.
    pub output: Option<OutputSchema>,
    /// `annotations`, checked and passed through.
    pub annotations: Option<Box<RawValue>>,
    /// `icons`, checked and passed through.
    pub icons: Option<Box<RawValue>>,
    /// `timeout_seconds`.
    pub timeout: Option<Duration>,
    /// `uri`; empty but for resources.
    pub uri: String,
    /// `mime_type` (resources).
    pub mime_type: Option<String>,
    /// `skill` (prompts).
    pub skill: String,
    /// `settings` (prompts), as written.
    pub settings: Option<String>,
}

/// A problem with its reason.
struct Entry {
    reason: Reason,
    problem: Problem,
}

/// Checks one descriptor; `expected` says where it lies: the kind and the name of the folder. All
/// errors are returned, or the descriptor with its warnings. Findings have line and column, not yet
/// package and path.
pub fn parse_descriptor(
    bytes: &[u8],
    expected: Option<(PackageKind, &str)>,
) -> Result<(Descriptor, Vec<Finding>), Vec<Finding>> {
    let text = json::decode(bytes).map_err(|at| {
        let good = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).into_owned();
        let (line, column) = json::place(&good, good.len());
        let message = "the file is not UTF-8";
        vec![Finding::group(Reason::DescriptorInvalid, message).at(line, column)]
    })?;
    let finding = |reason: Reason, at: usize, message: &str| {
        let (line, column) = json::place(text, at);
        Finding::group(reason, message).at(line, column)
    };
    let root = json::parse(text).map_err(|fault| {
        vec![finding(
            Reason::DescriptorInvalid,
            fault.at,
            &format!("not JSON: {fault}"),
        )]
    })?;
    let mut fields = Fields {
        root: &root,
        entries: Vec::new(),
    };
    let descriptor = fields.descriptor(expected);
    let (errors, warnings): (Vec<_>, Vec<_>) = fields
        .entries
        .into_iter()
        .partition(|entry| entry.problem.error);
    let findings = |entries: Vec<Entry>| -> Vec<Finding> {
        entries
            .iter()
            .map(|entry| finding(entry.reason, entry.problem.at, &entry.problem.message))
            .collect()
    };
    match descriptor {
        Some(descriptor) if errors.is_empty() => Ok((descriptor, findings(warnings))),
        _ => Err(findings(errors)),
    }
}

/// How many errors a text has, and how many of them the schema could tell. For the test that holds
/// the two against each other.
#[cfg(test)]
fn judge(text: &str) -> (usize, usize) {
    let Ok(root) = json::parse(text) else {
        return (1, 1);
    };
    let mut fields = Fields {
        root: &root,
        entries: Vec::new(),
    };
    let _ = fields.descriptor(None);
    let errors = || fields.entries.iter().filter(|entry| entry.problem.error);
    (
        errors().count(),
        errors()
            .filter(|entry| !entry.problem.beyond_schema)
            .count(),
    )
}

struct Fields<'n> {
    root: &'n Node<'n>,
    entries: Vec<Entry>,
}

/// An identifier that a Python function can have.
fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 128
        && bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A relative path within the package: no part starts with a dot.
fn is_inner_path(text: &str) -> bool {
    text.len() <= 200
        && text.split('/').all(|part| {
            let mut bytes = part.bytes();
            bytes
                .next()
                .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
                && bytes.all(|b| b.is_ascii_alphanumeric() || b"_. -".contains(&b))
        })
}

fn is_uri(text: &str) -> bool {
    (1..=2048).contains(&text.chars().count()) && !text.chars().any(|c| c <= ' ' || c == '\u{7f}')
}

fn is_mime_type(text: &str) -> bool {
    (1..=255).contains(&text.chars().count()) && !text.chars().any(|c| c < ' ' || c == '\u{7f}')
}

impl Fields<'_> {
    fn push(&mut self, reason: Reason, problem: Problem) {
        self.entries.push(Entry { reason, problem });
    }

    fn error(&mut self, at: usize, message: impl Into<String>) {
        self.push(Reason::DescriptorInvalid, Problem::error(at, message));
    }

    fn warn(&mut self, reason: Reason, at: usize, message: impl Into<String>) {
        self.push(reason, Problem::unknown(at, message));
    }

    fn descriptor(&mut self, expected: Option<(PackageKind, &str)>) -> Option<Descriptor> {
        let Some(members) = self.root.members() else {
            self.error(self.root.start, "a descriptor is an object");
            return None;
        };
        let kind = self.kind(expected.map(|(kind, _)| kind));
        let name = self.name(expected.map(|(_, folder)| folder));
        // Without a kind it is not known which fields belong.
        let kind = kind?;
        for member in members {
            self.known(kind, member);
        }
        let problems = &mut Vec::new();
        let input = self.root.get("input");
        let idle = input.filter(|node| {
            kind == PackageKind::Resource
                && node.members().is_some_and(|members| !members.is_empty())
        });
        if let Some(node) = idle {
            // What is wrong inside does not matter then.
            problems.push(Problem::error(node.start, "a resource takes no parameters"));
        }
        let input = InputSchema::compile(input.filter(|_| idle.is_none()), problems);
        let output = self.output(kind, problems);
        for problem in problems.drain(..) {
            let reason = if problem.error {
                Reason::DescriptorInvalid
            } else {
                Reason::FieldUnknown
            };
            self.push(reason, problem);
        }
        if let Some(node) = self.root.get("error")
            && node.members().is_none()
        {
            self.error(node.start, "`error` must be an object");
        }
        let description = self.text("description", |_| true, "a string");
        if description
            .as_deref()
            .is_none_or(|text| text.trim().is_empty())
        {
            self.warn(
                Reason::DescriptionMissing,
                self.root.start,
                "there is no `description`; a model cannot tell what this is for",
            );
        }
        let descriptor = Descriptor {
            kind,
            name: name?,
            title: self.text("title", |_| true, "a string"),
            description,
            callable: self.callable(kind),
            input,
            output,
            annotations: self.annotations(kind),
            icons: self.icons(),
            timeout: self.timeout(kind),
            uri: self.uri(kind),
            mime_type: self.mime_type(kind),
            skill: self.skill(kind),
            settings: self.settings(kind),
        };
        Some(descriptor)
    }

    fn kind(&mut self, expected: Option<PackageKind>) -> Option<PackageKind> {
        let Some(node) = self.root.get("type") else {
            self.error(
                self.root.start,
                "`type` is missing: tool, resource or prompt",
            );
            return None;
        };
        let kind = node.as_str().and_then(PackageKind::parse);
        match (kind, expected) {
            (None, _) => {
                let message = "`type` must be tool, resource or prompt";
                self.push(Reason::TypeInvalid, Problem::error(node.start, message));
                None
            }
            (Some(kind), Some(expected)) if kind != expected => {
                let message = format!(
                    "`type` is {kind}, but the package lies under {}/",
                    expected.folder()
                );
                self.push(Reason::TypeMismatch, Problem::beyond(node.start, message));
                None
            }
            (Some(kind), _) => Some(kind),
        }
    }

    fn name(&mut self, folder: Option<&str>) -> Option<PackageName> {
        let Some(node) = self.root.get("name") else {
            self.error(self.root.start, "`name` is missing");
            return None;
        };
        let Some(text) = node.as_str() else {
            self.error(
                node.start,
                format!("`name` must be a string, not {}", node.kind()),
            );
            return None;
        };
        let name = PackageName::parse(text);
        if name.is_none() {
            let message = format!("`name` does not follow {NAME_RULE}");
            self.push(Reason::NameInvalid, Problem::error(node.start, message));
        } else if let Some(folder) = folder
            && folder != text
        {
            let message = format!("`name` is `{text}`, but the folder is `{folder}`");
            self.push(Reason::NameMismatch, Problem::beyond(node.start, message));
        }
        name
    }

    fn known(&mut self, kind: PackageKind, member: &Member<'_>) {
        let belongs = match &*member.name {
            "type" | "name" | "title" | "description" | "input" | "icons" => true,
            "callable" | "output" | "error" | "annotations" | "timeout_seconds" => {
                kind != PackageKind::Prompt
            }
            "uri" | "mime_type" => kind == PackageKind::Resource,
            "skill" | "settings" => kind == PackageKind::Prompt,
            name => name == "$schema" || name.starts_with("x-"),
        };
        if !belongs {
            let name: String = member.name.chars().take(64).collect();
            let message = format!("`{name}` means nothing in a {kind} and is ignored");
            self.warn(Reason::FieldUnknown, member.at, message);
        }
    }

    /// A string field that may be absent.
    fn text(&mut self, name: &str, fits: impl Fn(&str) -> bool, rule: &str) -> Option<String> {
        let node = self.root.get(name)?;
        let text = node.as_str().filter(|text| fits(text)).map(str::to_owned);
        if text.is_none() {
            self.error(node.start, format!("`{name}` must be {rule}"));
        }
        text
    }

    /// A string field that must be there.
    fn required(&mut self, name: &str, fits: impl Fn(&str) -> bool, rule: &str) -> String {
        if self.root.get(name).is_none() {
            self.error(self.root.start, format!("`{name}` is missing: {rule}"));
        }
        self.text(name, fits, rule).unwrap_or_default()
    }

    fn callable(&mut self, kind: PackageKind) -> String {
        if kind == PackageKind::Prompt {
            return String::new();
        }
        self.required(
            "callable",
            is_identifier,
            "the name of a function in `<name>.py`",
        )
    }

    fn uri(&mut self, kind: PackageKind) -> String {
        if kind != PackageKind::Resource {
            return String::new();
        }
        self.required(
            "uri",
            is_uri,
            "a uri of at most 2048 characters without blanks",
        )
    }

    fn mime_type(&mut self, kind: PackageKind) -> Option<String> {
        if kind != PackageKind::Resource {
            return None;
        }
        self.text("mime_type", is_mime_type, "a MIME type like text/markdown")
    }

    fn skill(&mut self, kind: PackageKind) -> String {
        if kind != PackageKind::Prompt {
            return String::new();
        }
        let rule = "a file in the package's folder, like SKILL.md";
        self.text("skill", is_inner_path, rule)
            .unwrap_or_else(|| "SKILL.md".to_owned())
    }

    fn settings(&mut self, kind: PackageKind) -> Option<String> {
        if kind != PackageKind::Prompt {
            return None;
        }
        self.text(
            "settings",
            is_inner_path,
            "a file in the package's folder, like settings.json",
        )
    }

    fn output(&mut self, kind: PackageKind, problems: &mut Vec<Problem>) -> Option<OutputSchema> {
        let node = self
            .root
            .get("output")
            .filter(|_| kind != PackageKind::Prompt)?;
        match node.members() {
            None => {
                self.error(
                    node.start,
                    "`output` must be an object like {\"type\": \"number\"}",
                );
                None
            }
            Some([]) => None,
            Some(_) => OutputSchema::compile(node, problems),
        }
    }

    fn timeout(&mut self, kind: PackageKind) -> Option<Duration> {
        let node = self
            .root
            .get("timeout_seconds")
            .filter(|_| kind != PackageKind::Prompt)?;
        let seconds = node
            .as_number()
            .and_then(|token| token.parse::<f64>().ok())
            .filter(|seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT_SECONDS);
        if seconds.is_none() {
            let message = format!(
                "`timeout_seconds` must be a number above 0 and at most {MAX_TIMEOUT_SECONDS}"
            );
            self.error(node.start, message);
        }
        seconds.map(Duration::from_secs_f64)
    }
}
