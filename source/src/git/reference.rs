//! From a wanted ref to a commit.
//!
//! Precedence of the fields of a source: `commit` over `name` over `semver` over `tag` over
//! `branch`; with none, the remote's HEAD. `commit` together with `branch` asks that the commit
//! lies on the branch. Where one word may be several things ([`Wanted::Any`], the command line), a
//! tag comes before a branch, as git itself reads a word; annotated tags are peeled.

use std::fmt;

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use super::GitError;

/// A ref of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRef {
    /// `HEAD`, `refs/heads/main`, …
    pub name: String,
    /// The object; for an annotated tag the tag itself.
    pub id: String,
    /// The commit of an annotated tag.
    pub peeled: Option<String>,
    /// Where HEAD points to.
    pub target: Option<String>,
}

impl RemoteRef {
    fn commit(&self) -> &str {
        self.peeled.as_deref().unwrap_or(&self.id)
    }
}

/// What is wanted of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Wanted {
    /// The remote's HEAD.
    #[default]
    Head,
    /// A branch, without `refs/heads/`.
    Branch(String),
    /// A tag, without `refs/tags/`.
    Tag(String),
    /// The highest version among the tags that is in the range.
    Semver(String),
    /// A full ref name.
    Name(String),
    /// A full commit id, which must lie on the branch when one is named.
    Commit {
        /// 40 hex digits.
        id: String,
        /// A branch.
        branch: Option<String>,
    },
    /// A tag, else a branch.
    Any(String),
}

impl Wanted {
    /// From the fields of a source; empty ones count as absent.
    pub fn from_fields(
        branch: Option<&str>,
        tag: Option<&str>,
        semver: Option<&str>,
        name: Option<&str>,
        commit: Option<&str>,
    ) -> Result<Self, GitError> {
        let given = |field: Option<&str>| field.filter(|f| !f.is_empty()).map(str::to_owned);
        let branch = given(branch);
        let wanted = if let Some(id) = given(commit) {
            Self::Commit {
                id: id.to_ascii_lowercase(),
                branch,
            }
        } else if let Some(name) = given(name) {
            Self::Name(name)
        } else if let Some(range) = given(semver) {
            Self::Semver(range)
        } else if let Some(tag) = given(tag) {
            Self::Tag(tag)
        } else {
            branch.map_or(Self::Head, Self::Branch)
        };
        wanted.checked()
    }

    /// From one word: nothing or `HEAD`, a full commit id, `refs/…`, else a tag or a branch.
    pub fn parse(word: &str) -> Result<Self, GitError> {
        let word = word.trim();
        let wanted = if word.is_empty() || word == "HEAD" {
            Self::Head
        } else if is_commit_id(word) {
            Self::Commit {
                id: word.to_ascii_lowercase(),
                branch: None,
            }
        } else {
            Self::named(word)
        };
        wanted.checked()
    }

    /// From a name: `refs/…`, else a tag or a branch. It has to be one that a ref can have.
    pub fn named(name: &str) -> Self {
        if name.starts_with("refs/") {
            Self::Name(name.to_owned())
        } else {
            Self::Any(name.to_owned())
        }
    }

