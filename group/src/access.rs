//! Access rules: who may use which tools, resources and prompts of a group. Pure.
//!
//! A rule says whom it is about and what those may use; what no rule allows is not there for the caller. The kinds of
//! a rule's "whom" are all asked for (`groups` *and* `claims`), the entries of one kind are a choice. Callers with a
//! key are held to the rules as soon as one of them names keys, and may use everything otherwise.

mod pattern;
#[cfg(test)]
mod tests;
mod whom;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

pub use self::pattern::Pattern;
pub use self::whom::{Whom, judge_list};

/// Rules of one group, at most.
pub const MAX_RULES: usize = 64;
/// Entries of one list of a rule, at most.
pub const MAX_ENTRIES: usize = 128;
/// Length of one entry, at most.
pub const MAX_ENTRY: usize = 512;
/// Stands for every caller of its kind.
const ANYBODY: &str = "*";

/// A rule as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuleText {
    /// Whose tokens it is about; absent: those of every issuer that the gateway trusts.
    pub issuer: Option<String>,
    /// Subjects of tokens; `*` is every one.
    pub subjects: Vec<String>,
    /// Groups, one of which the token names.
    pub groups: Vec<String>,
    /// Claims that the token makes, all of them.
    pub claims: Vec<ClaimText>,
    /// Names of keys; `*` is every one.
    pub keys: Vec<String>,
    /// Names of tools, `*` for any characters.
    pub tools: Vec<String>,
    /// URIs of resources, `*` for any characters.
    pub resources: Vec<String>,
    /// Names of prompts, `*` for any characters.
    pub prompts: Vec<String>,
}

/// A claim as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimText {
    /// Its name, or a path to it with dots.
    pub name: String,
    /// Values, one of which it has.
    pub values: Vec<String>,
}

/// What is wrong with a rule: where, from the list of rules on, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// `[0].tools[1]`.
    pub field: String,
    /// In words.
    pub message: String,
}

/// Who a token speaks of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Identity {
    /// Who made the token.
    pub issuer: String,
    /// Of whom it speaks.
    pub subject: String,
    /// The groups of that one.
    pub groups: Vec<String>,
    /// Everything that the token says.
    pub claims: Map<String, Value>,
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A tool by its name.
    Tool(&'a str),
    /// A resource by its URI, a template by its text.
    Resource(&'a str),
    /// A prompt by its name.
    Prompt(&'a str),
}

/// Rules that can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRules {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    whom: Whom,
    tools: Vec<Pattern>,
    resources: Vec<Pattern>,
    prompts: Vec<Pattern>,
}

/// What one caller may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed(Option<(Arc<AccessRules>, u64)>);

impl Allowed {
    /// Everything.
    pub const EVERYTHING: Self = Self(None);

    /// Whether nothing is kept from the caller.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the caller may use this.
    pub fn allows(&self, item: Item<'_>) -> bool {
        let Some((rules, mask)) = &self.0 else {
            return true;
        };
        let mut about = rules.rules.iter().enumerate();
        about.any(|(at, rule)| mask & (1 << at) != 0 && rule.allows(item))
    }
}

impl AccessRules {
    /// Judges rules as they are written; all faults are returned.
    pub fn new(texts: Vec<RuleText>) -> Result<Self, Vec<RuleFault>> {
        let mut faults = Vec::new();
        if texts.len() > MAX_RULES {
            faults.push(RuleFault {
                field: String::new(),
                message: format!("has more than {MAX_RULES} entries"),
            });
        }
        for (at, text) in texts.iter().enumerate() {
            judge(at, text, &mut faults);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let rules = texts.into_iter().map(Rule::of).collect();
        Ok(Self { rules })
    }

    /// What the bearer of a token may use; `None` when no rule is about them.
    pub fn of_identity(self: &Arc<Self>, identity: &Identity) -> Option<Allowed> {
        self.allowed(|rule| rule.whom.is(identity))
    }

    /// What the bearer of a key may use; `None` when no rule is about it.
    pub fn of_key(self: &Arc<Self>, name: Option<&str>) -> Option<Allowed> {
        if !self.rules.iter().any(|rule| rule.whom.names_keys()) {
            return Some(Allowed::EVERYTHING);
        }
        self.allowed(|rule| rule.whom.is_key(name))
    }

    /// Where rules name keys that are not there: the field, such as `rules[0].keys`, and the name.
    pub fn unknown_keys(&self, is_there: impl Fn(&str) -> bool) -> Vec<(String, &str)> {
        let rules = self.rules.iter().enumerate();
        let named = rules.flat_map(|(at, rule)| {
            let names = rule.whom.key_names();
            names.map(move |name| (at, name))
        });
        let unknown = named.filter(|(_, name)| !is_there(name));
        unknown
            .map(|(at, name)| (format!("rules[{at}].keys"), name))
            .collect()
    }

    fn allowed(self: &Arc<Self>, about: impl Fn(&Rule) -> bool) -> Option<Allowed> {
        let rules = self.rules.iter().enumerate();
        let mask = rules
            .filter(|(_, rule)| about(rule))
            .fold(0_u64, |mask, (at, _)| mask | 1 << at);
        (mask != 0).then(|| Allowed(Some((Arc::clone(self), mask))))
    }
}

impl Rule {
    fn of(text: RuleText) -> Self {
        let patterns = |list: Vec<String>| list.into_iter().map(Pattern::from).collect();
        let (whom, text) = text.split();
        Self {
            whom,
            tools: patterns(text.tools),
            resources: patterns(text.resources),
            prompts: patterns(text.prompts),
        }
    }

    fn allows(&self, item: Item<'_>) -> bool {
        let (patterns, name) = match item {
            Item::Tool(name) => (&self.tools, name),
            Item::Resource(uri) => (&self.resources, uri),
            Item::Prompt(name) => (&self.prompts, name),
        };
        patterns.iter().any(|pattern| pattern.matches(name))
    }
}

impl RuleText {
    /// Whom it is about, and the rest.
    fn split(mut self) -> (Whom, Self) {
        let whom = Whom {
            issuer: self.issuer.take(),
            subjects: std::mem::take(&mut self.subjects),
            groups: std::mem::take(&mut self.groups),
            claims: std::mem::take(&mut self.claims),
            keys: std::mem::take(&mut self.keys),
        };
        (whom, self)
    }
}

/// A claim by its name, or by a path with dots; a name that has dots itself comes first.
pub fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let mut parts = name.split('.');
    let mut value = claims.get(parts.next()?)?;
    for part in parts {
        value = value.as_object()?.get(part)?;
    }
    Some(value)
}

fn has(list: &[String], name: Option<&str>) -> bool {
    list.iter()
        .any(|entry| entry == ANYBODY || Some(entry.as_str()) == name)
}

fn judge(at: usize, rule: &RuleText, faults: &mut Vec<RuleFault>) {
    let mut push = |field: String, message: &str| {
        faults.push(RuleFault {
            field: format!("[{at}]{field}"),
            message: message.to_owned(),
        });
    };
    let (whom, rule) = rule.clone().split();
    whom.judge(&mut push);
    for (field, list) in [
        (".tools", &rule.tools),
        (".resources", &rule.resources),
        (".prompts", &rule.prompts),
    ] {
        judge_list(field, list, &mut push);
    }
    if rule.tools.is_empty() && rule.resources.is_empty() && rule.prompts.is_empty() {
        push(
            String::new(),
            "must say what may be used: tools, resources or prompts",
        );
    }
}
