//! What a deploy step says about a revision: [`Report`] with its [`Finding`]s, and the
//! [`DesiredState`] that tells a worker what to serve.

mod fitting;

use serde::{Deserialize, Serialize};

pub use self::fitting::shorten;
use crate::Reason;

/// The three kinds of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageKind {
    /// A function that a model calls.
    Tool,
    /// A text or blob under a uri.
    Resource,
    /// A `SKILL.md` template.
    Prompt,
}

impl PackageKind {
    /// All kinds, in the order of the contract.
    pub const ALL: [Self; 3] = [Self::Tool, Self::Resource, Self::Prompt];

    /// The folder under `mcp/` (`tools`, `resources`, `prompts`).
    pub fn folder(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Resource => "resources",
            Self::Prompt => "prompts",
        }
    }

    /// The word in `type` (`tool`, `resource`, `prompt`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
        }
    }

    /// The kind that `type` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl std::fmt::Display for PackageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One entry of the errors or the warnings list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `tools/calc`; absent when the entry is about the group as a whole.
    #[serde(default)]
    pub package: Option<String>,
    /// Why.
    pub reason: Reason,
    /// One sentence for a person.
    pub message: String,
    /// The file, from the folder that holds `mcp/` (`mcp/tools/calc/calc.json`).
    #[serde(default)]
    pub path: Option<String>,
    /// Line, from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// Column in characters, from 1.
    #[serde(default)]
    pub column: Option<u32>,
}

impl Finding {
    /// An entry about the group as a whole.
    pub fn group(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            package: None,
            reason,
            message: message.into(),
            path: None,
            line: None,
            column: None,
        }
    }

    /// An entry about one package (`tools/calc`).
    pub fn package(package: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            package: Some(package.into()),
            ..Self::group(reason, message)
        }
    }

    /// The same entry with the file it is about.
    #[must_use]
    pub fn at_path(self, path: impl Into<String>) -> Self {
        Self {
            path: Some(path.into()),
            ..self
        }
    }

    /// The same entry with a place in its file.
    #[must_use]
    pub fn at(self, line: u32, column: u32) -> Self {
        Self {
            line: Some(line),
            column: Some(column),
            ..self
        }
    }
}

impl std::fmt::Display for Finding {
    /// `mcp/tools/calc/calc.json:3:5: NameMismatch: message`, as compilers write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = self.path.as_ref().or(self.package.as_ref()) {
            f.write_str(place)?;
            if self.path.is_some()
                && let Some(line) = self.line
            {
                write!(f, ":{line}")?;
                if let Some(column) = self.column {
                    write!(f, ":{column}")?;
                }
            }
            f.write_str(": ")?;
        }
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// A layer in the artifact store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerRef {
    /// What the layer was made from: the git tree id, or the hash of lock, Python and platform.
    pub key: String,
    /// `sha256:<hex>` of the archive.
    pub digest: String,
    /// Bytes of the archive.
    pub size: u64,
}

/// What a worker shall serve: the content of the file `RAMEN_DESIRED` and of `Admin/Reload`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredState {
    /// Shown to people: `main@sha1:…`.
    pub revision: String,
    /// The code layer (`mcp/` as in git).
    pub code: LayerRef,
    /// The installed requirements; absent when there are none.
    #[serde(default)]
    pub deps: Option<LayerRef>,
    /// The Python version, `3.11`.
    pub python: String,
    /// Packages to leave out (`tools/bad`): those with an entry in the errors list.
    #[serde(default)]
    pub exclude: Vec<String>,
}

impl DesiredState {
    /// The version that clients are told. They take an empty one for none, so code that was deployed without a revision is told by its
    /// content.
    pub fn version(&self) -> &str {
        match self.revision.as_str() {
            "" => &self.code.key,
            revision => revision,
        }
    }

    /// Whether a worker loads the same for both, so that only what people are told differs.
    pub fn loads_like(&self, other: &Self) -> bool {
        // Without `..`: a field that is added is judged here.
        let Self {
            revision: _,
            code,
            deps,
            python,
            exclude,
        } = self;
        (code, deps, python, exclude) == (&other.code, &other.deps, &other.python, &other.exclude)
    }
}

/// A package in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportPackage {
    /// Its kind.
    pub kind: PackageKind,
    /// Its name.
    pub name: String,
    /// Its description, if it has one.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether it is served.
    pub ok: bool,
    /// A resource's uri.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
}

