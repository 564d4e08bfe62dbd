//! What the paths of the endpoint name. Pure.

use ramen_source::{Digest, Kind};

use super::DeployId;
use crate::group::GroupKey;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Layer(Kind, Digest),
    Deploy(DeployId, What),
}

/// What of a deploy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Lock(String),
    Deps(String),
    Report,
}

impl Place {
    /// From the path of a request.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/v1/")?.split('/');
        // One more than any path has: nothing may follow.
        let parts: [Option<&str>; 8] = std::array::from_fn(|_| parts.next());
        let deploy = |namespace: &str, name: &str, id: &str, what: What| {
            [namespace, name, id]
                .iter()
                .all(|part| is_key(part))
                .then(|| {
                    let deploy = DeployId {
                        group: GroupKey::new(namespace, name),
                        id: id.to_owned(),
                    };
                    Self::Deploy(deploy, what)
                })
        };
        match parts {
            [Some("layers"), Some(kind), Some(digest), None, ..] => {
                let kind = Kind::ALL.into_iter().find(|one| one.as_str() == kind)?;
                Some(Self::Layer(kind, digest.parse().ok()?))
            }
            [Some("deploys"), Some(ns), Some(name), Some(id), tail @ ..] => match tail {
                [Some("report"), None, ..] => deploy(ns, name, id, What::Report),
                [Some("locks"), Some(key), None, ..] if is_key(key) => {
                    deploy(ns, name, id, What::Lock(key.to_owned()))
                }
                [Some("layers"), Some("deps"), Some(key), None] if is_key(key) => {
                    deploy(ns, name, id, What::Deps(key.to_owned()))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Short enough to be kept under the group's scope.
fn is_key(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= 100 && !text.starts_with('.') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_paths_name_something() {
        let digest = Digest::of(b"x");
        let path = format!("/v1/layers/deps/{digest}");
        assert_eq!(Place::parse(&path), Some(Place::Layer(Kind::Deps, digest)));
        let deploy = DeployId {
            group: GroupKey::new("ns", "g"),
            id: "0a".into(),
        };
        let at = |what| Some(Place::Deploy(deploy.clone(), what));
        let parse = |tail: &str| Place::parse(&format!("/v1/deploys/ns/g/0a/{tail}"));
        assert_eq!(parse("report"), at(What::Report));
        assert_eq!(parse("locks/k"), at(What::Lock("k".into())));
        assert_eq!(parse("layers/deps/k"), at(What::Deps("k".into())));
        for wrong in [
            "report/",
            "report/x",
            "",
            "locks",
            "locks/",
            "locks/..",
            "locks/a%2fb",
            "locks/a/b",
            "layers/code/k",
            "layers/deps",
            "layers/deps/",
            "layers/deps/k/x",
            "layers/deps/.k",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        for wrong in [
            "/",
            "/v1",
            "/v1/",
            "/v1/layers",
            "/v1/layers/deps",
            "/v1/layers/deps/sha256:00",
            "/v1/deploys//g/0a/report",
            "/v2/layers",
            "//v1/layers",
            "/v1/deploys/ns/g/../report",
        ] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Place::parse(&format!("{path}/")), None);
        assert_eq!(Place::parse(&format!("/v1/layers/other/{digest}")), None);
    }
}
