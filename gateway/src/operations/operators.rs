//! Who operates the platform, from a folder such as a mounted Secret: each file `<name>.<level>` holds
//! the keys of one operator, one a line, and the level says what they may do; each file `<name>.yaml`
//! holds rules for those who are signed in elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{CidrSet, KeyFiles, KeyPrint, read_small};
use ramen_redact::KeySet;

use super::config::{ConfigError, Operations};
use super::keyring::{Grant, Keyring, Known};
use super::platform::{self, Platform};
use super::rules::{LEVELS, Rule};
use crate::groups::Groups;
use crate::metrics::Metrics;
use crate::oidc::Oidc;
use crate::recent::Recent;

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What the names of files with rules end in.
const RULES: &str = "yaml";

/// The endpoint for operators, who are followed from now on; without any there is none.
pub fn of_operators(
    operators: Option<Operators>,
    ranges: CidrSet,
    platform: Arc<dyn Platform>,
    groups: &Groups,
    recent: &Arc<Recent>,
) -> Result<Option<Operations>, ConfigError> {
    let Some(operators) = operators else {
        return Ok(None);
    };
    let keyring = operators.follow();
    let (groups, recent) = (groups.clone(), Arc::clone(recent));
    platform::mount(platform, groups, recent, keyring, ranges, "").map(Some)
}

/// A folder of operators.
#[derive(Debug)]
pub struct Operators {
    dir: PathBuf,
    /// Of others than the folder names.
    own: Vec<Grant>,
    keyring: Arc<Keyring>,
    seen: KeyPrint,
    /// Where a fault of the folder is told besides the log.
    metrics: Option<Arc<Metrics>>,
}

impl Operators {
    /// Reads the folder; what cannot be read lets nobody in. These keys are valid besides.
    pub fn read(
        dir: PathBuf,
        own: Vec<Grant>,
        oidc: Option<Arc<Oidc>>,
        metrics: Option<Arc<Metrics>>,
    ) -> Self {
        let operators = Self {
            seen: print(&dir),
            keyring: Arc::new(Keyring::trusting(oidc)),
            own,
            dir,
            metrics,
        };
        operators.keyring.replace(operators.known());
        operators
    }

    /// Who may do what, now and after each change of the folder.
    pub fn follow(mut self) -> Arc<Keyring> {
        let keyring = Arc::clone(&self.keyring);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                self.look();
            }
        });
        keyring
    }

    fn known(&self) -> Known {
        let (mut known, good) = known(&self.dir);
        if let Some(metrics) = &self.metrics {
            metrics.unusable("operators", !good);
        }
        known.grants.extend(self.own.iter().cloned());
        known
    }

    fn look(&mut self) {
        let now = print(&self.dir);
        if now == self.seen {
            return;
        }
        self.seen = now;
        let known = self.known();
        tracing::info!(
            keys = known.grants.len(),
            rules = known.rules.len(),
            "operators read"
        );
        self.keyring.replace(known);
    }
}

fn print(dir: &Path) -> KeyPrint {
    let files = KeyFiles {
        dir: Some(dir.to_owned()),
        file: None,
    };
    files.print()
}

/// What the folder says, and whether all of it could be used.
fn known(dir: &Path) -> (Known, bool) {
    let (mut known, mut good) = (Known::default(), true);
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "the operators cannot be read: nobody gets in");
            return (known, false);
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        // Kubernetes keeps the versions of a volume in such.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    for name in names {
        match read(&dir.join(&name), &name) {
            Ok(Entry::Keys(grant)) => known.grants.extend(grant),
            Ok(Entry::Rules(rules)) => known.rules.extend(rules),
            Err(fault) => {
                good = false;
                tracing::warn!(
                    file = name,
                    fault,
                    "this file grants nothing until it is mended"
                );
            }
        }
    }
    (known, good)
}

/// What one file says.
enum Entry {
    Keys(Option<Grant>),
    Rules(Vec<Rule>),
}

/// Reads a file; nobody gets in by half of what was meant.
fn read(path: &Path, file: &str) -> Result<Entry, String> {
    let text = read_small(path).map_err(|error| error.to_string())?;
    let text = text.ok_or("it is no file")?;
    let (name, kind) = file.rsplit_once('.').unwrap_or(("", file));
    if kind == RULES {
        let rules = Rule::parse(&text).map_err(|faults| faults.join("; "))?;
        return Ok(Entry::Rules(rules));
    }
    let Some((_, access)) = LEVELS.iter().find(|(level, _)| *level == kind) else {
        let levels: Vec<_> = LEVELS.iter().map(|(level, _)| *level).collect();
        let levels = levels.join(" nor in .");
        return Err(format!(
            "its name ends neither in .{RULES} nor in .{levels}"
        ));
    };
    let mut keys = KeySet::empty();
    keys.add_named(Some(file), &text);
    let grant = Grant {
        name: name.to_owned(),
        keys,
        access: access.iter().map(|access| (*access).to_owned()).collect(),
    };
    Ok(Entry::Keys(
        Some(grant).filter(|grant| !grant.keys.is_empty()),
    ))
}

#[cfg(test)]
mod tests {
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
        let (all, good) = known(temp.path());
        assert_eq!(all.grants, wanted);
        assert!(!good, "nobody knows what .admin is");
        assert_eq!(
            known(&temp.path().join("nowhere")),
            (Known::default(), false)
        );
    }

    #[test]
    fn a_file_of_rules_with_a_fault_grants_nothing_and_the_others_go_on() {
        let temp = tempfile::tempdir().unwrap();
        let rule = "{groups: [staff], level: read}";
        for (file, text) in [
            ("a.yaml", format!("rules: [{rule}]")),
            ("b.yaml", format!("rules: [{rule}, {{groups: [staff]}}]")),
            ("c.yaml", "\u{0}".to_owned()),
            ("d.yaml", format!("rules: [{rule}, {rule}]")),
            ("walt.write", "rmk_w".to_owned()),
        ] {
            std::fs::write(temp.path().join(file), text).unwrap();
        }
        let (found, good) = known(temp.path());
        assert_eq!((found.rules.len(), found.grants.len(), good), (3, 1, false));
        for file in ["b.yaml", "c.yaml"] {
            std::fs::remove_file(temp.path().join(file)).unwrap();
        }
        let (found, good) = known(temp.path());
        assert_eq!((found.rules.len(), found.grants.len(), good), (3, 1, true));
    }

    #[tokio::test]
    async fn a_change_of_the_folder_counts_at_the_next_look() {
        use crate::door::Verify as _;

        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("alice.read");
        std::fs::write(&file, "rmk_a").unwrap();
        let own = Grant {
            name: String::new(),
            keys: KeySet::from_lines("rmk_own"),
            access: Vec::new(),
        };
        let mut operators = Operators::read(temp.path().to_owned(), vec![own], None, None);
        let keyring = Arc::clone(&operators.keyring);
        assert!(keyring.verify(b"rmk_a").await.is_ok());
        std::fs::write(temp.path().join("new"), "rmk_other").unwrap();
        std::fs::rename(temp.path().join("new"), &file).unwrap();
        operators.look();
        assert!(keyring.verify(b"rmk_a").await.is_err());
        assert!(keyring.verify(b"rmk_other").await.is_ok());
        std::fs::remove_file(&file).unwrap();
        operators.look();
        assert!(keyring.verify(b"rmk_other").await.is_err());
        assert!(keyring.verify(b"rmk_own").await.is_ok());
    }
}
