//! One entry of an `mcpServers` map.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ramen_redact::{SafeUrl, Secret};
use serde_json::{Map, Value};

use super::expand::{Lookup, expand};
use super::{ServerConfig, Transport};
use crate::handshake::EraChoice;

/// Fields of other programs that say nothing about the connection.
const FOREIGN: &[&str] = &[
    "$schema",
    "alwaysAllow",
    "alwaysLoad",
    "autoApprove",
    "autoStart",
    "description",
    "dev",
    "disabledTools",
    "displayName",
    "excludeTools",
    "gallery",
    "icon",
    "includeTools",
    "metadata",
    "name",
    "note",
    "sandbox",
    "sandboxEnabled",
    "source",
    "title",
    "tools",
    "trust",
    "version",
    "watchPaths",
];

/// Fields of other programs that say how to be let in, and are not done here; with what can be done instead.
const LET_IN: &[(&str, &str)] = &[
    (
        "auth",
        "take it out for a sign-in without a client of your own, or start `ramen bridge URL --client-id ID`",
    ),
    (
        "headersHelper",
        "put the header into `headers`, its value from a variable: \"Bearer ${TOKEN}\"",
    ),
    (
        "oauth",
        "take it out for a sign-in without a client of your own, or start `ramen bridge URL --client-id ID`",
    ),
];

/// Reads one entry; `lookup` gives the variables of `${..}`. The error says what is wrong, without a value.
pub fn from_json(
    entry: &Value,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerConfig, String> {
    let Value::Object(fields) = entry else {
        return Err("an entry must be an object".to_owned());
    };
    let mut reader = Reader {
        fields: fields.clone(),
        lookup,
    };
    let config = reader.read()?;
    reader.unknown().map_or(Ok(config), Err)
}

/// Whether an entry asks for its server; needs none of its other fields, so that what is off is not judged.
pub(super) fn enabled(entry: &Value) -> Result<bool, String> {
    let flag = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(format!("{name} must be true or false")),
    };
    Ok(match (flag("enabled")?, flag("disabled")?) {
        (Some(enabled), _) => enabled,
        (None, Some(disabled)) => !disabled,
        (None, None) => true,
    })
}

struct Reader<'a> {
    fields: Map<String, Value>,
    lookup: Lookup<'a>,
}

