//! What was called lately: who, what, how it ended. No arguments and no results are kept.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::groups::GroupName;

/// Calls that are remembered.
const KEPT: usize = 1000;
/// Longest name of a tool, resource or prompt that is remembered.
const MAX_NAME: usize = 128;

/// The calls of late, of all groups.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<Entry>>);

#[derive(Debug, Clone)]
struct Entry {
    at: SystemTime,
    group: GroupName,
    caller: std::sync::Arc<str>,
    method: String,
    name: Option<String>,
    status: u16,
    took: Duration,
}

/// One call that ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// Of which group.
    pub group: &'a GroupName,
    /// Who called.
    pub caller: &'a std::sync::Arc<str>,
    /// The method.
    pub method: &'a str,
    /// The tool, prompt or resource.
    pub name: Option<&'a str>,
    /// The HTTP status.
    pub status: u16,
    /// How long it took.
    pub took: Duration,
}

impl Recent {
    /// Remembers a call.
    pub fn note(&self, ended: &Ended<'_>) {
        let entry = Entry {
            at: SystemTime::now(),
            group: ended.group.clone(),
            caller: ended.caller.clone(),
            method: ended.method.chars().take(MAX_NAME).collect(),
            name: ended.name.map(|name| name.chars().take(MAX_NAME).collect()),
            status: ended.status,
            took: ended.took,
        };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// The newest calls, newest first, of the groups that may be shown.
    pub fn newest(&self, shown: impl Fn(&GroupName) -> bool, limit: usize) -> Vec<Value> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = entries.iter().rev().filter(|entry| shown(&entry.group));
        chosen.take(limit).map(Entry::json).collect()
    }
}

impl Entry {
    fn json(&self) -> Value {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut json = json!({
            "unixMs": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            "group": self.group.to_string(),
            "caller": &*self.caller,
            "method": self.method,
            "status": self.status,
            "tookMs": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(name) = &self.name {
            json["name"] = name.as_str().into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let recent = Recent::default();
        let group = |name: &str| GroupName {
            namespace: "a".into(),
            name: name.into(),
        };
        for n in 0..KEPT + 2 {
            recent.note(&Ended {
                group: &group(if n % 2 == 0 { "even" } else { "odd" }),
                caller: &"key:1".into(),
                method: "tools/call",
                name: Some(&n.to_string()),
                status: 200,
                took: Duration::ZERO,
            });
        }
        let all = recent.newest(|_| true, KEPT + 10);
        assert_eq!(all.len(), KEPT);
        assert_eq!(
            (all[0]["name"].as_str(), all[KEPT - 1]["name"].as_str()),
            (Some("1001"), Some("2"))
        );
        assert_eq!(
            recent.newest(|of| *of == group("even"), 1)[0]["name"],
            "1000"
        );
    }
}
