//! `upstreams`: other MCP servers, and their values out of Secrets.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use ramen_redact::{SafeUrl, Secret};

use super::{Faults, SecretName};
use crate::{UpstreamSpec, UpstreamValue};

/// Most upstreams of one group.
const MAX: usize = 16;
/// How long a request may take when nothing is said.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Headers that a connection needs for itself, or that would make it another one.
const KEPT: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Another MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Its name, and the beginning of the names of its tools.
    pub name: UpstreamName,
    /// How it is reached.
    pub reach: Reach,
    /// How long a request may take.
    pub timeout: Duration,
    /// Which tools are offered, with `*` for a rest; all when empty.
    pub allowed_tools: Vec<String>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// Streamable HTTP.
    Http {
        /// The endpoint.
        url: SafeUrl,
        /// Sent with each request.
        headers: Settings,
    },
    /// A program.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its variables.
        env: Settings,
    },
}

/// Headers or variables by name, their values not looked up yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(Vec<(String, Given)>);

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq)]
enum Given {
    Text(String),
    Secret {
        secret: SecretName,
        key: String,
        prefix: String,
    },
}

/// The name of an upstream. It has no `_`, so that the first `_` of a tool's name ends it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamName(String);

impl UpstreamName {
    /// Parses a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let good = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !good || text.len() > 32 || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(
                "an upstream's name is a small letter, then small letters, digits and `-`, at most 32 in all"
                    .to_owned(),
            );
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Settings {
    /// The Secrets that values come from.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.0.iter().filter_map(|(_, given)| match given {
            Given::Text(_) => None,
            Given::Secret { secret, .. } => Some(secret),
        })
    }

    /// The values, those of Secrets looked up by Secret and key. The error names what is missing, and no value.
    pub fn resolve<'s>(
        &self,
        look_up: impl Fn(&SecretName, &str) -> Option<&'s [u8]>,
    ) -> Result<BTreeMap<String, Secret>, String> {
        let value = |name: &str, given: &Given| {
            let (secret, key, prefix) = match given {
                Given::Text(text) => return Ok(text.clone()),
                Given::Secret {
                    secret,
                    key,
                    prefix,
                } => (secret, key, prefix),
            };
            let from = format!("{name}: the key {key} of the Secret {secret}");
            let bytes = look_up(secret, key).ok_or_else(|| format!("{from} is not there"))?;
            let text = std::str::from_utf8(bytes).map_err(|_| format!("{from} is no text"))?;
            // Files that were made by hand end in a newline.
            let text = text.trim_end_matches(['\n', '\r']);
            if text.is_empty() {
                return Err(format!("{from} is empty"));
            }
            if text.chars().any(char::is_control) {
                return Err(format!("{from} has a control character in it"));
            }
            Ok(format!("{prefix}{text}"))
        };
        self.0
            .iter()
            .map(|(name, given)| Ok((name.clone(), Secret::from(value(name, given)?))))
            .collect()
    }
}

impl Upstream {
    /// The Secrets that it needs.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        match &self.reach {
            Reach::Http { headers, .. } => headers.secrets(),
            Reach::Command { env, .. } => env.secrets(),
        }
    }
}

pub(super) fn build(all: &[UpstreamSpec], faults: &mut Faults) -> Vec<Upstream> {
    let mut seen = HashSet::new();
    if all.len() > MAX {
        faults.push("spec.upstreams", format!("has more than {MAX} entries"));
    }
    all.iter()
        .enumerate()
        .filter_map(|(n, spec)| {
            let field = format!("spec.upstreams[{n}]");
            if !seen.insert(&spec.name) {
                faults.push(&format!("{field}.name"), "two upstreams have the same name");
            }
            one(&field, spec, faults)
        })
        .collect()
}

