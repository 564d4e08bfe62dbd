//! Reading `mcp/`: packages that load, and findings about what does not.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::value::RawValue;

use crate::{
    ArgFaults, EnvFile, Finding, GoldenTests, Guardrails, InputSchema, OutputSchema, PackageName,
    Prompt, ReportPackage, Requirements, SecretFault, SecretTable,
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

impl Tool {
    /// All that happens to arguments before Python sees them: checked, normalised, defaults filled
    /// in, secret references resolved. Borrows the caller's bytes when nothing changes.
    pub fn prepare<'a>(
        &self,
        arguments: Option<&'a [u8]>,
        secrets: &SecretTable,
    ) -> Result<Cow<'a, [u8]>, CallFault> {
        let checked = self.input.check(arguments).map_err(CallFault::Arguments)?;
        secrets.substitute(checked).map_err(CallFault::Secret)
    }
}

impl Group {
    /// The same group without these packages (`tools/bad`), as a [`crate::DesiredState`] wants it.
    #[must_use]
    pub fn without(self, exclude: &[String]) -> Self {
        let _ = exclude;
        todo!()
    }

    /// The tool with this name (binary search).
    pub fn tool(&self, name: &str) -> Option<&Tool> {
        let _ = name;
        todo!()
    }

    /// The resource with exactly this uri.
    pub fn resource(&self, uri: &str) -> Option<&Resource> {
        let _ = uri;
        todo!()
    }

    /// The prompt with this name.
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        let _ = name;
        todo!()
    }
}

/// Reads the group under `dir`: the folder that holds `mcp/`, or the `mcp` folder itself. Never
/// fails: what is wrong stands in [`Group::errors`].
pub fn scan(dir: &Path) -> Group {
    let _ = dir;
    todo!()
}
