//! An upstream in a file of groups.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ramen_client::config::Transport;
use ramen_group::KeyFiles;
use ramen_redact::{SafeUrl, Secret};
use serde::Deserialize;

use crate::upstreams::UpstreamSpec;

/// Largest file with a value.
const MAX_VALUE: u64 = 64 * 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Listed {
    name: String,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Files with the values of headers that are secrets.
    #[serde(default)]
    header_files: BTreeMap<String, PathBuf>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Files with the values of variables that are secrets.
    #[serde(default)]
    env_files: BTreeMap<String, PathBuf>,
    #[serde(default = "minute")]
    timeout_secs: u32,
    #[serde(default)]
    allowed_tools: Vec<String>,
}

fn minute() -> u32 {
    60
}

impl Listed {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The upstream, and the files that its values come from. A file that cannot be read costs this upstream alone.
    pub(super) fn read(self, folder: &Path) -> Result<(UpstreamSpec, Vec<KeyFiles>), String> {
        let small = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let begins = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || self.name.len() > 32 || !self.name.bytes().all(small) {
            return Err(
                "a name is a small letter, then small letters, digits and `-`, at most 32 in all"
                    .to_owned(),
            );
        }
        let of_url = !(self.headers.is_empty() && self.header_files.is_empty());
        let of_command =
            !(self.args.is_empty() && self.env.is_empty() && self.env_files.is_empty());
        let (plain, files) = match (&self.url, &self.command) {
            (Some(_), None) if !of_command => (self.headers, self.header_files),
            (None, Some(_)) if !of_url => (self.env, self.env_files),
            _ => {
                return Err(
                    "it needs either a url with headers, or a command with args and env".to_owned(),
                );
            }
        };
        let files: BTreeMap<_, _> = files
            .into_iter()
            .map(|(name, file)| (name, folder.join(file)))
            .collect();
        let values = values(plain, &files);
        let transport = match (self.url, self.command) {
            (Some(url), _) => {
                let url = SafeUrl::parse(&url).map_err(|error| format!("its url: {error}"))?;
                values.map(|headers| Transport::Http { url, headers })
            }
            (None, command) => values.map(|env| Transport::Stdio {
                command: command.unwrap_or_default(),
                args: self.args,
                env,
                cwd: Some(folder.to_owned()),
            }),
        };
        let timeout = Duration::from_secs(self.timeout_secs.clamp(1, 600).into());
        let watched = files.into_values().map(|file| KeyFiles {
            dir: None,
            file: Some(file),
        });
        let spec = UpstreamSpec::new(self.name, transport, timeout, &self.allowed_tools);
        Ok((spec, watched.collect()))
    }
}

fn values(
    plain: BTreeMap<String, String>,
    files: &BTreeMap<String, PathBuf>,
) -> Result<BTreeMap<String, Secret>, String> {
    let mut all: BTreeMap<_, _> = plain
        .into_iter()
        .map(|(name, value)| (name, Secret::from(value)))
        .collect();
    for (name, file) in files {
        let failed = |why: &dyn std::fmt::Display| {
            format!("{name}: {} cannot be used: {why}", file.display())
        };
        let size = std::fs::metadata(file)
            .map_err(|error| failed(&error))?
            .len();
        if size > MAX_VALUE {
            return Err(failed(&"it is too large"));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(failed(&"it must hold one line"));
        }
        all.insert(name.clone(), Secret::from(text));
    }
    Ok(all)
}
