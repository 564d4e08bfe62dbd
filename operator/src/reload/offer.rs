//! What a deploy said that its revision offers, as it is remembered: as small for a thousand packages as for one.

use std::collections::BTreeSet;

use ramen_group::{PackageKind, ReportPackage};
use ramen_proto::v1::ReloadResponse;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Names that a message lists.
const SHOWN: usize = 10;

/// How much a revision offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Offer {
    tools: u32,
    resources: u32,
    prompts: u32,
    /// A hash of the names of all tools.
    names: String,
}

/// What a worker is held to after a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    /// How much there must be.
    pub(crate) offer: Offer,
    /// The tools that are remembered by name, for the words of a refusal; there may be more.
    pub(crate) tools: BTreeSet<String>,
}

impl Offer {
    /// Of the packages of a whole report.
    pub(crate) fn of(packages: &[ReportPackage]) -> Self {
        let serves = |kind: PackageKind| {
            let packages = packages.iter();
            packages.filter(move |package| package.ok && package.kind == kind)
        };
        let count = |kind| u32::try_from(serves(kind).count()).unwrap_or(u32::MAX);
        let tools = serves(PackageKind::Tool);
        let names: BTreeSet<&str> = tools.map(|tool| tool.name.as_str()).collect();
        Self {
            tools: count(PackageKind::Tool),
            resources: count(PackageKind::Resource),
            prompts: count(PackageKind::Prompt),
            names: digest(&names),
        }
    }

    /// How many tools there are.
    pub(crate) fn tools(&self) -> u32 {
        self.tools
    }

    /// Compares the numbers in the answer to a reload.
    pub(super) fn numbers(&self, response: &ReloadResponse) -> Result<(), String> {
        for (kind, found, wanted) in [
            (PackageKind::Tool, response.tools, self.tools),
            (PackageKind::Resource, response.resources, self.resources),
            (PackageKind::Prompt, response.prompts, self.prompts),
        ] {
            if found != wanted {
                let folder = kind.folder();
                return Err(format!("it serves {found} {folder} instead of {wanted}"));
            }
        }
        Ok(())
    }
}

impl Expected {
    /// Compares the names in the answer to `tools/list`.
    pub(super) fn names(&self, found: &BTreeSet<String>) -> Result<(), String> {
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        if digest(&found) == self.offer.names {
            return Ok(());
        }
        let known: BTreeSet<&str> = self.tools.iter().map(String::as_str).collect();
        let missing = list(known.difference(&found));
        // What is none of these may be one of those that are not remembered by name.
        let all = u32::try_from(known.len()) == Ok(self.offer.tools);
        let more = list(found.difference(&known)).filter(|_| all);
        Err(match (missing, more) {
            (None, None) => "tools/list has other names than the deploy found".to_owned(),
            (Some(missing), None) => format!("tools/list lacks {missing}"),
            (None, Some(more)) => format!("tools/list has {more} besides"),
            (Some(missing), Some(more)) => {
                format!("tools/list lacks {missing} and has {more} besides")
            }
        })
    }
}

/// A hash of names in their order.
fn digest(names: &BTreeSet<&str>) -> String {
    let mut hash = Sha256::new();
    for name in names {
        hash.update(name.as_bytes());
        // In no name.
        hash.update(b"\0");
    }
    hex::encode(&hash.finalize()[..16])
}

fn list<'a>(names: impl Iterator<Item = &'a &'a str>) -> Option<String> {
    let names: Vec<&str> = names.copied().collect();
    if names.is_empty() {
        return None;
    }
    let text = names[..names.len().min(SHOWN)].join(", ");
    Some(match names.len().checked_sub(SHOWN) {
        None | Some(0) => text,
        Some(more) => format!("{text} and {more} more"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn packages(names: &[&str]) -> Vec<ReportPackage> {
        let package = |name: &&str| ReportPackage {
            kind: PackageKind::Tool,
            name: (*name).into(),
            description: None,
            ok: !name.starts_with("bad"),
            uri: None,
        };
        names.iter().map(package).collect()
    }

    /// Of a deploy that found these; those that begin with `bad` do not serve.
    pub(crate) fn expected(names: &[&str]) -> Expected {
        let packages = packages(names);
        let served = packages.iter().filter(|package| package.ok);
        Expected {
            offer: Offer::of(&packages),
            tools: served.map(|package| package.name.clone()).collect(),
        }
    }

    #[test]
    fn the_names_of_the_tools_must_be_those_of_the_report() {
        let found = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = expected(&["a", "b", "bad1"]);
        assert_eq!(wanted.names(&found(&["b", "a"])), Ok(()));
        let lacks = wanted.names(&found(&["a"]));
        assert_eq!(lacks, Err("tools/list lacks b".into()));
        let both = wanted.names(&found(&["a", "c"]));
        assert_eq!(both, Err("tools/list lacks b and has c besides".into()));
        let many: Vec<String> = (0..30).map(|n| format!("t{n:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let none = expected(&many).names(&BTreeSet::new()).unwrap_err();
        assert!(none.ends_with("t09 and 20 more"), "{none}");
    }

    #[test]
    fn names_that_are_not_remembered_one_by_one_count_all_the_same() {
        let found = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut wanted = expected(&["a", "b", "c"]);
        wanted.tools.remove("c");
        assert_eq!(wanted.names(&found(&["a", "b", "c"])), Ok(()));
        let other = wanted.names(&found(&["a", "b", "d"]));
        let words = "tools/list has other names than the deploy found";
        assert_eq!(other, Err(words.into()));
        let lacks = wanted.names(&found(&["a", "c"]));
        assert_eq!(lacks, Err("tools/list lacks b".into()));
    }

    #[test]
    fn the_numbers_must_be_those_of_the_report() {
        let response = |tools| ReloadResponse {
            generation: 1,
            tools,
            resources: 0,
            prompts: 0,
        };
        let wanted = expected(&["a", "bad"]).offer;
        assert_eq!(wanted.numbers(&response(1)), Ok(()));
        let more = wanted.numbers(&response(2));
        assert_eq!(more, Err("it serves 2 tools instead of 1".into()));
    }
}
