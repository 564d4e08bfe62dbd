//! From a spec as written to a group of newtypes; pure. All faults are returned, each with its field.

mod git;
mod group;
#[cfg(test)]
mod tests;
mod text;
mod upstream;

use std::fmt;
use std::time::Duration;

use ramen_group::CidrSet;

pub use git::{GitUrl, RefSpec, Scheme, UrlPolicy};
pub use group::{Egress, Replicas, Rollout, Source, ValidatedGroup, Worker, Zone};
pub use text::{GroupName, InnerPath, Interval, PythonVersion, SecretName, ZoneName};
pub use upstream::{Reach, Settings, Upstream, UpstreamName};

use crate::{LocalRef, McpGroup};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecFault {
    /// `spec.source.url`.
    pub field: String,
    /// In words.
    pub message: String,
}

impl SpecFault {
    /// A fault.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for SpecFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for SpecFault {}

/// Validates a group for a cluster: repositories are remote ones.
pub fn validate(group: &McpGroup) -> Result<ValidatedGroup, Vec<SpecFault>> {
    validate_with(group, UrlPolicy::Remote)
}

/// Validates a group, with a say in which repositories are allowed (`ramen up` takes local ones too).
pub fn validate_with(group: &McpGroup, urls: UrlPolicy) -> Result<ValidatedGroup, Vec<SpecFault>> {
    let mut faults = Faults(Vec::new());
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let name = faults.parse("metadata.name", name, GroupName::parse);
    let validated = ValidatedGroup::build(name, &group.spec, urls, &mut faults);
    match validated {
        Some(validated) if faults.0.is_empty() => Ok(validated),
        _ => Err(faults.0),
    }
}

/// The faults found so far.
struct Faults(Vec<SpecFault>);

impl Faults {
    fn push(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(SpecFault::new(field, message));
    }

    fn parse<T>(
        &mut self,
        field: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.push(field, message);
                None
            }
        }
    }

    fn secret(&mut self, field: &str, reference: Option<&LocalRef>) -> Option<SecretName> {
        self.parse(
            &format!("{field}.name"),
            &reference?.name,
            SecretName::parse,
        )
    }

    fn within<T: PartialOrd + fmt::Display + Copy>(
        &mut self,
        field: &str,
        value: Option<T>,
        (min, max): (T, T),
        default: T,
    ) -> T {
        match value {
            None => default,
            Some(value) if value >= min && value <= max => value,
            Some(_) => {
                self.push(field, format!("must be from {min} to {max}"));
                default
            }
        }
    }

    fn duration(
        &mut self,
        field: &str,
        text: Option<&str>,
        (min, max): (&str, &str),
        default: Duration,
    ) -> Duration {
        let Some(text) = text else {
            return default;
        };
        let parsed = Interval::parse(text).and_then(|interval| {
            let bound = |text: &str| Interval::parse(text).map(Interval::duration);
            if interval.duration() < bound(min)? || interval.duration() > bound(max)? {
                return Err(format!("must be from {min} to {max}"));
            }
            Ok(interval.duration())
        });
        match parsed {
            Ok(duration) => duration,
            Err(message) => {
                self.push(field, message);
                default
            }
        }
    }

    fn cidrs(&mut self, field: &str, texts: &[String]) -> CidrSet {
        let mut ranges = Vec::new();
        for (n, text) in texts.iter().enumerate() {
            match text.trim().parse() {
                Ok(range) => ranges.push(range),
                Err(fault) => {
                    let fault: ramen_group::CidrError = fault;
                    self.push(&format!("{field}[{n}]"), fault.to_string());
                }
            }
        }
        ranges.into_iter().collect()
    }
}