impl ReportPackage {
    /// `tools/calc`, as findings name packages.
    pub fn id(&self) -> String {
        format!("{}/{}", self.kind.folder(), self.name)
    }
}

/// How many golden calls passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Golden {
    /// Calls that gave what they should.
    pub passed: u32,
    /// Calls that did not.
    pub failed: u32,
}

/// Milliseconds spent in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timings {
    /// Fetching, when the fetch was part of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_ms: Option<u64>,
    /// Resolving the requirements.
    pub resolve_ms: u64,
    /// Installing and packing them.
    pub install_ms: u64,
    /// Importing and checking the packages.
    pub import_ms: u64,
    /// Golden calls.
    pub tests_ms: u64,
    /// The whole step.
    pub total_ms: u64,
}

/// How a deploy step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// No errors.
    Ok,
    /// Errors, and at least one package serves.
    Partial,
    /// Nothing to serve, or requirements or golden calls failed: never replaces a serving revision.
    Failed,
}

impl Outcome {
    /// The outcome that a list of packages and errors amounts to. Entries of the reasons in
    /// [`Outcome::is_fatal`] fail the whole revision.
    pub fn of(packages: &[ReportPackage], errors: &[Finding]) -> Self {
        let serves = packages.iter().any(|package| package.ok);
        if !serves || errors.iter().any(|error| Self::is_fatal(error.reason)) {
            Self::Failed
        } else if errors.is_empty() {
            Self::Ok
        } else {
            Self::Partial
        }
    }

    /// Whether an entry with this reason fails the revision as a whole: everything about
    /// requirements, golden calls and the tree; not what is wrong with one package alone.
    pub fn is_fatal(reason: Reason) -> bool {
        use crate::Stage;
        match reason {
            Reason::GoldenFailed
            | Reason::TestsInvalid
            | Reason::NothingToServe
            | Reason::Internal
            | Reason::McpFolderMissing
            | Reason::TreeTooLarge => true,
            reason => reason.stage() == Stage::Requirements,
        }
    }
}

/// `report.json`: all that a deploy step found out about one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The revision, as given.
    #[serde(default)]
    pub revision: Option<String>,
    /// The git tree id, or the hash of the folder.
    #[serde(default)]
    pub tree: Option<String>,
    /// The Python version, `3.11`.
    #[serde(default)]
    pub python: Option<String>,
    /// The group's name.
    #[serde(default)]
    pub group: Option<String>,
    /// The code layer.
    #[serde(default)]
    pub code: Option<LayerRef>,
    /// The layer of installed requirements.
    #[serde(default)]
    pub deps: Option<LayerRef>,
    /// Every package that has a folder, served or not.
    #[serde(default)]
    pub packages: Vec<ReportPackage>,
    /// The errors list.
    #[serde(default)]
    pub errors: Vec<Finding>,
    /// How many entries that list has in all, where some were left out on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_total: Option<u32>,
    /// Remarks that stop nothing.
    #[serde(default)]
    pub warnings: Vec<Finding>,
    /// The resolved requirements with hashes.
    #[serde(default)]
    pub lock: Option<String>,
    /// The key of the deps layer that the lock leads to.
    #[serde(default)]
    pub lock_key: Option<String>,
    /// Golden calls.
    #[serde(default)]
    pub golden: Golden,
    /// Where the time went.
    #[serde(default)]
    pub timings: Timings,
    /// Output of installs and imports: bounded and redacted.
    #[serde(default)]
    pub log: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl Report {
    /// The packages that must be left out when this revision is served.
    pub fn exclude(&self) -> Vec<String> {
        self.packages
            .iter()
            .filter(|p| !p.ok)
            .map(ReportPackage::id)
            .collect()
    }

    /// What a worker needs to serve this revision; absent when it failed or has no code layer.
    pub fn desired_state(&self) -> Option<DesiredState> {
        if self.outcome == Outcome::Failed {
            return None;
        }
        Some(DesiredState {
            revision: self.revision.clone().unwrap_or_default(),
            code: self.code.clone()?,
            deps: self.deps.clone(),
            python: self.python.clone()?,
            exclude: self.exclude(),
        })
    }
}

#[cfg(test)]
mod tests;