impl Reader<'_> {
    /// What is wrong with the first of the fields that nothing was read of.
    fn unknown(&self) -> Option<String> {
        let mut names = self.fields.keys();
        let name = names
            .find(|name| !FOREIGN.contains(&name.as_str()) && !name.starts_with(['_', '/']))?;
        let let_in = LET_IN.iter().find(|(field, _)| field == name);
        Some(match let_in {
            Some((_, instead)) => format!("the field {name:?} is not supported: {instead}"),
            None => format!("the field {name:?} is not known: correct its name, or take it out"),
        })
    }

    /// What is missing may be there under a name that nobody knows.
    fn missing(&mut self, why: &str) -> String {
        for known in [
            "args",
            "cwd",
            "env",
            "envFile",
            "environment",
            "headers",
            "protocolEra",
            "serverUrl",
            "httpUrl",
            "timeout",
        ] {
            self.fields.remove(known);
        }
        let also = self.unknown().map(|unknown| format!("; {unknown}"));
        format!("{why}{}", also.unwrap_or_default())
    }

    fn read(&mut self) -> Result<ServerConfig, String> {
        let enabled = enabled(&Value::Object(self.fields.clone()))?;
        self.fields.remove("enabled");
        self.fields.remove("disabled");
        let mut kind = self.text("type")?;
        for name in ["transport", "transportType"] {
            kind = kind.or(self.text(name)?);
        }
        let command = self.command()?;
        let url = match self.text("url")? {
            Some(url) => Some(url),
            None => self.text("serverUrl")?.or(self.text("httpUrl")?),
        };
        let transport = match (kind.as_deref(), command, url) {
            (_, Some(_), Some(_)) => {
                return Err("it has both a command and a url: choose one".to_owned());
            }
            (None | Some("stdio" | "local"), Some(command), None) => self.stdio(command)?,
            (
                None | Some("http" | "streamable-http" | "streamableHttp" | "remote"),
                None,
                Some(url),
            ) => self.http(&url)?,
            (Some("sse"), ..) => {
                return Err(
                    "the transport sse of 2024 is not supported: most servers offer Streamable HTTP (type http) too"
                        .to_owned(),
                );
            }
            (Some(kind @ ("stdio" | "local")), None, _) => {
                return Err(self.missing(&format!("type {kind} needs a command")));
            }
            (Some(kind), Some(_), None) => {
                return Err(format!("type {kind} does not go with a command"));
            }
            (Some(kind), None, Some(_)) => {
                return Err(format!("type {kind} does not go with a url"));
            }
            (_, None, None) => return Err(self.missing("it has neither a command nor a url")),
        };
        Ok(ServerConfig {
            transport,
            enabled,
            era: self.era()?,
            timeout: self.timeout()?,
            allowed_tools: Vec::new(),
        })
    }

    /// The program. opencode has it in one list with its arguments.
    fn command(&mut self) -> Result<Option<String>, String> {
        if let Some(Value::Array(words)) = self.fields.get("command") {
            let mut words = words.clone();
            if words.is_empty() || self.fields.contains_key("args") {
                return Err(
                    "command is a list: its first is the program, the rest are the args".to_owned(),
                );
            }
            let program = words.remove(0);
            self.fields.insert("command".to_owned(), program);
            self.fields.insert("args".to_owned(), Value::Array(words));
        }
        self.text("command")
    }

    fn stdio(&mut self, command: String) -> Result<Transport, String> {
        if command.trim().is_empty() {
            return Err("the command is empty".to_owned());
        }
        let args = match self.fields.remove("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(args)) => args
                .into_iter()
                .map(|arg| match arg {
                    Value::String(arg) => self.expand("args", &arg),
                    _ => Err("args must be a list of strings".to_owned()),
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err("args must be a list of strings".to_owned()),
        };
        let mut env = match self.text("envFile")? {
            Some(file) => env_file(&file)?,
            None => BTreeMap::new(),
        };
        env.extend(self.map("env")?);
        env.extend(self.map("environment")?);
        Ok(Transport::Stdio {
            command,
            args,
            env,
            cwd: self.text("cwd")?.map(PathBuf::from),
        })
    }

    fn http(&mut self, url: &str) -> Result<Transport, String> {
        let url =
            SafeUrl::parse(url).map_err(|error| format!("the url cannot be read: {error}"))?;
        let parsed = url.expose();
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            return Err("the url must begin with http:// or https:// and name a host".to_owned());
        }
        let headers = self.map("headers")?;
        for (name, value) in &headers {
            let good = http::HeaderName::from_bytes(name.as_bytes()).is_ok()
                && http::HeaderValue::from_str(value.expose()).is_ok();
            if !good {
                return Err(format!("the header {name:?} cannot be sent"));
            }
        }
        Ok(Transport::Http { url, headers })
    }

    fn era(&mut self) -> Result<EraChoice, String> {
        match self.text("protocolEra")?.as_deref() {
            None | Some("auto") => Ok(EraChoice::Auto),
            Some("legacy") => Ok(EraChoice::Legacy),
            Some("modern") => Ok(EraChoice::Modern),
            Some(_) => Err("protocolEra must be auto, legacy or modern".to_owned()),
        }
    }

    /// Milliseconds, as Claude and Gemini have it; small numbers are the seconds of Cline.
    fn timeout(&mut self) -> Result<Option<Duration>, String> {
        match self.fields.remove("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(seconds @ 1..1000) => Ok(Some(Duration::from_secs(seconds))),
                Some(millis @ 1000..=86_400_000) => Ok(Some(Duration::from_millis(millis))),
                _ => Err("timeout must be a number of milliseconds, at most a day".to_owned()),
            },
        }
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => self.expand(name, &text).map(Some),
            Some(_) => Err(format!("{name} must be a string")),
        }
    }

    fn map(&mut self, name: &str) -> Result<BTreeMap<String, Secret>, String> {
        let map = match self.fields.remove(name) {
            None | Some(Value::Null) => return Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(format!("{name} must be an object")),
        };
        map.into_iter()
            .map(|(key, value)| {
                let what = format!("{name}.{key}");
                let value = match value {
                    Value::String(text) => self.expand(&what, &text)?,
                    // Written by hand without quotes.
                    Value::Number(_) | Value::Bool(_) => value.to_string(),
                    _ => return Err(format!("{what} must be a string")),
                };
                if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
                    return Err(format!("{what} cannot be set"));
                }
                Ok((key, Secret::from(value)))
            })
            .collect()
    }

    fn expand(&self, what: &str, text: &str) -> Result<String, String> {
        expand(text, self.lookup).map_err(|why| format!("{what}: {why}"))
    }
}

/// Largest file of variables.
const MAX_ENV_FILE: u64 = 1024 * 1024;

/// `NAME=value` lines, `#` comments, quotes around a value.
fn env_file(file: &str) -> Result<BTreeMap<String, Secret>, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| format!("envFile {file} cannot be read: {error}");
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(MAX_ENV_FILE).read_to_string(&mut text))
        .map_err(failed)?;
    let mut all = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("envFile {file}, line {}: no `=`", number + 1));
        };
        let value = value.trim();
        let quoted = ['"', '\'']
            .into_iter()
            .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
        all.insert(
            name.trim().to_owned(),
            Secret::from(quoted.unwrap_or(value)),
        );
    }
    Ok(all)
}
