//! Secret references: `{{$group.NAME}}` in a string argument becomes the value of
//! `RAMEN_SECRET_<GROUP>__<NAME>`, in one pass.

use std::borrow::Cow;

use crate::Checked;

/// A reference that cannot be resolved. The message names the reference and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown secret reference {reference}")]
pub struct SecretFault {
    /// As written: `{{$other.NAME}}`.
    pub reference: String,
}

/// The secrets of one group, by upper-cased name.
#[derive(Clone, Default)]
pub struct SecretTable {}

/// The environment name of a secret: `RAMEN_SECRET_<GROUP>__<NAME>`, upper case, `-` and `.` as `_`.
pub fn env_name(group: &str, name: &str) -> String {
    let _ = (group, name);
    todo!()
}

impl SecretTable {
    /// Takes the variables of this group out of `vars` (usually the process environment). One line
    /// break at the end of a value is dropped, with a warning.
    pub fn from_env(group: &str, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let _ = (group, vars.into_iter());
        todo!()
    }

    /// The variables with their values, for the hosts' environment and for the redactor.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::empty()
    }

    /// Names of variables whose value ended in a line break.
    pub fn trimmed(&self) -> &[String] {
        &[]
    }

    /// Resolves the references in one text (for `env.yaml`).
    pub fn resolve<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, SecretFault> {
        Ok(Cow::Borrowed(text))
    }

    /// Resolves the references in every string value of checked arguments; keys are left alone.
    pub fn substitute<'a>(&self, arguments: Checked<'a>) -> Result<Cow<'a, [u8]>, SecretFault> {
        Ok(arguments.json)
    }
}