    fn checked(self) -> Result<Self, GitError> {
        let invalid = |message: String| Err(GitError::Wanted { message });
        let names: &[&str] = match &self {
            Self::Head => &[],
            Self::Branch(name) | Self::Tag(name) | Self::Name(name) | Self::Any(name) => &[name],
            Self::Semver(range) => {
                Range::parse(range)?;
                &[]
            }
            Self::Commit { id, branch } => {
                if !is_commit_id(id) {
                    return invalid(format!(
                        "{:?} is not a full commit id of 40 hex digits; a short one cannot be looked up on a server",
                        clipped(id)
                    ));
                }
                &[branch.as_deref().unwrap_or("main")]
            }
        };
        for name in names {
            let odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
            if name.is_empty()
                || name.len() > 1024
                || name.starts_with(['-', '/'])
                || name.ends_with(['/', '.'])
                || name.contains("..")
                || name.contains("@{")
                || name.contains(odd)
            {
                return invalid(format!("{:?} is not a ref name", clipped(name)));
            }
        }
        if let Self::Name(name) = &self
            && !name.starts_with("refs/")
        {
            return invalid(format!(
                "a full name starts with `refs/`: {:?}",
                clipped(name)
            ));
        }
        Ok(self)
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(100).collect()
}

fn is_commit_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A ref resolved to a commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    /// `main`, `v1.2.0`; absent for a pinned commit or a detached HEAD.
    pub name: Option<String>,
    /// The ref to fetch; absent for a pinned commit.
    pub full_ref: Option<String>,
    /// The branch that a pinned commit must lie on.
    pub on_branch: Option<String>,
    /// 40 hex digits.
    pub commit: String,
}

impl Resolved {
    /// `main@sha1:<40 hex>`, `v1.2.0@sha1:…`, or `sha1:…`.
    pub fn revision(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}@")?;
        }
        write!(f, "sha1:{}", self.commit)
    }
}

/// What needs no list of refs.
pub(super) fn without_refs(wanted: &Wanted) -> Option<Resolved> {
    match wanted {
        Wanted::Commit { id, branch } => Some(pinned(id, branch.as_deref())),
        _ => None,
    }
}

fn pinned(id: &str, branch: Option<&str>) -> Resolved {
    let on_branch = branch.map(str::to_owned);
    Resolved {
        name: None,
        full_ref: None,
        on_branch,
        commit: id.to_owned(),
    }
}

/// Finds the commit that is wanted among the refs of a remote.
pub(super) fn resolve(refs: &[RemoteRef], wanted: &Wanted) -> Result<Resolved, GitError> {
    let missing = |what: String| Err(GitError::RefNotFound { what });
    let get = |name: &str| refs.iter().find(|r| r.name == name);
    let at = |found: &RemoteRef, short: &str| Resolved {
        name: Some(short.to_owned()),
        full_ref: Some(found.name.clone()),
        on_branch: None,
        commit: found.commit().to_owned(),
    };
    let branch = |name: &str| get(&format!("refs/heads/{name}")).map(|r| at(r, name));
    let tag = |name: &str| get(&format!("refs/tags/{name}")).map(|r| at(r, name));
    match wanted {
        Wanted::Commit { id, branch } => Ok(pinned(id, branch.as_deref())),
        Wanted::Head => match get("HEAD") {
            Some(head) => Ok(match &head.target {
                Some(target) => Resolved {
                    full_ref: Some(target.clone()),
                    ..at(head, target.strip_prefix("refs/heads/").unwrap_or(target))
                },
                None => Resolved {
                    name: None,
                    ..at(head, "")
                },
            }),
            None if refs.is_empty() => missing("the repository is empty".to_owned()),
            None => missing(
                "the repository's HEAD names a branch that does not exist; name a branch"
                    .to_owned(),
            ),
        },
        Wanted::Branch(name) => match branch(name) {
            Some(found) => Ok(found),
            None if tag(name).is_some() => {
                missing(format!("there is no branch {name}, but a tag of that name"))
            }
            None => missing(format!("there is no branch {name}")),
        },
        Wanted::Tag(name) => match tag(name) {
            Some(found) => Ok(found),
            None if branch(name).is_some() => {
                missing(format!("there is no tag {name}, but a branch of that name"))
            }
            None => missing(format!("there is no tag {name}")),
        },
        Wanted::Name(name) => match get(name) {
            Some(found) => {
                let short = name
                    .strip_prefix("refs/heads/")
                    .or_else(|| name.strip_prefix("refs/tags/"))
                    .unwrap_or(name);
                Ok(at(found, short))
            }
            None => missing(format!("there is no ref {name}")),
        },
        Wanted::Any(name) => {
            if let Some(found) = tag(name).or_else(|| branch(name)) {
                return Ok(found);
            }
            let short_id = name.len() >= 4 && name.bytes().all(|b| b.is_ascii_hexdigit());
            let hint = if short_id {
                "; a commit needs all 40 digits of its id"
            } else {
                ""
            };
            missing(format!("there is neither a tag nor a branch {name}{hint}"))
        }
        Wanted::Semver(range) => {
            let parsed = Range::parse(range)?;
            let newest = refs
                .iter()
                .filter_map(|r| {
                    let name = r.name.strip_prefix("refs/tags/")?;
                    let version = Version::parse(name.strip_prefix('v').unwrap_or(name)).ok()?;
                    parsed.holds(&version).then_some((version, name, r))
                })
                // Build metadata has no precedence; the tag's name breaks the tie.
                .max_by(|a, b| a.0.cmp_precedence(&b.0).then_with(|| a.1.cmp(b.1)));
            match newest {
                Some((_, name, found)) => Ok(at(found, name)),
                None => missing(format!("no tag is a version in {range}")),
            }
        }
    }
}

