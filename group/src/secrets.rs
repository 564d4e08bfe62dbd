//! Secret references: `{{$group.NAME}}` in a string argument becomes the value of
//! `RAMEN_SECRET_<GROUP>__<NAME>`, in one pass: what a value brings is not looked at again.
//!
//! A reference is `{{$`, a group, a dot, a name, `}}`, without blanks; group and name are made of
//! letters, digits, `_`, `-` and `.`. Anything else (`{{ $g.X }}`, `{{$x}}`) is text. A reference to
//! another group or to a secret that is not there is an error that names the reference alone.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use ramen_redact::Secret;

use crate::json::{self, Kind, Reader, Text};

/// What every secret's variable starts with.
pub const ENV_PREFIX: &str = "RAMEN_SECRET_";

/// Longest part of a reference that a message quotes.
const MAX_QUOTED: usize = 160;

/// A reference that cannot be resolved. The message names the reference and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown secret reference {reference}")]
pub struct SecretFault {
    /// As written: `{{$other.NAME}}`.
    pub reference: String,
}

/// The secrets of one group. Prints names only.
#[derive(Clone, Default)]
pub struct SecretTable {
    group: String,
    /// Upper-cased name → variable and value.
    values: BTreeMap<String, (String, Secret)>,
    trimmed: Vec<String>,
}

/// A part of a variable's name: upper case, `-` and `.` as `_`.
fn env_part(text: &str) -> String {
    text.chars()
        .map(|c| {
            if matches!(c, '-' | '.') {
                '_'
            } else {
                c.to_ascii_uppercase()
            }
        })
        .collect()
}

/// The variable that holds a secret: `RAMEN_SECRET_<GROUP>__<NAME>`.
pub fn env_name(group: &str, name: &str) -> String {
    format!("{ENV_PREFIX}{}__{}", env_part(group), env_part(name))
}

/// Whether a key of a Secret can be a secret's name: letters, digits, `_`, `-` and `.`.
pub fn is_secret_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 128 && name.bytes().all(is_name_byte)
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
}

impl SecretTable {
    /// Takes the variables of this group out of `vars` (usually the process environment). One line
    /// break at the end of a value is dropped: files and `kubectl create secret --from-file` leave
    /// it there, and no header takes it. [`SecretTable::trimmed`] names those variables.
    pub fn from_env(group: &str, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let prefix = env_name(group, "");
        let mut table = Self {
            group: group.to_owned(),
            ..Self::default()
        };
        for (variable, value) in vars {
            let Some(name) = variable
                .strip_prefix(&prefix)
                .filter(|name| !name.is_empty())
            else {
                continue;
            };
            let kept = value
                .strip_suffix('\n')
                .map_or(&*value, |v| v.strip_suffix('\r').unwrap_or(v));
            if kept.len() != value.len() {
                table.trimmed.push(variable.clone());
            }
            table
                .values
                .insert(env_part(name), (variable.clone(), Secret::from(kept)));
        }
        table
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The variables with their values, for the hosts' environment and for the redactor.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .values()
            .map(|(variable, value)| (&**variable, value.expose().as_str()))
    }

    /// Names of variables whose value ended in a line break.
    pub fn trimmed(&self) -> &[String] {
        &self.trimmed
    }

