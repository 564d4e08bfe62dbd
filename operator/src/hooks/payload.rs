//! What a hook says, once it is believed: which repository, and whether something was pushed. Every field
//! may be absent, empty or of another type. Pure.

use http::HeaderMap;
use serde_json::Value;

use super::repository::Repository;
use super::sender::Sender;
use crate::inbound::single;

/// Addresses that are looked at.
const MAX_ADDRESSES: usize = 16;

/// What to do about a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Something was pushed to a repository with one of these names; without any, to the one that the
    /// receiver's path names.
    Push(Vec<Repository>),
    /// A ping, or an event that changes no ref.
    Other,
    /// Not JSON, or not an object.
    Unreadable,
}

/// Reads a hook.
pub(super) fn read(sender: Sender, headers: &HeaderMap, body: &[u8]) -> Said {
    let event = |name: &str| single(headers, name).unwrap_or_default();
    let pushed = match sender {
        Sender::GitHub => matches!(event("x-github-event"), "push" | "create"),
        Sender::Gitea => matches!(event("x-gitea-event"), "push" | "create"),
        Sender::Forgejo => {
            let event = match event("x-forgejo-event") {
                "" => event("x-gitea-event"),
                event => event,
            };
            matches!(event, "push" | "create")
        }
        Sender::GitLab => matches!(
            event("x-gitlab-event"),
            "Push Hook" | "Tag Push Hook" | "System Hook"
        ),
        Sender::Bitbucket => matches!(event("x-event-key"), "repo:push" | "repo:refs_changed"),
        // These say it in the body, or not at all.
        Sender::AzureDevOps | Sender::Generic => true,
    };
    if !pushed {
        return Said::Other;
    }
    if sender == Sender::Generic && body.is_empty() {
        return Said::Push(Vec::new());
    }
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return Said::Unreadable;
    };
    if !value.is_object() {
        return Said::Unreadable;
    }
    if sender == Sender::AzureDevOps && text(&value, "/eventType") != Some("git.push") {
        return Said::Other;
    }
    if sender == Sender::GitLab
        && event("x-gitlab-event") == "System Hook"
        && !matches!(
            text(&value, "/event_name"),
            Some("push" | "tag_push" | "repository_update")
        )
    {
        return Said::Other;
    }
    Said::Push(repositories(sender, &value))
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
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
