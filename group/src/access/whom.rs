//! Whom a rule is about.

use serde_json::Value;

use super::{ANYBODY, ClaimText, Identity, claim, has};

/// Bearers of tokens, or of keys. Of tokens the kinds are all asked for, the entries of one kind are a choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whom {
    /// Whose tokens; absent: those of every issuer that is trusted.
    pub issuer: Option<String>,
    /// Subjects; `*` is every one.
    pub subjects: Vec<String>,
    /// Groups, one of which the token names.
    pub groups: Vec<String>,
    /// Claims that the token makes, all of them.
    pub claims: Vec<ClaimText>,
    /// Names of keys; `*` is every one.
    pub keys: Vec<String>,
}

impl Whom {
    /// Whether it is about tokens.
    fn names_tokens(&self) -> bool {
        !(self.subjects.is_empty() && self.groups.is_empty() && self.claims.is_empty())
    }

    /// Whether it is about keys.
    pub fn names_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The keys that it names, those besides `*`.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        let names = self.keys.iter().map(String::as_str);
        names.filter(|name| *name != ANYBODY)
    }

    /// Whether the bearer of the key of this name is meant.
    pub fn is_key(&self, name: Option<&str>) -> bool {
        has(&self.keys, name)
    }

    /// Whether the bearer of such a token is meant.
    pub fn is(&self, identity: &Identity) -> bool {
        let issuer = self.issuer.as_ref();
        let groups = &self.groups;
        self.names_tokens()
            && issuer.is_none_or(|issuer| *issuer == identity.issuer)
            && (self.subjects.is_empty() || has(&self.subjects, Some(&identity.subject)))
            && (groups.is_empty() || identity.groups.iter().any(|group| groups.contains(group)))
            && self.claims.iter().all(|claim| claim.is_made(identity))
    }

    /// What is wrong with it: the field, such as `.claims[0].name`, and in words.
    pub fn judge(&self, mut push: impl FnMut(String, &str)) {
        for (field, list) in [
            (".subjects", &self.subjects),
            (".groups", &self.groups),
            (".keys", &self.keys),
        ] {
            judge_list(field, list, &mut push);
        }
        for (n, claim) in self.claims.iter().enumerate() {
            let field = format!(".claims[{n}]");
            if claim.name.is_empty() {
                push(format!("{field}.name"), "must name a claim");
            }
            if claim.values.is_empty() {
                push(format!("{field}.values"), "must name a value");
            }
        }
        match (self.names_tokens(), self.names_keys()) {
            (false, false) => push(
                String::new(),
                "must say whom it is about: subjects, groups, claims or keys",
            ),
            (true, true) => push(
                ".keys".to_owned(),
                "a rule is about keys or about tokens; write two rules",
            ),
            _ => {}
        }
        if self.names_keys() && self.issuer.is_some() {
            push(".issuer".to_owned(), "keys have no issuer");
        }
    }
}

/// What is wrong with a list of names.
pub fn judge_list(field: &str, list: &[String], mut push: impl FnMut(String, &str)) {
    if list.len() > super::MAX_ENTRIES {
        push(field.to_owned(), "has more than 128 entries");
    }
    for (n, entry) in list.iter().enumerate() {
        if entry.is_empty() || entry.len() > super::MAX_ENTRY {
            push(format!("{field}[{n}]"), "has from 1 to 512 bytes");
        }
    }
}

impl ClaimText {
    fn is_made(&self, identity: &Identity) -> bool {
        let wanted = |text: &str| self.values.iter().any(|value| value == text);
        match claim(&identity.claims, &self.name) {
            // The scopes of a token are one text (RFC 9068).
            Some(Value::String(text)) if self.name == "scope" => text.split(' ').any(wanted),
            Some(Value::Array(values)) => values.iter().filter_map(plain).any(|text| wanted(&text)),
            Some(value) => plain(value).is_some_and(|text| wanted(&text)),
            None => false,
        }
    }
}

/// A value as a rule writes it.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}
