//! `mcp/env.yaml`: environment of the group's code.

use crate::{Finding, SecretTable};

/// The file, parsed: keys with values in which secret references are not yet resolved.
#[derive(Debug, Clone, Default)]
pub struct EnvFile {
    /// In the order of the file.
    pub entries: Vec<(String, String)>,
}

/// [`EnvFile`] with the references resolved. Hold it no longer than needed: it has secrets.
#[derive(Default)]
pub struct ResolvedEnv {
    /// What to export.
    pub vars: Vec<(String, String)>,
    /// One entry ([`crate::Reason::EnvSkipped`]) for each key left out.
    pub warnings: Vec<Finding>,
}

impl EnvFile {
    /// Resolves `{{$group.NAME}}`; a key with a reference that has no secret behind it is skipped
    /// with a warning, the rest still applies.
    pub fn resolve(&self, secrets: &SecretTable) -> ResolvedEnv {
        let _ = secrets;
        todo!()
    }
}