fn is_operator(c: char) -> bool {
    "<>=~^".contains(c)
}

/// A range of versions as people write it for other tools: comparators separated by spaces or
/// commas, `||` between alternatives, a bare version means just that one, `1.2 - 1.4`.
struct Range {
    alternatives: Vec<VersionReq>,
}

impl Range {
    fn parse(text: &str) -> Result<Self, GitError> {
        let invalid = |message: String| GitError::Wanted {
            message: format!("{:?} is not a range of versions: {message}", clipped(text)),
        };
        let mut alternatives = Vec::new();
        for part in text.split("||") {
            let part = match part.split_once(" - ") {
                Some((from, to)) => format!(">={} <={}", from.trim(), to.trim()),
                None => part.to_owned(),
            };
            let mut comparators: Vec<String> = Vec::new();
            for word in part.split([' ', ',']).filter(|word| !word.is_empty()) {
                // `>= 1.2`: the operator belongs to the next word.
                match comparators.last_mut() {
                    Some(last) if last.chars().all(is_operator) => last.push_str(word),
                    _ => comparators.push(word.to_owned()),
                }
            }
            let comparators: Vec<String> = comparators
                .into_iter()
                .map(|word| {
                    let version = word.trim_start_matches(is_operator);
                    let operator = &word[..word.len() - version.len()];
                    let version = version.strip_prefix(['v', 'V']).unwrap_or(version);
                    let core = version.split(['-', '+']).next().unwrap_or_default();
                    let wild = core.contains(['x', 'X', '*']);
                    let operator = if operator.is_empty() && !wild {
                        "="
                    } else {
                        operator
                    };
                    format!("{operator}{version}")
                })
                .collect();
            if comparators.is_empty() {
                return Err(invalid("it is empty".to_owned()));
            }
            let range = VersionReq::parse(&comparators.join(","));
            alternatives.push(range.map_err(|e| invalid(e.to_string()))?);
        }
        Ok(Self { alternatives })
    }

    fn holds(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|range| holds(range, version))
    }
}

/// A pre-release is in a range only when the range itself names one. Then those of later versions
/// are in it, too (`>=1.2.0-0` takes `1.3.0-rc.1`).
fn holds(range: &VersionReq, version: &Version) -> bool {
    if range.matches(version) {
        return true;
    }
    let asks = range.comparators.iter().any(|c| !c.pre.is_empty());
    let same_triple = range.comparators.iter().any(|c| {
        !c.pre.is_empty()
            && (c.major, c.minor, c.patch)
                == (version.major, Some(version.minor), Some(version.patch))
    });
    asks && !same_triple
        && !version.pre.is_empty()
        && range.matches(&Version::new(version.major, version.minor, version.patch))
}

#[cfg(test)]
mod tests;
