//! What a hook says, once it is believed: which repository, and which refs moved. Every field may be
//! absent, empty or of another type. Pure.

use http::HeaderMap;
use serde_json::Value;

use super::refs;
use super::repository::Repository;
use super::sender::Sender;
use crate::inbound::single;

/// Addresses that are looked at.
const MAX_ADDRESSES: usize = 16;
/// Refs that are looked at: a hook that moved more is about all of them.
const MAX_REFS: usize = 1000;

/// What to do about a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Something was pushed.
    Push(Pushed),
    /// A ping, or an event that changes no ref.
    Other,
    /// The body is not what this sender sends; says what is wrong.
    Unreadable(&'static str),
}

/// Where, and what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pushed {
    /// The names of the repository. None: the hook means the group that its path names.
    pub(super) repositories: Vec<Repository>,
    /// Full names of the refs. None: the hook does not say which.
    pub(super) refs: Vec<String>,
}

/// Reads a hook.
pub(super) fn read(sender: Sender, headers: &HeaderMap, body: &[u8]) -> Said {
    let event = event_of(sender, headers);
    if !moves_refs(sender, event) {
        return Said::Other;
    }
    if sender == Sender::Generic && body.is_empty() {
        return Said::Push(Pushed::default());
    }
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return Said::Unreadable("the body is not JSON");
    };
    if !value.is_object() {
        return Said::Unreadable("the body is not a JSON object");
    }
    if !tells_of_refs(sender, event, &value) {
        return Said::Other;
    }
    let refs = match refs(sender, event, &value) {
        Some(refs) if refs.len() <= MAX_REFS => refs,
        Some(_) => Vec::new(),
        None => return Said::Unreadable("the body does not say which refs were pushed"),
    };
    Said::Push(Pushed {
        repositories: repositories(sender, &value),
        refs,
    })
}

fn event_of(sender: Sender, headers: &HeaderMap) -> &str {
    let names: &[&str] = match sender {
        Sender::GitHub => &["x-github-event"],
        Sender::Gitea => &["x-gitea-event"],
        Sender::Forgejo => &["x-forgejo-event", "x-gitea-event"],
        Sender::GitLab => &["x-gitlab-event"],
        Sender::Bitbucket => &["x-event-key"],
        // These say it in the body, or not at all.
        Sender::AzureDevOps | Sender::Generic => &[],
    };
    let mut told = names.iter().filter_map(|name| single(headers, name));
    told.next().unwrap_or_default()
}

/// By the headers.
fn moves_refs(sender: Sender, event: &str) -> bool {
    match sender {
        Sender::GitHub | Sender::Gitea | Sender::Forgejo => {
            matches!(event, "push" | "create" | "delete")
        }
        Sender::GitLab => matches!(event, "Push Hook" | "Tag Push Hook" | "System Hook"),
        Sender::Bitbucket => matches!(event, "repo:push" | "repo:refs_changed"),
        Sender::AzureDevOps | Sender::Generic => true,
    }
}

/// By the body, where the headers do not tell.
fn tells_of_refs(sender: Sender, event: &str, value: &Value) -> bool {
    match sender {
        Sender::AzureDevOps => text(value, "/eventType") == Some("git.push"),
        Sender::GitLab if event == "System Hook" => matches!(
            text(value, "/event_name"),
            Some("push" | "tag_push" | "repository_update")
        ),
        _ => true,
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

/// The refs that were made, moved or removed; `None` when they are not where this sender has them.
fn refs(sender: Sender, event: &str, value: &Value) -> Option<Vec<String>> {
    let some = |refs: Vec<String>| (!refs.is_empty()).then_some(refs);
    match sender {
        Sender::GitHub | Sender::Gitea | Sender::Forgejo if event != "push" => {
            let kind = text(value, "/ref_type")?;
            if kind == "repository" {
                return Some(Vec::new());
            }
            Some(vec![refs::full(kind, text(value, "/ref")?)?])
        }
        Sender::GitHub | Sender::Gitea | Sender::Forgejo => {
            Some(vec![text(value, "/ref")?.to_owned()])
        }
        Sender::GitLab if text(value, "/event_name") == Some("repository_update") => {
            let refs = value.pointer("/refs")?.as_array()?;
            let refs: Option<_> = refs
                .iter()
                .map(|name| Some(name.as_str()?.to_owned()))
                .collect();
            some(refs?)
        }
        Sender::GitLab => Some(vec![text(value, "/ref")?.to_owned()]),
        // Its own server names refs in full, its cloud in two parts, and the old one when it is removed.
        Sender::Bitbucket if event == "repo:refs_changed" => {
            let changes = value.pointer("/changes")?.as_array()?;
            let refs = changes
                .iter()
                .map(|change| Some(text(change, "/ref/id")?.to_owned()));
            some(refs.collect::<Option<_>>()?)
        }
        Sender::Bitbucket => {
            let changes = value.pointer("/push/changes")?.as_array()?;
            let refs = changes.iter().map(|change| {
                let side = ["/new", "/old"]
                    .iter()
                    .filter_map(|side| change.pointer(side));
                let side = side.into_iter().find(|side| side.is_object())?;
                refs::full(text(side, "/type")?, text(side, "/name")?)
            });
            some(refs.collect::<Option<_>>()?)
        }
        Sender::AzureDevOps => {
            let updates = value.pointer("/resource/refUpdates")?.as_array()?;
            let refs = updates
                .iter()
                .map(|update| Some(text(update, "/name")?.to_owned()));
            some(refs.collect::<Option<_>>()?)
        }
        Sender::Generic => Some(Vec::new()),
    }
}

fn repositories(sender: Sender, value: &Value) -> Vec<Repository> {
    let pointers: &[&str] = match sender {
        Sender::GitHub | Sender::Gitea | Sender::Forgejo => &[
            "/repository/clone_url",
            "/repository/ssh_url",
            "/repository/html_url",
        ],
        Sender::GitLab => &[
            "/project/git_http_url",
            "/project/git_ssh_url",
            "/project/web_url",
            "/repository/git_http_url",
            "/repository/git_ssh_url",
        ],
        Sender::Bitbucket => &["/repository/links/html/href"],
        Sender::AzureDevOps => &[
            "/resource/repository/remoteUrl",
            "/resource/repository/sshUrl",
            "/resource/repository/webUrl",
        ],
        Sender::Generic => &["/repository", "/repository/url"],
    };
    let mut addresses: Vec<&str> = pointers
        .iter()
        .filter_map(|pointer| text(value, pointer))
        .collect();
    // Bitbucket's own server lists the ways to clone.
    if sender == Sender::Bitbucket
        && let Some(links) = value
            .pointer("/repository/links/clone")
            .and_then(Value::as_array)
    {
        addresses.extend(links.iter().filter_map(|link| text(link, "/href")));
    }
    let mut found: Vec<Repository> = addresses
        .into_iter()
        .take(MAX_ADDRESSES)
        .filter_map(Repository::parse)
        .collect();
    found.sort();
    found.dedup();
    found
}
