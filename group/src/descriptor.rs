//! `<name>.json`: one descriptor.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::{Finding, InputSchema, OutputSchema, PackageKind};

/// A descriptor that passed all checks that need nothing but its own text.
#[derive(Debug, Clone)]
pub struct Descriptor {
    /// `type`.
    pub kind: PackageKind,
    /// `name`, as written.
    pub name: String,
    /// `title`.
    pub title: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `callable` (tools and resources).
    pub callable: Option<String>,
    /// `input`.
    pub input: InputSchema,
    /// `output` (tools).
    pub output: Option<OutputSchema>,
    /// `annotations`, checked and passed through.
    pub annotations: Option<Box<RawValue>>,
    /// `icons`, checked and passed through.
    pub icons: Option<Box<RawValue>>,
    /// `timeout_seconds`.
    pub timeout: Option<Duration>,
    /// `uri` (resources).
    pub uri: Option<String>,
    /// `mime_type` (resources).
    pub mime_type: Option<String>,
    /// `skill` (prompts), `SKILL.md` when absent.
    pub skill: String,
    /// `settings` (prompts), as written.
    pub settings: Option<String>,
}

/// Checks one descriptor against everything that `proto.schema.json` says: `expected` is the kind
/// of the folder it lies in. Errors come first in `Err`; warnings come with the descriptor.
/// Findings carry line and column, not yet package and path.
pub fn parse_descriptor(
    text: &[u8],
    expected: Option<PackageKind>,
) -> Result<(Descriptor, Vec<Finding>), Vec<Finding>> {
    let _ = (text, expected);
    todo!()
}
