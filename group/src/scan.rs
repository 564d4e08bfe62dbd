//! Reading `mcp/`: packages that load, and findings about what does not.

mod files;
mod package;
#[cfg(test)]
mod tests;
mod walk;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::value::RawValue;

use crate::{
    ArgFaults, EnvFile, Finding, GoldenTests, Guardrails, InputSchema, OutputSchema, PackageKind,
    PackageName, Prompt, Reason, ReportPackage, Requirements, SecretFault, SecretTable,
};

/// A group repo as it lies on disk.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// The `mcp` folder.
    pub root: PathBuf,
    /// Tools that load, by name.
    pub tools: Vec<Tool>,
    /// Resources that load, by name.
    pub resources: Vec<Resource>,
    /// Prompts that load, by name.
    pub prompts: Vec<Prompt>,
    /// Every package with a folder, in the order of the report; those with errors have `ok: false`.
    pub packages: Vec<ReportPackage>,
    /// `requirements.txt`.
    pub requirements: Option<Requirements>,
    /// `env.yaml`.
    pub env: Option<EnvFile>,
    /// `tests.yaml`.
    pub tests: Option<GoldenTests>,
    /// `guardrails.yaml`.
    pub guardrails: Option<Guardrails>,
    /// The errors list.
    pub errors: Vec<Finding>,
    /// Remarks that stop nothing.
    pub warnings: Vec<Finding>,
}

/// A tool package.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Its name.
    pub name: PackageName,
    /// `tools/<name>`.
    pub dir: String,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// The function in `<name>.py`.
    pub callable: String,
    /// Its parameters.
    pub input: InputSchema,
    /// What it returns, when declared.
    pub output: Option<OutputSchema>,
    /// `annotations`.
    pub annotations: Option<Box<RawValue>>,
    /// `icons`.
    pub icons: Option<Box<RawValue>>,
    /// `timeout_seconds`.
    pub timeout: Option<Duration>,
}

/// A resource package.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its name.
    pub name: PackageName,
    /// `resources/<name>`.
    pub dir: String,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// The function in `<name>.py`, called without arguments.
    pub callable: String,
    /// The uri, as written; matched exactly.
    pub uri: String,
    /// `mime_type`, as written.
    pub mime_type: Option<String>,
    /// `annotations`.
    pub annotations: Option<Box<RawValue>>,
    /// `icons`.
    pub icons: Option<Box<RawValue>>,
    /// `timeout_seconds`.
    pub timeout: Option<Duration>,
}

/// Why a call does not reach Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFault {
    /// The arguments are wrong.
    Arguments(ArgFaults),
    /// A secret reference cannot be resolved: a result with `isError`, in both eras.
    Secret(SecretFault),
}

impl std::fmt::Display for CallFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Arguments(faults) => faults.fmt(f),
            Self::Secret(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for CallFault {}

impl Tool {
    /// All that happens to arguments before Python sees them: checked against what the caller sent,
    /// normalised, defaults filled in, then secret references resolved. Absent and `null` count as
    /// `{}`. Borrows the caller's text when nothing changes.
    pub fn prepare<'a>(
        &self,
        arguments: Option<&'a str>,
        secrets: &SecretTable,
    ) -> Result<Cow<'a, str>, CallFault> {
        let text = match arguments {
            None => "{}",
            Some(text) if text.trim_ascii() == "null" => "{}",
            Some(text) => text,
        };
        let checked = match self.input.check(text).map_err(CallFault::Arguments)? {
            None => Cow::Borrowed(text),
            Some(rewritten) => Cow::Owned(rewritten),
        };
        secrets.substitute(checked).map_err(CallFault::Secret)
    }
}

impl Group {
    /// The same group without these packages (`tools/bad`), as a [`crate::DesiredState`] wants it.
    #[must_use]
    pub fn without(mut self, exclude: &[String]) -> Self {
        let stays = |dir: &str| !exclude.iter().any(|excluded| excluded == dir);
        self.tools.retain(|tool| stays(&tool.dir));
        self.resources.retain(|resource| stays(&resource.dir));
        self.prompts.retain(|prompt| stays(&prompt.dir));
        for package in &mut self.packages {
            package.ok &= stays(&package.id());
        }
        self
    }

    /// The tool with this name.
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        let at = self
            .tools
            .binary_search_by(|tool| tool.name.as_str().cmp(name))
            .ok()?;
        self.tools.get(at)
    }

    /// The resource with exactly this uri.
    pub fn resource(&self, uri: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.uri == uri)
    }

    /// The prompt with this name.
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        let at = self
            .prompts
            .binary_search_by(|prompt| prompt.name.as_str().cmp(name))
            .ok()?;
        self.prompts.get(at)
    }

    /// Whether any package loads.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.resources.is_empty() && self.prompts.is_empty()
    }
}

