//! Who may do what: rules for the bearers of tokens and of keys, written like the access rules of a group.
//!
//! What no rule allows is not allowed; a caller gets what any rule about them does.

use ramen_group::Identity;
use ramen_group::access::{ClaimText, MAX_RULES, Pattern, Whom, judge_list};
use serde::Deserialize;

use super::descriptor::Access;

/// How much of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What only looks.
    Read,
    /// Everything.
    Write,
}

/// What may be done by whom, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    whom: Whom,
    level: Level,
    /// None: all.
    operations: Option<Vec<Pattern>>,
    /// None: all.
    namespaces: Option<Vec<Pattern>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    issuer: Option<String>,
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    claims: Vec<ClaimText>,
    #[serde(default)]
    keys: Vec<String>,
    level: String,
    operations: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
}

impl Level {
    /// The one of this name.
    pub(super) fn of(name: &str) -> Option<Self> {
        [Self::Read, Self::Write]
            .into_iter()
            .find(|level| level.name() == name)
    }

    /// How it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Whether an access is part of it.
    fn covers(self, access: &Access) -> bool {
        match self {
            Self::Read => access.verb() == "read",
            Self::Write => true,
        }
    }
}

impl Rule {
    /// All operations of a level, in all namespaces, for nobody but those to whom it is given.
    pub fn everywhere(level: Level) -> Self {
        Self {
            whom: Whom::default(),
            level,
            operations: None,
            namespaces: None,
        }
    }

    /// Judges the text of a file; all faults are returned, each with its place.
    pub fn parse(text: &str) -> Result<Vec<Self>, Vec<String>> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| vec![error.to_string()])?;
        let mut faults = Vec::new();
        if file.rules.len() > MAX_RULES {
            faults.push(format!("rules: has more than {MAX_RULES} entries"));
        }
        let rules = file.rules.into_iter().enumerate();
        let rules: Vec<_> = rules
            .filter_map(|(at, rule)| rule.judge(&format!("rules[{at}]"), &mut faults))
            .collect();
        if faults.is_empty() {
            Ok(rules)
        } else {
            Err(faults)
        }
    }

    /// Whether it is about the bearer of such a token.
    pub(super) fn is_about(&self, identity: &Identity) -> bool {
        self.whom.is(identity)
    }

    /// Whether it is about the keys of this name.
    pub(super) fn is_about_keys(&self, name: &str) -> bool {
        self.whom.is_key(Some(name))
    }

    /// Whether it says this very name.
    pub(super) fn names(&self, name: &str) -> bool {
        self.key_names().any(|known| known == name)
    }

    /// The keys that it names, those besides `*`.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &str> {
        self.whom.key_names()
    }

    /// What it says of operations that is about none of these.
    pub(super) fn unknown_operations(&self, known: &[String]) -> Vec<String> {
        let patterns = self.operations.iter().flatten();
        let unknown = patterns.filter(|pattern| !known.iter().any(|id| pattern.matches(id)));
        unknown.map(ToString::to_string).collect()
    }

    /// Whether it allows an operation, somewhere.
    pub(super) fn allows(&self, operation: &str, access: &Access) -> bool {
        self.level.covers(access) && fits(self.operations.as_deref(), operation)
    }

    /// Whether it says anything of a namespace.
    pub(super) fn reaches(&self, namespace: &str) -> bool {
        fits(self.namespaces.as_deref(), namespace)
    }
}

fn fits(patterns: Option<&[Pattern]>, name: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)))
}

