//! Which refs a push moved, and which a group follows. Names are compared in full: `refs/heads/v1` is not
//! `refs/tags/v1`. Pure.

use ramen_crds::GitRef;

const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";

/// What a group looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Follows {
    /// One branch or tag, by its full name.
    Ref(String),
    /// Whichever branch HEAD points to: which one that is, only the repository knows.
    AnyBranch,
    /// Some tag.
    AnyTag,
    /// A commit, which can be on any.
    Any,
}

impl Follows {
    /// From the spec.
    pub(crate) fn of(reference: Option<&GitRef>) -> Self {
        let Some(reference) = reference else {
            return Self::AnyBranch;
        };
        let full = |prefix: &str, name: &str| {
            let name = name.strip_prefix(prefix).unwrap_or(name);
            Self::Ref(format!("{prefix}{name}"))
        };
        match reference {
            GitRef {
                commit: Some(_), ..
            } => Self::Any,
            GitRef {
                semver: Some(_), ..
            } => Self::AnyTag,
            GitRef {
                tag: Some(name), ..
            } => full(TAGS, name),
            GitRef {
                branch: Some(name), ..
            } => full(BRANCHES, name),
            GitRef {
                name: Some(name), ..
            } if name.starts_with("refs/") => Self::Ref(name.clone()),
            // A tag or a branch: which of them, only the repository knows.
            GitRef { name: Some(_), .. } => Self::Any,
            _ => Self::AnyBranch,
        }
    }

    /// Whether a push that moved these refs is about this. No refs: the hook does not say which.
    pub(super) fn is_moved_by(&self, moved: &[String]) -> bool {
        moved.is_empty()
            || moved.iter().any(|name| match self {
                Self::Ref(own) => own == name,
                Self::AnyBranch => name.starts_with(BRANCHES),
                Self::AnyTag => name.starts_with(TAGS),
                Self::Any => true,
            })
    }
}

/// The full name of a ref that a sender tells in two parts.
pub(super) fn full(kind: &str, name: &str) -> Option<String> {
    match kind {
        "branch" | "named_branch" => Some(format!("{BRANCHES}{name}")),
        "tag" | "annotated_tag" => Some(format!("{TAGS}{name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follows(field: &str, value: &str) -> Follows {
        let reference = serde_json::json!({ field: value });
        Follows::of(Some(&serde_json::from_value(reference).unwrap()))
    }

    #[test]
    fn a_branch_is_not_the_tag_of_the_same_name() {
        let moved = |name: &str| vec![name.to_owned()];
        let branch = follows("branch", "v1");
        assert!(branch.is_moved_by(&moved("refs/heads/v1")));
        assert!(!branch.is_moved_by(&moved("refs/tags/v1")));
        assert!(!branch.is_moved_by(&moved("refs/heads/v1/x")));
        assert!(!branch.is_moved_by(&moved("v1")));
        let tag = follows("tag", "v1");
        assert!(tag.is_moved_by(&moved("refs/tags/v1")));
        assert!(!tag.is_moved_by(&moved("refs/heads/v1")));
        assert!(follows("semver", ">=1").is_moved_by(&moved("refs/tags/v9")));
        assert!(!follows("semver", ">=1").is_moved_by(&moved("refs/heads/v9")));
        assert!(follows("commit", &"a".repeat(40)).is_moved_by(&moved("refs/notes/x")));
        let full = follows("name", "refs/heads/v1");
        assert!(full.is_moved_by(&moved("refs/heads/v1")));
        assert!(!full.is_moved_by(&moved("refs/tags/v1")));
        assert!(follows("name", "v1").is_moved_by(&moved("refs/tags/v1")));
        for head in [Follows::of(None), Follows::of(Some(&GitRef::default()))] {
            assert!(head.is_moved_by(&moved("refs/heads/anything")));
            assert!(!head.is_moved_by(&moved("refs/tags/anything")));
        }
    }

    #[test]
    fn a_hook_that_names_no_ref_is_about_all() {
        for reference in [
            follows("branch", "main"),
            follows("tag", "v1"),
            Follows::of(None),
        ] {
            assert!(reference.is_moved_by(&[]));
        }
        let several = ["refs/heads/x".to_owned(), "refs/heads/main".to_owned()];
        assert!(follows("branch", "main").is_moved_by(&several));
        assert_eq!(
            follows("branch", "refs/heads/main"),
            follows("branch", "main")
        );
    }
}