/// Reads the group under `dir`: the folder that holds `mcp/`, or the `mcp` folder itself. Never
/// fails: what is wrong stands in [`Group::errors`].
pub fn scan(dir: &Path) -> Group {
    let root = match find_root(dir) {
        Ok(root) => root,
        Err(finding) => {
            return Group {
                root: dir.join("mcp"),
                errors: vec![*finding],
                ..Group::default()
            };
        }
    };
    let mut group = Group {
        root: root.clone(),
        ..Group::default()
    };
    let tree = match walk::Tree::read(&root) {
        Ok(tree) => tree,
        Err(finding) => {
            group.errors.push(finding);
            return group;
        }
    };
    group.loose_faults(&tree);
    for kind in PackageKind::ALL {
        let folders = tree.packages(kind);
        group.twins(kind, &folders);
        for folder in folders {
            package::load(&mut group, &tree, kind, folder);
        }
    }
    group.refuse_same_uris();
    group.tools.sort_by(|a, b| a.name.cmp(&b.name));
    group.resources.sort_by(|a, b| a.name.cmp(&b.name));
    group.prompts.sort_by(|a, b| a.name.cmp(&b.name));
    files::load(&mut group, &tree);
    if group.packages.is_empty() {
        let message = "there is no package under mcp/tools, mcp/resources or mcp/prompts";
        group
            .errors
            .push(Finding::group(Reason::NothingToServe, message));
    }
    group
}

fn find_root(dir: &Path) -> Result<PathBuf, Box<Finding>> {
    let inner = dir.join("mcp");
    match fs::symlink_metadata(&inner) {
        Ok(meta) if meta.is_dir() => return Ok(inner),
        Ok(meta) if meta.is_symlink() => {
            let finding = Finding::group(Reason::SymlinkRefused, "`mcp` is a symbolic link");
            return Err(Box::new(finding.at_path("mcp")));
        }
        _ => {}
    }
    let named = dir.file_name().is_some_and(|name| name == "mcp");
    let holds = PackageKind::ALL
        .iter()
        .any(|kind| dir.join(kind.folder()).is_dir());
    if (named || holds) && dir.is_dir() {
        return Ok(dir.to_owned());
    }
    let message = "there is no `mcp` folder here";
    Err(Box::new(Finding::group(Reason::McpFolderMissing, message)))
}

impl Group {
    /// Entries about what lies outside the packages.
    fn loose_faults(&mut self, tree: &walk::Tree) {
        for fault in tree.loose_faults() {
            self.errors.push(
                Finding::group(fault.reason, fault.message.clone()).at_path(fault.mcp_path()),
            );
        }
        for (path, message) in tree.ignored() {
            let finding = Finding::group(Reason::LayoutIgnored, message);
            self.warnings.push(finding.at_path(format!("mcp/{path}")));
        }
    }

    fn twins(&mut self, kind: PackageKind, folders: &[&str]) {
        for (n, folder) in folders.iter().enumerate() {
            let lower = folder.to_lowercase();
            if let Some(twin) = folders[..n]
                .iter()
                .find(|other| other.to_lowercase() == lower)
            {
                let id = format!("{}/{folder}", kind.folder());
                let message = format!("differs from {}/{twin} only in case", kind.folder());
                let path = format!("mcp/{id}");
                self.warnings
                    .push(Finding::package(id, Reason::CaseTwins, message).at_path(path));
            }
        }
    }

    /// Two resources with one uri: each gets an entry that names both, none is served.
    fn refuse_same_uris(&mut self) {
        let mut refused = Vec::new();
        for resource in &self.resources {
            let others: Vec<&str> = self
                .resources
                .iter()
                .filter(|other| other.uri == resource.uri && other.dir != resource.dir)
                .map(|other| &*other.dir)
                .collect();
            if !others.is_empty() {
                let uri: String = resource.uri.chars().take(200).collect();
                let message = format!(
                    "{} and {} have the uri `{uri}`",
                    resource.dir,
                    others.join(", ")
                );
                let path = format!("mcp/{}/{}.json", resource.dir, resource.name);
                refused.push(
                    Finding::package(&*resource.dir, Reason::UriDuplicate, message).at_path(path),
                );
            }
        }
        let ids: Vec<String> = refused.iter().filter_map(|f| f.package.clone()).collect();
        self.errors.append(&mut refused);
        *self = std::mem::take(self).without(&ids);
    }
}