    /// Whether the group has no secrets.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn lookup(&self, reference: &Reference<'_>) -> Result<&str, SecretFault> {
        let path = reference.path;
        path.strip_prefix(&*self.group)
            .and_then(|rest| rest.strip_prefix('.'))
            .and_then(|name| self.values.get(&env_part(name)))
            .map(|(_, value)| value.expose().as_str())
            .ok_or_else(|| SecretFault {
                reference: format!("{{{{${}}}}}", path.get(..MAX_QUOTED).unwrap_or(path)),
            })
    }

    /// Resolves the references in one text.
    pub fn resolve<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, SecretFault> {
        let Some(mut reference) = Reference::find(text, 0) else {
            return Ok(Cow::Borrowed(text));
        };
        let mut out = String::with_capacity(text.len() + 64);
        let mut from = 0;
        loop {
            out.push_str(&text[from..reference.start]);
            out.push_str(self.lookup(&reference)?);
            from = reference.end;
            match Reference::find(text, from) {
                Some(next) => reference = next,
                None => break,
            }
        }
        out.push_str(&text[from..]);
        Ok(Cow::Owned(out))
    }

    /// Resolves the references in every string value of a JSON text that was checked before; names
    /// of members are left alone.
    pub fn substitute<'a>(&self, json: Cow<'a, str>) -> Result<Cow<'a, str>, SecretFault> {
        // `{`, `$` and `}` can hide behind `\u00..`.
        if !json.contains("{{$") && !json.contains("\\u00") {
            return Ok(json);
        }
        let mut pass = Pass {
            table: self,
            out: String::new(),
            from: 0,
            fault: None,
        };
        let mut reader = Reader::new(&json);
        // Bad JSON cannot get here; if it did, it would be passed on untouched.
        let walked = pass.value(&mut reader);
        if let Some(fault) = pass.fault {
            return Err(fault);
        }
        if walked.is_err() || pass.from == 0 {
            return Ok(json);
        }
        let mut out = pass.out;
        out.push_str(&json[pass.from..]);
        Ok(Cow::Owned(out))
    }
}

impl fmt::Debug for SecretTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.values.values().map(|(variable, _)| variable).collect();
        f.debug_struct("SecretTable")
            .field("group", &self.group)
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

struct Reference<'a> {
    start: usize,
    end: usize,
    /// `group.NAME`
    path: &'a str,
}

impl<'a> Reference<'a> {
    fn find(text: &'a str, from: usize) -> Option<Self> {
        let mut from = from;
        loop {
            let start = from + text.get(from..)?.find("{{$")?;
            let rest = &text[start + 3..];
            let length = rest.bytes().take_while(|b| is_name_byte(*b)).count();
            let path = &rest[..length];
            // `{{$.x}}` and `{{$x}}` are not ours.
            let dotted = path.find('.').is_some_and(|dot| dot > 0);
            if dotted && rest[length..].starts_with("}}") {
                return Some(Self {
                    start,
                    end: start + 3 + length + 2,
                    path,
                });
            }
            from = start + 1;
        }
    }
}

struct Pass<'t> {
    table: &'t SecretTable,
    out: String,
    from: usize,
    fault: Option<SecretFault>,
}

impl Pass<'_> {
    fn value(&mut self, reader: &mut Reader<'_>) -> Result<(), json::Fault> {
        match reader.peek()? {
            Kind::String => {
                let start = reader.pos();
                let text = reader.string()?;
                self.string(text, start, reader);
                Ok(())
            }
            Kind::Array => {
                let mut more = reader.open()?;
                while more {
                    self.value(reader)?;
                    more = reader.next(b']')?;
                }
                Ok(())
            }
            Kind::Object => {
                let mut more = reader.open()?;
                while more {
                    reader.key()?;
                    self.value(reader)?;
                    more = reader.next(b'}')?;
                }
                Ok(())
            }
            Kind::Null | Kind::Bool => reader.word().map(drop),
            Kind::Number => reader.number().map(drop),
        }
    }

    fn string(&mut self, text: Text<'_>, start: usize, reader: &Reader<'_>) {
        let decoded = text.decode();
        match self.table.resolve(&decoded) {
            Ok(Cow::Borrowed(_)) => {}
            Ok(Cow::Owned(resolved)) => {
                self.out.push_str(reader.slice(self.from, start));
                json::quote_into(&mut self.out, &resolved);
                self.from = reader.pos();
            }
            Err(fault) => self.fault = self.fault.take().or(Some(fault)),
        }
    }
}

#[cfg(test)]
mod tests;
