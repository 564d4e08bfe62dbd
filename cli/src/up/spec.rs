//! From a file of McpGroups, or a folder, to what each group's task needs.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::group::GroupSpec;
use super::source::Source;

/// The groups to run.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) groups: Vec<GroupSpec>,
    /// What people should read once.
    pub(super) remarks: Vec<String>,
}

impl Plan {
    /// One group: a folder of this machine.
    pub(super) fn of_folder(dir: &Path) -> Result<Self, String> {
        let dir = dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?;
        if !dir.is_dir() {
            return Err(format!("{} is no folder", dir.display()));
        }
        let named = if dir.ends_with("mcp") {
            dir.parent().unwrap_or(&dir)
        } else {
            &dir
        };
        let name = group_name(&named.file_name().unwrap_or_default().to_string_lossy());
        let group = GroupSpec {
            key: ("default".to_owned(), name),
            source: Source::Folder(dir),
            interval: Duration::MAX,
            suspended: false,
            history: 1,
            python: None,
            allow_sdist: false,
            deploy_timeout_secs: None,
            keys: None,
            worker_env: Vec::new(),
            deploy_env: Vec::new(),
            listen: None,
            secrets: secrets_of_environment(),
        };
        Ok(Self {
            groups: vec![group],
            remarks: Vec::new(),
        })
    }

    /// The groups of a file.
    pub(super) fn of_file(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        let _ = text;
        Err("files are not supported yet".to_owned())
    }

    /// The same plan with a fixed address.
    pub(super) fn listening(mut self, listen: Option<SocketAddr>) -> Result<Self, String> {
        match (listen, self.groups.as_mut_slice()) {
            (None, _) => {}
            (Some(listen), [only]) => only.listen = Some(listen),
            (Some(_), _) => return Err("--listen needs a single group".to_owned()),
        }
        Ok(self)
    }
}

/// The secrets of the person who tries a folder.
fn secrets_of_environment() -> Vec<(String, OsString)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, _)| name.starts_with("RAMEN_SECRET_"))
        .collect()
}

/// A folder's name as the name of a group: lower case letters, digits and `-`.
fn group_name(folder: &str) -> String {
    let mapped: String = folder
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(50)
        .collect();
    let name = mapped.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("group-{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lends_its_name_to_the_group() {
        assert_eq!(group_name("My_Group"), "my-group");
        assert_eq!(group_name("2024 tools "), "group-2024-tools");
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("demo/mcp")).unwrap();
        let of = |dir: &str| {
            Plan::of_folder(&temp.path().join(dir))
                .unwrap()
                .groups
                .remove(0)
                .key
                .1
        };
        assert_eq!(
            (of("demo"), of("demo/mcp")),
            ("demo".to_owned(), "demo".to_owned())
        );
        assert!(Plan::of_folder(&temp.path().join("none")).is_err());
    }
}
