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
                    "it needs either a url with headers, or a command with args and env, not both"
                        .to_owned(),
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
        if all.insert(name.clone(), Secret::from(text)).is_some() {
            return Err(format!("{name} is there twice: as a value and as a file"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one entry, beside which these files are.
    fn read(
        entry: &str,
        files: &[(&str, &str)],
    ) -> (
        tempfile::TempDir,
        Result<(UpstreamSpec, Vec<KeyFiles>), String>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let listed: Listed = serde_saphyr::from_str(entry).unwrap();
        let read = listed.read(folder.path());
        (folder, read)
    }

    fn shown(values: &BTreeMap<String, Secret>) -> Vec<(&str, &str)> {
        values
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose().as_str()))
            .collect()
    }

    #[test]
    fn a_url_has_plain_headers_and_headers_from_files_that_are_watched() {
        let (folder, read) = read(
            "{name: issues, url: 'https://mcp.example.com/mcp', headers: {X-Team: blue}, headerFiles: {Authorization: token}, timeoutSecs: 30, allowedTools: ['get_*']}",
            &[("token", "Bearer of-the-server\n")],
        );
        let (spec, files) = read.unwrap();
        let server = spec.server.unwrap();
        assert_eq!(spec.name, "issues");
        assert_eq!(server.timeout, Some(Duration::from_secs(30)));
        assert_eq!(server.allowed_tools, ["get_*"]);
        let Transport::Http { url, headers } = server.transport else {
            panic!("it is reached over HTTP")
        };
        assert_eq!(url.to_string(), "https://mcp.example.com/mcp");
        assert_eq!(
            shown(&headers),
            [
                ("Authorization", "Bearer of-the-server"),
                ("X-Team", "blue")
            ]
        );
        let watched: Vec<_> = files
            .into_iter()
            .filter_map(|watched| watched.file)
            .collect();
        assert_eq!(watched, [folder.path().join("token")]);
    }

    #[test]
    fn a_command_runs_in_the_folder_of_the_file_with_its_variables() {
        let (folder, read) = read(
            "{name: files, command: npx, args: [-y, server-files], env: {MODE: ro}, envFiles: {TOKEN: token}}",
            &[("token", "of-the-program")],
        );
        let (spec, files) = read.unwrap();
        let server = spec.server.unwrap();
        assert_eq!(server.timeout, Some(Duration::from_mins(1)));
        let Transport::Stdio {
            command,
            args,
            env,
            cwd,
        } = server.transport
        else {
            panic!("it is a program")
        };
        assert_eq!((command.as_str(), args.len()), ("npx", 2));
        assert_eq!(shown(&env), [("MODE", "ro"), ("TOKEN", "of-the-program")]);
        assert_eq!(cwd.as_deref(), Some(folder.path()));
        assert_eq!(files.len(), 1);
    }

    #[test]
    fn an_entry_that_cannot_be_meant_is_refused_with_the_reason() {
        for (entry, wanted) in [
            ("{name: Web, url: 'https://h/'}", "a name is a small letter"),
            (
                "{name: 1web, url: 'https://h/'}",
                "a name is a small letter",
            ),
            (
                "{name: we_b, url: 'https://h/'}",
                "a name is a small letter",
            ),
            ("{name: '', url: 'https://h/'}", "a name is a small letter"),
            (
                "{name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, url: 'https://h/'}",
                "at most 32",
            ),
            ("{name: web}", "either a url"),
            ("{name: web, url: 'https://h/', command: x}", "not both"),
            ("{name: web, url: 'https://h/', args: [x]}", "either a url"),
            (
                "{name: web, url: 'https://h/', env: {A: b}}",
                "either a url",
            ),
            ("{name: web, command: x, headers: {A: b}}", "either a url"),
            (
                "{name: web, command: x, headerFiles: {A: b}}",
                "either a url",
            ),
            ("{name: web, url: 'no address'}", "its url: "),
        ] {
            let (_folder, read) = read(entry, &[]);
            let error = read.unwrap_err();
            assert!(error.contains(wanted), "{entry}: {error}");
        }
        let unknown =
            serde_saphyr::from_str::<Listed>("{name: web, url: 'https://h/', header: {}}");
        assert!(unknown.unwrap_err().to_string().contains("header"));
    }

    /// The others of the group go on, and nothing of a value is told.
    #[test]
    fn a_value_that_cannot_be_had_costs_this_upstream_alone_and_its_file_is_watched() {
        let large = "x".repeat(70_000);
        for (files, wanted) in [
            (&[][..], "cannot be used: "),
            (&[("token", "")][..], "it must hold one line"),
            (&[("token", "\n\n")][..], "it must hold one line"),
            (&[("token", "s3cret\nmore")][..], "it must hold one line"),
            (&[("token", "s3cret\u{1}")][..], "it must hold one line"),
            (&[("token", large.as_str())][..], "it is too large"),
        ] {
            let entry = "{name: web, url: 'https://h/', headerFiles: {Authorization: token}}";
            let (folder, read) = read(entry, files);
            let (spec, watched) = read.unwrap();
            let error = spec.server.unwrap_err();
            assert!(
                error.starts_with("Authorization: ") && error.contains(wanted),
                "{error}"
            );
            assert!(!error.contains("s3cret"), "{error}");
            assert_eq!(watched[0].file, Some(folder.path().join("token")));
        }
        let twice = "{name: web, url: 'https://h/', headers: {A: x}, headerFiles: {A: token}}";
        let (_folder, read) = read(twice, &[("token", "y")]);
        let error = read.unwrap().0.server.unwrap_err();
        assert_eq!(error, "A is there twice: as a value and as a file");
    }

    #[test]
    fn a_time_is_held_within_bounds() {
        for (given, taken) in [(0, 1), (5, 5), (100_000, 600)] {
            let entry = format!("{{name: web, url: 'https://h/', timeoutSecs: {given}}}");
            let (_folder, read) = read(&entry, &[]);
            let server = read.unwrap().0.server.unwrap();
            assert_eq!(server.timeout, Some(Duration::from_secs(taken)));
        }
    }
}