impl Written {
    fn judge(self, field: &str, faults: &mut Vec<String>) -> Option<Rule> {
        let before = faults.len();
        let mut push = |place: String, message: &str| {
            faults.push(format!("{field}{place}: {message}"));
        };
        let whom = Whom {
            issuer: self.issuer,
            subjects: self.subjects,
            groups: self.groups,
            claims: self.claims,
            keys: self.keys,
        };
        whom.judge(&mut push);
        let lists = [
            (".operations", &self.operations),
            (".namespaces", &self.namespaces),
        ];
        for (place, list) in lists {
            let Some(list) = list else { continue };
            if list.is_empty() {
                push(
                    place.to_owned(),
                    "an empty list allows nothing; `[\"*\"]` is all of them",
                );
            }
            judge_list(place, list, &mut push);
        }
        let level = Level::of(&self.level);
        if level.is_none() {
            push(".level".to_owned(), "is neither read nor write");
        }
        let patterns = |list: Vec<String>| list.into_iter().map(Pattern::from).collect();
        let rule = Rule {
            whom,
            level: level?,
            operations: self.operations.map(patterns),
            namespaces: self.namespaces.map(patterns),
        };
        (faults.len() == before).then_some(rule)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(subject: &str, group: &str) -> Identity {
        Identity {
            issuer: "https://login.example.com".to_owned(),
            subject: subject.to_owned(),
            groups: vec![group.to_owned()],
            claims: json!({ "team": "a" }).as_object().unwrap().clone(),
        }
    }

    #[test]
    fn a_rule_says_whom_what_and_where() {
        let text = "rules:\n- {groups: [staff], level: write, operations: [groups.*], namespaces: [team-*]}\n- {subjects: [ann], claims: [{name: team, values: [a]}], level: read}\n- {keys: [lena], level: write}\n";
        let rules = Rule::parse(text).unwrap();
        let about = |rule: usize, subject, group| rules[rule].is_about(&identity(subject, group));
        assert!(about(0, "bob", "staff") && !about(0, "bob", "guests"));
        assert!(about(1, "ann", "guests") && !about(1, "bob", "guests"));
        assert!(rules[2].is_about_keys("lena") && !rules[2].is_about_keys("walt"));
        assert!(!about(2, "lena", "staff") && !rules[0].is_about_keys("staff"));
        let allows = |rule: usize, operation: &str, access: &str| {
            rules[rule].allows(operation, &Access::new(access))
        };
        assert!(allows(0, "groups.deploy", "groups:write"));
        assert!(!allows(0, "keys.rotate", "keys:write"));
        assert!(allows(1, "calls.recent", "calls:read"));
        assert!(!allows(1, "groups.deploy", "groups:write"));
        assert!(rules[0].reaches("team-a") && !rules[0].reaches("default"));
        assert!(rules[1].reaches("default"));
    }

    #[test]
    fn a_level_covers_the_verbs_that_it_names() {
        for (level, access, covered) in [
            (Level::Read, "groups:read", true),
            (Level::Read, "calls:read", true),
            (Level::Read, "groups:write", false),
            (Level::Read, "read", false),
            (Level::Write, "groups:read", true),
            (Level::Write, "keys:rotate", true),
        ] {
            assert_eq!(level.covers(&Access::new(access)), covered, "{access}");
        }
    }

    #[test]
    fn all_faults_are_told_with_their_place() {
        let text = "rules:\n- {level: read}\n- {subjects: [''], level: admin}\n- {groups: [a], level: write, namespaces: [], claims: [{name: '', values: []}]}\n- {keys: [ana], issuer: x, groups: [a], level: read}\n";
        let faults = Rule::parse(text).unwrap_err();
        let places: Vec<_> = faults
            .iter()
            .map(|fault| fault.split(": ").next().unwrap())
            .collect();
        assert_eq!(
            places,
            [
                "rules[0]",
                "rules[1].subjects[0]",
                "rules[1].level",
                "rules[2].claims[0].name",
                "rules[2].claims[0].values",
                "rules[2].namespaces",
                "rules[3].keys",
                "rules[3].issuer",
            ]
        );
        for (text, part) in [
            ("rules: [{groups: [a], level: read, tools: ['*']}]", "tools"),
            ("rules: [{groups: [a]}]", "level"),
            ("{}", "rules"),
        ] {
            let faults = Rule::parse(text).unwrap_err();
            assert!(faults[0].contains(part), "{part} in {faults:?}");
        }
    }
}
