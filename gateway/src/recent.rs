//! What was called lately: who, what, how it ended. No arguments and no results are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::groups::GroupName;
use crate::metrics::Outcome;

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
    call: Called,
    end: End,
    took: Duration,
}

/// A call, as far as it is remembered.
#[derive(Debug, Clone)]
pub struct Called {
    group: GroupName,
    caller: Arc<str>,
    method: String,
    name: Option<String>,
}

impl Called {
    /// A method of a group by somebody, and the tool, prompt or resource that it is about.
    pub fn new(group: &GroupName, caller: &Arc<str>, method: &str, name: Option<&str>) -> Self {
        let clipped = |text: &str| text.chars().take(MAX_NAME).collect();
        Self {
            group: group.clone(),
            caller: Arc::clone(caller),
            method: clipped(method),
            name: name.map(clipped),
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    outcome: Outcome,
    /// That of HTTP; `None`: the caller went away before there was one.
    status: Option<u16>,
}

/// A call under way. It is remembered when this is dropped, however that comes: as cancelled unless it was told to have
/// ended.
#[derive(Debug)]
pub struct Noted {
    recent: Arc<Recent>,
    /// Until it is remembered.
    call: Option<Called>,
    begin: Instant,
    end: Mutex<End>,
}

impl Noted {
    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is answered so. What comes as events goes on.
    pub(crate) fn answered(&self, answer: &Answer) {
        let mut end = self.end();
        end.status = Some(answer.status().as_u16());
        let outcome = Outcome::of(answer);
        if outcome != Outcome::Stream {
            end.outcome = outcome;
        }
    }

    /// It ended so.
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.end().outcome = outcome;
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let entry = Entry {
            at: SystemTime::now(),
            call,
            end: *self.end(),
            took: self.begin.elapsed(),
        };
        let mut entries = self.recent.entries();
        if entries.len() >= KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }
}

impl Recent {
    /// A call begins.
    pub fn begin(self: &Arc<Self>, call: Called) -> Noted {
        Noted {
            recent: Arc::clone(self),
            call: Some(call),
            begin: Instant::now(),
            end: Mutex::new(End {
                outcome: Outcome::Cancelled,
                status: None,
            }),
        }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest calls, newest first, of the groups that may be shown.
    pub fn newest(&self, shown: impl Fn(&GroupName) -> bool, limit: usize) -> Vec<Value> {
        let entries = self.entries();
        let chosen = entries.iter().rev();
        let chosen = chosen.filter(|entry| shown(&entry.call.group));
        chosen.take(limit).map(Entry::json).collect()
    }
}

impl Entry {
    fn json(&self) -> Value {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut json = json!({
            "unixMs": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            "group": self.call.group.to_string(),
            "caller": &*self.call.caller,
            "method": self.call.method,
            "outcome": self.end.outcome.label(),
            "tookMs": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        });
        if let Some(name) = &self.call.name {
            json["name"] = name.as_str().into();
        }
        if let Some(status) = self.end.status {
            json["status"] = status.into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let recent = Arc::<Recent>::default();
        let group = |name: &str| GroupName {
            namespace: "a".into(),
            name: name.into(),
        };
        for n in 0..KEPT + 2 {
            let group = group(if n % 2 == 0 { "even" } else { "odd" });
            let name = n.to_string();
            let call = Called::new(&group, &"key:1".into(), "tools/call", Some(&name));
            drop(recent.begin(call));
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
