//! Who operates the platform, from a folder such as a mounted Secret: each file `<name>.<level>` holds
//! the keys of one operator, one a line, and the level says what they may do, everywhere; so does each
//! file `<name>.keys`, and rules say what and where; each file `<name>.yaml` holds rules for those, and
//! for callers who are signed in elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{CidrSet, KeyFiles, KeyPrint, read_small};
use ramen_redact::KeySet;

use super::config::{ConfigError, Operations};
use super::keyring::{Grant, Keyring, Known};
use super::platform::{self, Platform};
use super::rules::{Level, Rule};
use crate::groups::Groups;
use crate::metrics::Metrics;
use crate::oidc::Oidc;
use crate::recent::Recent;

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What the names of files with rules end in.
const RULES: &str = "yaml";
/// What the names of files end in whose keys are held to rules.
const KEYS: &str = "keys";

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
        let (mut known, faults) = known(&self.dir);
        for fault in &faults {
            tracing::warn!(fault, "operators: this grants nothing until it is mended");
        }
        if let Some(metrics) = &self.metrics {
            metrics.unusable("operators", !faults.is_empty());
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

/// What the folder says, and what is wrong with it: which file, and why.
fn known(dir: &Path) -> (Known, Vec<String>) {
    let (mut known, mut faults) = (Known::default(), Vec::new());
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            faults.push(format!("{}: cannot be read: {error}", dir.display()));
            return (known, faults);
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        // Kubernetes keeps the versions of a volume in such.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let mut grants = Vec::new();
    for name in names {
        match read(&dir.join(&name), &name) {
            Ok(Entry::Keys(grant)) => grants.extend(grant.map(|grant| (name, *grant))),
            Ok(Entry::Rules(rules)) => known.rules.extend(rules),
            Err(fault) => faults.push(format!("{name}: {fault}")),
        }
    }
    for (file, grant) in grants {
        let name = &grant.name;
        if grant.rule.is_some() && known.rules.iter().any(|rule| rule.names(name)) {
            faults.push(format!(
                "{file}: a rule names `{name}`, and by its name this file grants its level everywhere: \
                 call it {name}.{KEYS}, and the rule counts"
            ));
        } else {
            known.grants.push(grant);
        }
    }
    (known, faults)
}

/// What one file says.
enum Entry {
    Keys(Option<Box<Grant>>),
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
    let level = Level::of(kind);
    if level.is_none() && kind != KEYS {
        let [read, write] = [Level::Read, Level::Write].map(Level::name);
        return Err(format!(
            "its name must end in .{read}, .{write}, .{KEYS} or .{RULES}"
        ));
    }
    let mut keys = KeySet::empty();
    keys.add_named(Some(file), &text);
    let grant = Grant {
        name: name.to_owned(),
        keys,
        rule: level.map(Rule::everywhere),
    };
    let some = !grant.keys.is_empty();
    Ok(Entry::Keys(some.then(|| Box::new(grant))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for (file, text) in files {
            put(temp.path(), file, text);
        }
        temp
    }

    /// Replaced as editors and kubelets do it.
    fn put(dir: &Path, file: &str, text: &str) {
        let new = dir.join(".new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, dir.join(file)).unwrap();
    }

    #[test]
    fn the_name_of_a_file_says_whose_keys_they_are_and_what_they_may_do() {
        let temp = folder(&[
            ("alice.write", "rmk_a\nrmk_b\n"),
            ("ci.bot.read", "rmk_c"),
            ("read", "rmk_d"),
            ("bob.admin", "rmk_e"),
            ("empty.write", "# none\n"),
            (".hidden.write", "rmk_f"),
            ("lena.keys", "rmk_g"),
        ]);
        let grant = |name: &str, file: &str, keys: &str, level: Option<Level>| {
            let mut set = KeySet::empty();
            set.add_named(Some(file), keys);
            Grant {
                name: name.to_owned(),
                keys: set,
                rule: level.map(Rule::everywhere),
            }
        };
        let wanted = vec![
            grant("alice", "alice.write", "rmk_a\nrmk_b", Some(Level::Write)),
            grant("ci.bot", "ci.bot.read", "rmk_c", Some(Level::Read)),
            grant("lena", "lena.keys", "rmk_g", None),
            grant("", "read", "rmk_d", Some(Level::Read)),
        ];
        let (all, faults) = known(temp.path());
        assert_eq!(all.grants, wanted);
        assert_eq!(
            faults,
            ["bob.admin: its name must end in .read, .write, .keys or .yaml"]
        );
        let (none, faults) = known(&temp.path().join("nowhere"));
        assert_eq!((none, faults.len()), (Known::default(), 1));
    }

    #[test]
    fn a_file_of_rules_with_a_fault_grants_nothing_and_the_others_go_on() {
        let rule = "{groups: [staff], level: read}";
        let temp = folder(&[
            ("a.yaml", &format!("rules: [{rule}]")),
            ("b.yaml", &format!("rules: [{rule}, {{groups: [staff]}}]")),
            ("c.yaml", "\u{0}"),
            ("d.yaml", &format!("rules: [{rule}, {rule}]")),
            ("walt.write", "rmk_w"),
        ]);
        let (found, faults) = known(temp.path());
        assert_eq!((found.rules.len(), found.grants.len()), (3, 1));
        let files: Vec<_> = faults.iter().map(|fault| &fault[..6]).collect();
        assert_eq!(files, ["b.yaml", "c.yaml"]);
        for file in ["b.yaml", "c.yaml"] {
            std::fs::remove_file(temp.path().join(file)).unwrap();
        }
        let (found, faults) = known(temp.path());
        assert_eq!((found.rules.len(), found.grants.len()), (3, 1));
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn sec_a_key_that_a_rule_names_is_not_valid_everywhere_by_the_name_of_its_file() {
        let temp = folder(&[
            ("ana.write", "rmk_a"),
            ("lena.keys", "rmk_l"),
            ("walt.write", "rmk_w"),
            (
                "rules.yaml",
                "rules: [{keys: [ana, lena], level: read}, {keys: ['*'], level: read}]",
            ),
        ]);
        let names = |known: &Known| {
            let names = known.grants.iter().map(|grant| grant.name.clone());
            names.collect::<Vec<_>>()
        };
        let (found, faults) = known(temp.path());
        assert_eq!(names(&found), ["lena", "walt"]);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let fault = &faults[0];
        assert!(fault.starts_with("ana.write: ") && fault.contains("call it ana.keys"));
        std::fs::rename(temp.path().join("ana.write"), temp.path().join("ana.keys")).unwrap();
        let (found, faults) = known(temp.path());
        assert_eq!(names(&found), ["ana", "lena", "walt"]);
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[tokio::test]
    async fn sec_rules_with_a_fault_shut_out_the_keys_that_are_held_to_them_and_no_other() {
        use crate::door::{Denied, Verify as _};

        let good = "rules: [{keys: [lena], level: write, namespaces: [team-a]}]";
        let temp = folder(&[
            ("lena.keys", "rmk_l"),
            ("rules.yaml", good),
            ("walt.write", "rmk_w"),
        ]);
        let metrics = Arc::<Metrics>::default();
        let (dir, told) = (temp.path().to_owned(), Some(Arc::clone(&metrics)));
        let mut operators = Operators::read(dir, Vec::new(), None, told);
        let keyring = Arc::clone(&operators.keyring);
        let come = async |key: &str| keyring.verify(key.as_bytes()).await.map(|_| ());
        let unusable = |wanted: u8| {
            let line = format!("ramen_gateway_unusable_files{{file=\"operators\"}} {wanted}");
            metrics.text(&Groups::default()).contains(&line)
        };
        assert_eq!(come("rmk_l").await, Ok(()));
        assert!(unusable(0));
        put(temp.path(), "rules.yaml", &good.replace("team-a", ""));
        operators.look();
        assert_eq!(come("rmk_l").await, Err(Denied::Forbidden));
        assert_eq!(come("rmk_w").await, Ok(()));
        assert!(unusable(1));
        let (_, faults) = known(temp.path());
        let place = "rules.yaml: rules[0].namespaces: an empty list";
        assert!(faults[0].starts_with(place), "{faults:?}");
        put(temp.path(), "rules.yaml", good);
        operators.look();
        assert_eq!(come("rmk_l").await, Ok(()));
        assert!(unusable(0));
    }

    #[tokio::test]
    async fn a_change_of_the_folder_counts_at_the_next_look() {
        use crate::door::Verify as _;

        let temp = folder(&[("alice.read", "rmk_a")]);
        let own = Grant {
            name: String::new(),
            keys: KeySet::from_lines("rmk_own"),
            rule: Some(Rule::everywhere(Level::Write)),
        };
        let mut operators = Operators::read(temp.path().to_owned(), vec![own], None, None);
        let keyring = Arc::clone(&operators.keyring);
        assert!(keyring.verify(b"rmk_a").await.is_ok());
        put(temp.path(), "alice.read", "rmk_other");
        operators.look();
        assert!(keyring.verify(b"rmk_a").await.is_err());
        assert!(keyring.verify(b"rmk_other").await.is_ok());
        std::fs::remove_file(temp.path().join("alice.read")).unwrap();
        operators.look();
        assert!(keyring.verify(b"rmk_other").await.is_err());
        assert!(keyring.verify(b"rmk_own").await.is_ok());
    }
}
