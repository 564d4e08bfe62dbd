//! The names that things of many servers have in one list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ramen_mcp::model::Json;
use sha2::{Digest as _, Sha256};

use super::Origin;
use crate::list::Tool;
use crate::manager::Status;

/// Longest name: what most programs that use tools accept.
const MAX_NAME: usize = 64;

/// How things are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// `server_tool`.
    #[default]
    Prefixed,
    /// As the server calls it: for one server alone. Of several with one name the first counts.
    Plain,
}

/// Whether a prefixed name belongs to this server: whatever begins so is its own, also where it offers nothing of that
/// name.
pub fn starts_with(name: &str, server: &str) -> bool {
    let rest = name.strip_prefix(server);
    rest.is_some_and(|rest| rest.starts_with('_'))
}

/// The tools of every server that can be used, by the name they have here.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_name: HashMap<String, usize>,
    tools: Vec<(String, Origin, Tool)>,
}

impl Names {
    pub(super) fn of(servers: &[Status], naming: Naming) -> Self {
        let mut names = Self::default();
        let mut taken = HashSet::new();
        for server in servers {
            let tools: &Arc<[Tool]> = &server.tools;
            let things: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let here = all(naming, &server.name, &things, &mut taken);
            for (tool, name) in tools.iter().zip(here) {
                let Some(name) = name else { continue };
                let origin = Origin {
                    server: server.name.clone(),
                    name: tool.name.clone(),
                };
                names.by_name.insert(name.clone(), names.tools.len());
                names.tools.push((name, origin, tool.clone()));
            }
        }
        names
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = (&str, &Origin, &Tool)> {
        self.tools
            .iter()
            .map(|(name, origin, tool)| (name.as_str(), origin, tool))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Origin> {
        self.entry(name).map(|(_, origin, _)| origin)
    }

    pub(super) fn schema(&self, name: &str) -> Option<&Json> {
        self.entry(name).map(|(.., tool)| &tool.input_schema)
    }

    fn entry(&self, name: &str) -> Option<&(String, Origin, Tool)> {
        self.tools.get(*self.by_name.get(name)?)
    }
}

/// The names of all things of a server, in their order. Those that can stay as they are come first: a name that had to
/// be changed never takes theirs.
pub(super) fn all(
    naming: Naming,
    server: &str,
    things: &[&str],
    taken: &mut HashSet<String>,
) -> Vec<Option<String>> {
    let mut names = vec![None; things.len()];
    for exact in [true, false] {
        for (place, thing) in names.iter_mut().zip(things) {
            if thing.chars().all(fits) == exact {
                *place = name(naming, server, thing, taken);
            }
        }
    }
    names
}

/// Whether a character can stay in a name.
fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// The name of a thing of a server; `None` when a plain one is taken. Always the same for the same two, whatever else
/// is there, unless two would have one name.
fn name(naming: Naming, server: &str, thing: &str, taken: &mut HashSet<String>) -> Option<String> {
    if naming == Naming::Plain {
        return taken.insert(thing.to_owned()).then(|| thing.to_owned());
    }
    let plain: String = format!("{server}_{thing}")
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    let name = if plain.len() > MAX_NAME || taken.contains(&plain) {
        let mut digest = Sha256::new();
        digest.update(server.as_bytes());
        digest.update([0]);
        digest.update(thing.as_bytes());
        let digest = hex::encode(digest.finalize());
        let kept = plain.len().min(MAX_NAME - 9);
        format!("{}_{}", &plain[..kept], &digest[..8])
    } else {
        plain
    };
    taken.insert(name.clone()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(things: &[(&str, &str)]) -> Vec<String> {
        let mut taken = HashSet::new();
        things
            .iter()
            .filter_map(|(server, thing)| name(Naming::Prefixed, server, thing, &mut taken))
            .collect()
    }

    #[test]
    fn names_begin_with_their_server_and_fit_where_names_are_narrow() {
        assert_eq!(
            named(&[("git", "log"), ("my server", "a.b/c")]),
            ["git_log", "my_server_a_b_c"]
        );
        let long = named(&[
            ("server", &"x".repeat(100)),
            ("server", &format!("{}y", "x".repeat(99))),
        ]);
        assert!(long.iter().all(|name| name.len() <= 64), "{long:?}");
        assert_ne!(long[0], long[1]);
    }

    #[test]
    fn two_that_would_have_one_name_have_two() {
        let both = named(&[("a_b", "c"), ("a", "b_c"), ("a", "b.c")]);
        assert_eq!(both[0], "a_b_c");
        assert_eq!(both.iter().collect::<HashSet<_>>().len(), 3, "{both:?}");
        assert!(both.iter().all(|name| name.starts_with("a_b_c")));
    }
}