fn one(field: &str, spec: &UpstreamSpec, faults: &mut Faults) -> Option<Upstream> {
    let UpstreamSpec {
        name,
        url,
        headers,
        command,
        args,
        env,
        timeout,
        allowed_tools,
    } = spec;
    let name = faults.parse(&format!("{field}.name"), name, UpstreamName::parse);
    let headers = settings(&format!("{field}.headers"), headers, header, faults);
    let env = settings(&format!("{field}.env"), env, variable, faults);
    let timeout = faults.duration(
        &format!("{field}.timeout"),
        timeout.as_deref(),
        ("1s", "10m"),
        TIMEOUT,
    );
    for (n, pattern) in allowed_tools.iter().enumerate() {
        let rest = pattern.strip_suffix('*').unwrap_or(pattern);
        if pattern.is_empty() || rest.contains('*') {
            let field = format!("{field}.allowedTools[{n}]");
            faults.push(&field, "must be a tool's name, with `*` only at its end");
        }
    }
    let reach = match (url, command) {
        (Some(url), None) => {
            if !args.is_empty() || env != Settings::default() {
                faults.push(field, "args and env go with a command, not with a url");
            }
            let url = faults.parse(&format!("{field}.url"), url, endpoint)?;
            Reach::Http { url, headers }
        }
        (None, Some(command)) => {
            if headers != Settings::default() {
                faults.push(field, "headers go with a url, not with a command");
            }
            if command.trim().is_empty() || command.contains('\0') {
                faults.push(&format!("{field}.command"), "must name a program");
            }
            Reach::Command {
                command: command.clone(),
                args: args.clone(),
                env,
            }
        }
        _ => {
            faults.push(field, "needs either a url or a command, not both");
            return None;
        }
    };
    Some(Upstream {
        name: name?,
        reach,
        timeout,
        allowed_tools: allowed_tools.clone(),
    })
}

fn endpoint(text: &str) -> Result<SafeUrl, String> {
    let url = SafeUrl::parse(text).map_err(|error| format!("is no url: {error}"))?;
    let parsed = url.expose();
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err("must begin with https:// or http:// and name a host".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(
            "credentials do not belong in the url; put them in a Secret and name it in headers"
                .to_owned(),
        );
    }
    if parsed.fragment().is_some() {
        return Err("must not have a fragment (`#…`)".to_owned());
    }
    Ok(url)
}

fn settings(
    field: &str,
    values: &[UpstreamValue],
    named: impl Fn(&str) -> Result<(), String>,
    faults: &mut Faults,
) -> Settings {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (n, given) in values.iter().enumerate() {
        let UpstreamValue {
            name,
            value,
            secret_ref,
        } = given;
        let field = format!("{field}[{n}]");
        if let Err(why) = named(name) {
            faults.push(&format!("{field}.name"), why);
        } else if !seen.insert(name.to_ascii_lowercase()) {
            faults.push(&format!("{field}.name"), "is there twice");
        }
        let given = match (value, secret_ref) {
            (Some(text), None) => {
                if text.chars().any(char::is_control) {
                    let field = format!("{field}.value");
                    faults.push(&field, "has a control character in it");
                }
                Given::Text(text.clone())
            }
            (None, Some(reference)) => {
                let field = format!("{field}.secretRef");
                let secret =
                    faults.parse(&format!("{field}.name"), &reference.name, SecretName::parse);
                if reference.key.is_empty() {
                    faults.push(&format!("{field}.key"), "must name a key of the Secret");
                }
                let prefix = reference.prefix.clone().unwrap_or_default();
                if prefix.chars().any(char::is_control) {
                    let field = format!("{field}.prefix");
                    faults.push(&field, "has a control character in it");
                }
                let Some(secret) = secret else { continue };
                Given::Secret {
                    secret,
                    key: reference.key.clone(),
                    prefix,
                }
            }
            _ => {
                faults.push(&field, "needs either a value or a secretRef");
                continue;
            }
        };
        out.push((name.clone(), given));
    }
    Settings(out)
}

fn header(name: &str) -> Result<(), String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("is no name of a header".to_owned());
    }
    let name = name.to_ascii_lowercase();
    if KEPT.contains(&name.as_str()) || name.starts_with("mcp-") {
        return Err("is a header that the connection sets itself".to_owned());
    }
    Ok(())
}

fn variable(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("is no name of a variable".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
