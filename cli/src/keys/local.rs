//! Keys in the state of `ramen up`: a file each, looked at every second by whoever runs.

use std::fs;
use std::path::Path;

use super::{Listed, listed};
use crate::exit::Failure;
use crate::state::{GroupDir, GroupInfo, StateDir, write_atomic};
use crate::up;

/// The keys of one group.
pub(super) struct Keys {
    group: String,
    dir: GroupDir,
}

impl Keys {
    pub(super) fn find(state: Option<&Path>, group: Option<&str>) -> Result<Self, Failure> {
        let (info, dir) = StateDir::locate(state)?.known(group)?;
        let GroupInfo {
            namespace, name, ..
        } = info;
        Ok(Self {
            group: format!("{namespace}/{name}"),
            dir,
        })
    }

    /// Keys of a Secret in the file of groups are changed there.
    fn ours(&self) -> Result<(), Failure> {
        if up::has_given_keys(&self.dir) {
            return Err(Failure::usage(format!(
                "the keys of {} come from its Secret: change that",
                self.group
            )));
        }
        Ok(())
    }

    pub(super) fn add(self, name: &str, key: &str) -> Result<String, Failure> {
        self.ours()?;
        let file = self.dir.keys().join(name);
        if file.exists() {
            return Err(Failure::usage(format!(
                "{} has a key {name} already: revoke it first",
                self.group
            )));
        }
        write_atomic(&file, format!("{key}\n").as_bytes())
            .map_err(|error| failed(&file, &error))?;
        Ok(self.group)
    }

    pub(super) fn list(self) -> Result<Vec<Listed>, Failure> {
        let mut all = Vec::new();
        let folder = self.dir.keys();
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let text = fs::read_to_string(entry.path());
            all.extend(listed(
                &name,
                &text.map_err(|error| failed(&entry.path(), &error))?,
            ));
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    pub(super) fn revoke(self, name: &str) -> Result<String, Failure> {
        super::check_name(name)?;
        self.ours()?;
        let file = self.dir.keys().join(name);
        if !file.exists() {
            return Err(Failure::usage(format!("{} has no key {name}", self.group)));
        }
        up::end_key(&self.dir, name).map_err(|error| failed(&file, &error))?;
        Ok(self.group)
    }
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{}: {error}", file.display()))
}
