//! Who operates the platform, from a folder such as a mounted Secret: each file `<name>.<level>` holds
//! the keys of one operator, one a line, and the level says what they may do, everywhere; so does each
//! file `<name>.keys`, and rules say what and where; each file `<name>.yaml` holds rules for those, and
//! for callers who are signed in elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ramen_group::{CidrSet, KeyFiles, KeyPrint, read_small};
use ramen_redact::{KeySet, keys_of};

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
/// Shortest key.
const MIN_KEY: usize = 32;
/// How a key is made.
const MAKE: &str = "`echo \"rmk_$(openssl rand -hex 32)\"`";

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
        let Found {
            mut known,
            faults,
            warnings,
        } = read_folder(&self.dir);
        for fault in &faults {
            tracing::warn!(fault, "operators: this grants nothing until it is mended");
        }
        for warning in &warnings {
            tracing::warn!(
                warning,
                "operators: this grants something else than it says"
            );
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

/// What the folder says, and what is wrong with it, each with its file.
#[derive(Debug, Default)]
struct Found {
    known: Known,
    /// Files that grant nothing until they are mended.
    faults: Vec<String>,
    /// What grants something else than it seems to.
    warnings: Vec<String>,
}

fn read_folder(dir: &Path) -> Found {
    let mut found = Found::default();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            let fault = format!("{}: cannot be read: {error}", dir.display());
            found.faults.push(fault);
            return found;
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        // Kubernetes keeps the versions of a volume in such.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let (mut grants, mut rules) = (Vec::new(), Vec::new());
    for name in &names {
        let file = name.as_str();
        match read(&dir.join(file), file) {
            Ok(Entry::Keys(grant)) if grant.keys.is_empty() => {
                found.warnings.push(format!("{file}: no key is in it"));
            }
            Ok(Entry::Keys(grant)) => grants.push((file, *grant)),
            Ok(Entry::Rules(more)) => rules.push((file, more)),
            Err(fault) => found.faults.push(format!("{file}: {fault}")),
        }
    }
    found.warnings.extend(said_of_nothing(&rules, &names));
    found.warnings.extend(held_to_nothing(&grants));
    let rules = rules.into_iter().flat_map(|(_, rules)| rules);
    found.known.rules = rules.collect();
    for (file, grant) in grants {
        let name = &grant.name;
        if grant.rule.is_some() && found.known.rules.iter().any(|rule| rule.names(name)) {
            found.faults.push(format!(
                "{file}: a rule names `{name}`, and by its name this file grants its level everywhere: \
                 call it {name}.{KEYS}, and the rule counts"
            ));
        } else {
            found.known.grants.push(grant);
        }
    }
    found
}

/// Where rules name keys and operations that are not there.
fn said_of_nothing(rules: &[(&str, Vec<Rule>)], files: &[String]) -> Vec<String> {
    let has_keys = |name: &str| {
        let mut parts = files.iter().filter_map(|file| file.rsplit_once('.'));
        parts.any(|(stem, kind)| stem == name && kind != RULES)
    };
    let operations = platform::ids();
    let mut told = Vec::new();
    for (file, rules) in rules {
        for (at, rule) in rules.iter().enumerate() {
            for name in rule.key_names().filter(|name| !has_keys(name)) {
                told.push(format!(
                    "{file}: rules[{at}].keys: there is no file {name}.{KEYS}: make it, or mend the name"
                ));
            }
            for name in rule.unknown_operations(&operations) {
                told.push(format!(
                    "{file}: rules[{at}].operations: `{name}` is no operation: there are {}",
                    operations.join(", ")
                ));
            }
        }
    }
    told
}

/// Which files have a key that rules limit, and that is valid without them by another file.
fn held_to_nothing(grants: &[(&str, Grant)]) -> Vec<String> {
    let (free, limited): (Vec<_>, Vec<_>) = grants.iter().partition(|(_, one)| one.rule.is_some());
    let mut told = Vec::new();
    for (file, one) in limited {
        let digests = one.keys.digests();
        let frees = |other: &Grant| digests.iter().any(|digest| other.keys.holds(digest));
        for (other, _) in free.iter().filter(|(_, other)| frees(other)) {
            told.push(format!(
                "{file}: a key of it is in {other} too, and no rule limits it there: make a key for each file, with {MAKE}"
            ));
        }
    }
    told
}

/// What one file says.
enum Entry {
    Keys(Box<Grant>),
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
    for (at, key) in keys_of(&text).enumerate() {
        judge(key).map_err(|why| format!("its key {} {why}: make one with {MAKE}", at + 1))?;
    }
    let mut keys = KeySet::empty();
    keys.add_named(Some(file), &text);
    let grant = Grant {
        name: name.to_owned(),
        keys,
        rule: level.map(Rule::everywhere),
    };
    Ok(Entry::Keys(Box::new(grant)))
}

/// Whether a key is one that nobody guesses and that a request can carry.
fn judge(key: &str) -> Result<(), String> {
    if key.contains(char::is_whitespace) {
        return Err("has a blank in it, which no request can carry".to_owned());
    }
    if key.chars().count() < MIN_KEY {
        return Err(format!("has fewer than {MIN_KEY} characters"));
    }
    Ok(())
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

    /// A key as they are made.
    fn key(name: &str) -> String {
        format!("rmk_{name:0>64}")
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
            ("alice.write", &format!("{}\n{}\n", key("a"), key("b"))),
            ("ci.bot.read", &key("c")),
            ("read", &key("d")),
            ("bob.admin", &key("e")),
            ("empty.write", "# none\n"),
            (".hidden.write", &key("f")),
            ("lena.keys", &key("9")),
        ]);
        let grant = |name: &str, file: &str, keys: &[&str], level: Option<Level>| {
            let mut set = KeySet::empty();
            for one in keys {
                set.add_named(Some(file), &key(one));
            }
            Grant {
                name: name.to_owned(),
                keys: set,
                rule: level.map(Rule::everywhere),
            }
        };
        let wanted = vec![
            grant("alice", "alice.write", &["a", "b"], Some(Level::Write)),
            grant("ci.bot", "ci.bot.read", &["c"], Some(Level::Read)),
            grant("lena", "lena.keys", &["9"], None),
            grant("", "read", &["d"], Some(Level::Read)),
        ];
        let found = read_folder(temp.path());
        assert_eq!(found.known.grants, wanted);
        assert_eq!(
            found.faults,
            ["bob.admin: its name must end in .read, .write, .keys or .yaml"]
        );
        assert_eq!(found.warnings, ["empty.write: no key is in it"]);
        let none = read_folder(&temp.path().join("nowhere"));
        assert_eq!((none.known, none.faults.len()), (Known::default(), 1));
    }

    #[test]
    fn sec_a_key_that_can_be_guessed_and_one_that_no_request_carries_are_faults_of_their_file() {
        let long = key("1");
        let temp = folder(&[
            ("ada.write", &long[..MIN_KEY]),
            ("bea.write", &long[..MIN_KEY - 1]),
            ("cleo.keys", &format!("{}\n# of old\nshort\n", key("2"))),
            ("dora.read", &format!("{} of dora\n", key("3"))),
        ]);
        let found = read_folder(temp.path());
        let names: Vec<_> = found.known.grants.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["ada"], "no key of a file with a fault is valid");
        assert_eq!(
            found.faults,
            [
                format!("bea.write: its key 1 has fewer than 32 characters: make one with {MAKE}"),
                format!("cleo.keys: its key 2 has fewer than 32 characters: make one with {MAKE}"),
                format!(
                    "dora.read: its key 1 has a blank in it, which no request can carry: make one with {MAKE}"
                ),
            ]
        );
    }

    #[test]
    fn what_grants_something_else_than_it_says_is_told_with_the_fix() {
        let rules = "rules:
- {keys: [lena, ghost], level: write}
- {keys: ['*'], level: read, operations: ['groups.*', groups.nope]}
- {groups: [staff], level: read, operations: ['nothing.*']}
";
        let temp = folder(&[
            ("ci.keys", &key("1")),
            ("lena.keys", "# none yet"),
            ("rules.yaml", rules),
            ("walt.write", &format!("{}\n{}", key("2"), key("1"))),
        ]);
        let found = read_folder(temp.path());
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        assert_eq!((found.known.rules.len(), found.known.grants.len()), (3, 2));
        let wanted = [
            "lena.keys: no key is in it",
            "rules.yaml: rules[0].keys: there is no file ghost.keys: make it, or mend the name",
            "rules.yaml: rules[1].operations: `groups.nope` is no operation: there are groups.list, ",
            "rules.yaml: rules[2].operations: `nothing.*` is no operation: there are groups.list, ",
            "ci.keys: a key of it is in walt.write too, and no rule limits it there: make a key for each file",
        ];
        let told = &found.warnings;
        assert_eq!(told.len(), wanted.len(), "{told:?}");
        for (told, wanted) in told.iter().zip(wanted) {
            assert!(told.starts_with(wanted), "{told}");
        }
        let mended = rules.replace(", ghost", "").replace(", groups.nope", "");
        put(
            temp.path(),
            "rules.yaml",
            &mended.replace("nothing", "calls"),
        );
        put(temp.path(), "lena.keys", &key("3"));
        put(temp.path(), "walt.write", &key("2"));
        let found = read_folder(temp.path());
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    }

    #[test]
    fn a_file_of_rules_with_a_fault_grants_nothing_and_the_others_go_on() {
        let rule = "{groups: [staff], level: read}";
        let temp = folder(&[
            ("a.yaml", &format!("rules: [{rule}]")),
            ("b.yaml", &format!("rules: [{rule}, {{groups: [staff]}}]")),
            ("c.yaml", "\u{0}"),
            ("d.yaml", &format!("rules: [{rule}, {rule}]")),
            ("walt.write", &key("b")),
        ]);
        let Found { known, faults, .. } = read_folder(temp.path());
        assert_eq!((known.rules.len(), known.grants.len()), (3, 1));
        let files: Vec<_> = faults.iter().map(|fault| &fault[..6]).collect();
        assert_eq!(files, ["b.yaml", "c.yaml"]);
        for file in ["b.yaml", "c.yaml"] {
            std::fs::remove_file(temp.path().join(file)).unwrap();
        }
        let Found { known, faults, .. } = read_folder(temp.path());
        assert_eq!((known.rules.len(), known.grants.len()), (3, 1));
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn sec_a_key_that_a_rule_names_is_not_valid_everywhere_by_the_name_of_its_file() {
        let temp = folder(&[
            ("ana.write", &key("a")),
            ("lena.keys", &key("1")),
            ("walt.write", &key("b")),
            (
                "rules.yaml",
                "rules: [{keys: [ana, lena], level: read}, {keys: ['*'], level: read}]",
            ),
        ]);
        let names = |known: &Known| {
            let names = known.grants.iter().map(|grant| grant.name.clone());
            names.collect::<Vec<_>>()
        };
        let Found { known, faults, .. } = read_folder(temp.path());
        assert_eq!(names(&known), ["lena", "walt"]);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let fault = &faults[0];
        assert!(fault.starts_with("ana.write: ") && fault.contains("call it ana.keys"));
        std::fs::rename(temp.path().join("ana.write"), temp.path().join("ana.keys")).unwrap();
        let Found { known, faults, .. } = read_folder(temp.path());
        assert_eq!(names(&known), ["ana", "lena", "walt"]);
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[tokio::test]
    async fn sec_rules_with_a_fault_shut_out_the_keys_that_are_held_to_them_and_no_other() {
        use crate::door::{Denied, Verify as _};

        let good = "rules: [{keys: [lena], level: write, namespaces: [team-a]}]";
        let temp = folder(&[
            ("lena.keys", &key("1")),
            ("rules.yaml", good),
            ("walt.write", &key("b")),
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
        assert_eq!(come(&key("1")).await, Ok(()));
        assert!(unusable(0));
        put(temp.path(), "rules.yaml", &good.replace("team-a", ""));
        operators.look();
        assert_eq!(come(&key("1")).await, Err(Denied::Forbidden));
        assert_eq!(come(&key("b")).await, Ok(()));
        assert!(unusable(1));
        let Found { faults, .. } = read_folder(temp.path());
        let place = "rules.yaml: rules[0].namespaces: an empty list";
        assert!(faults[0].starts_with(place), "{faults:?}");
        put(temp.path(), "rules.yaml", good);
        operators.look();
        assert_eq!(come(&key("1")).await, Ok(()));
        assert!(unusable(0));
    }

    #[tokio::test]
    async fn a_change_of_the_folder_counts_at_the_next_look() {
        use crate::door::Verify as _;

        let temp = folder(&[("alice.read", &key("a"))]);
        let own = Grant {
            name: String::new(),
            keys: KeySet::from_lines("rmk_own"),
            rule: Some(Rule::everywhere(Level::Write)),
        };
        let mut operators = Operators::read(temp.path().to_owned(), vec![own], None, None);
        let keyring = Arc::clone(&operators.keyring);
        let is_known = async |key: &str| keyring.verify(key.as_bytes()).await.is_ok();
        assert!(is_known(&key("a")).await);
        put(temp.path(), "alice.read", &key("c"));
        operators.look();
        assert!(!is_known(&key("a")).await && is_known(&key("c")).await);
        std::fs::remove_file(temp.path().join("alice.read")).unwrap();
        operators.look();
        assert!(!is_known(&key("c")).await && is_known("rmk_own").await);
    }
}
