//! Keys of operators from a folder, such as a mounted Secret: each file `<name>.<level>` holds the keys
//! of one operator, one a line, and the level says what they may do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{CidrSet, KeyFiles, KeyPrint};

use super::config::{ConfigError, Operations};
use super::keyring::{Grant, Keyring};
use super::platform::{self, Platform};
use crate::groups::Groups;
use crate::recent::Recent;

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a level grants.
const LEVELS: &[(&str, &[&str])] = &[("read", &["*:read"]), ("write", &["*:*"])];

/// The endpoint for the operators whose keys are in a folder, which is watched from now on; without a
/// folder there is none.
pub fn of_operators(
    dir: Option<PathBuf>,
    ranges: CidrSet,
    platform: Arc<dyn Platform>,
    groups: &Groups,
    recent: &Arc<Recent>,
) -> Result<Option<Operations>, ConfigError> {
    let Some(dir) = dir else { return Ok(None) };
    let operators = Operators::read(dir);
    let keyring = operators.keyring();
    let operations = platform::mount(
        platform,
        groups.clone(),
        Arc::clone(recent),
        keyring,
        ranges,
        "",
    )?;
    tokio::spawn(operators.watch());
    Ok(Some(operations))
}

/// A folder of operators' keys.
#[derive(Debug)]
pub struct Operators {
    dir: PathBuf,
    keyring: Arc<Keyring>,
    seen: KeyPrint,
}

impl Operators {
    /// Reads the folder. What cannot be read gives no keys.
    pub fn read(dir: PathBuf) -> Self {
        let operators = Self {
            seen: print(&dir),
            keyring: Arc::default(),
            dir,
        };
        operators.keyring.set(grants(&operators.dir));
        operators
    }

    /// The keys; they change with the folder while [`Self::watch`] runs.
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// Reads the folder again when it changes, for ever.
    pub async fn watch(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look();
        }
    }

    fn look(&mut self) {
        let now = print(&self.dir);
        if now == self.seen {
            return;
        }
        self.seen = now;
        let grants = grants(&self.dir);
        tracing::info!(operators = grants.len(), "keys of operators read");
        self.keyring.set(grants);
    }
}

fn print(dir: &Path) -> KeyPrint {
    let files = KeyFiles {
        dir: Some(dir.to_owned()),
        file: None,
    };
    files.print()
}

fn grants(dir: &Path) -> Vec<Grant> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "keys of operators cannot be read: nobody gets in");
            return Vec::new();
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        // Kubernetes keeps the versions of a volume in such.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let grants = names.iter().filter_map(|file| {
        let (name, level) = file.rsplit_once('.').unwrap_or(("", file));
        let Some((_, access)) = LEVELS.iter().find(|(known, _)| *known == level) else {
            let levels: Vec<_> = LEVELS.iter().map(|(known, _)| *known).collect();
            tracing::warn!(
                file,
                "this file grants nothing: its name ends in none of the levels .{}",
                levels.join(", .")
            );
            return None;
        };
        let files = KeyFiles {
            dir: None,
            file: Some(dir.join(file)),
        };
        let (keys, faults) = files.read();
        for fault in faults {
            tracing::warn!(%fault, "cannot read keys; they are not valid");
        }
        Some(Grant {
            name: name.to_owned(),
            keys,
            access: access.iter().map(|access| (*access).to_owned()).collect(),
        })
    });
    grants.filter(|grant| !grant.keys.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use ramen_redact::KeySet;

    use super::*;

    #[test]
    fn the_name_of_a_file_says_whose_keys_they_are_and_what_they_may_do() {
        let temp = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("alice.write", "rmk_a\nrmk_b\n"),
            ("ci.bot.read", "rmk_c"),
            ("read", "rmk_d"),
            ("bob.admin", "rmk_e"),
            ("empty.write", "# none\n"),
            (".hidden.write", "rmk_f"),
        ] {
            std::fs::write(temp.path().join(file), text).unwrap();
        }
        let grant = |name: &str, file: &str, keys: &str, access: &str| {
            let mut set = KeySet::empty();
            set.add_named(Some(file), keys);
            Grant {
                name: name.to_owned(),
                keys: set,
                access: vec![access.to_owned()],
            }
        };
        let wanted = vec![
            grant("alice", "alice.write", "rmk_a\nrmk_b", "*:*"),
            grant("ci.bot", "ci.bot.read", "rmk_c", "*:read"),
            grant("", "read", "rmk_d", "*:read"),
        ];
        assert_eq!(grants(temp.path()), wanted);
        assert_eq!(grants(&temp.path().join("nowhere")), []);
    }

    #[tokio::test]
    async fn a_change_of_the_folder_counts_at_the_next_look() {
        use crate::door::Verify as _;

        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("alice.read");
        std::fs::write(&file, "rmk_a").unwrap();
        let mut operators = Operators::read(temp.path().to_owned());
        let keyring = operators.keyring();
        assert!(keyring.verify(b"rmk_a").await.is_ok());
        std::fs::write(temp.path().join("new"), "rmk_other").unwrap();
        std::fs::rename(temp.path().join("new"), &file).unwrap();
        operators.look();
        assert!(keyring.verify(b"rmk_a").await.is_err());
        assert!(keyring.verify(b"rmk_other").await.is_ok());
        std::fs::remove_file(&file).unwrap();
        operators.look();
        assert!(keyring.verify(b"rmk_other").await.is_err());
    }
}
