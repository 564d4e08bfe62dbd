//! A push, as each sender tells of it.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::port::{Port, SECRET, hex256, hex512, hmac256};

/// How one sender signs; gives the headers.
pub(super) type Proof = fn(secret: &str, body: &[u8]) -> Vec<(&'static str, String)>;

/// A hook as one sender sends it.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) receiver: &'static str,
    pub(super) event: &'static [(&'static str, &'static str)],
    pub(super) body: Value,
    pub(super) proof: Proof,
    /// The proof says nothing about the body.
    pub(super) unsigned_body: bool,
}

pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

pub(super) fn standard_webhook(secret: &str, body: &[u8], at: u64) -> Vec<(&'static str, String)> {
    let time = at.to_string();
    let parts: [&[u8]; 4] = [b"msg_1.", time.as_bytes(), b".", body];
    let mac = STANDARD.encode(hmac256(secret.as_bytes(), &parts));
    vec![
        ("webhook-id", "msg_1".to_owned()),
        ("webhook-timestamp", time),
        // An older key's signature comes with it during a rotation.
        ("webhook-signature", format!("v1,AAAA v1,{mac} v2,xyz")),
    ]
}

pub(super) fn gitlab_body() -> Value {
    json!({
        "object_kind": "push", "event_name": "push", "ref": "refs/heads/main",
        "checkout_sha": null,
        "project": {
            "git_ssh_url": "git@forge.example:acme/library.git",
            "git_http_url": "https://forge.example/acme/library.git",
            "web_url": "https://forge.example/acme/library",
        },
    })
}

pub(super) fn gitea_body() -> Value {
    json!({
        "ref": "refs/heads/main",
        "repository": {
            "clone_url": "https://forge.example/acme/library.git",
            "ssh_url": "git@forge.example:acme/library.git",
        },
    })
}

#[expect(clippy::too_many_lines, reason = "one sender after the other")]
pub(super) fn cases() -> Vec<Case> {
    let case = |name, receiver, event, body, proof| Case {
        name,
        receiver,
        event,
        body,
        proof,
        unsigned_body: false,
    };
    vec![
        case(
            "GitHub",
            "github",
            &[("x-github-event", "push"), ("x-hub-signature", "sha1=00")],
            gitea_body(),
            |secret, body| {
                vec![(
                    "x-hub-signature-256",
                    format!("sha256={}", hex256(secret, body)),
                )]
            },
        ),
        Case {
            unsigned_body: true,
            ..case(
                "GitLab, token",
                "gitlab",
                &[("x-gitlab-event", "Push Hook")],
                gitlab_body(),
                |secret, _| vec![("x-gitlab-token", secret.to_owned())],
            )
        },
        case(
            "GitLab, signing secret",
            "gitlab",
            &[("x-gitlab-event", "Push Hook")],
            gitlab_body(),
            |secret, body| {
                let mut headers = standard_webhook(secret, body, now());
                // The old token beside it decides nothing.
                headers.push(("x-gitlab-token", SECRET.to_owned()));
                headers
            },
        ),
        case(
            "GitLab, system hook",
            "gitlab",
            &[("x-gitlab-event", "System Hook")],
            json!({
                "event_name": "repository_update",
                "refs": ["refs/heads/other", "refs/heads/main"],
                "project": {"git_http_url": "https://forge.example/acme/library.git"},
            }),
            |secret, body| standard_webhook(secret, body, now()),
        ),
        case(
            "Gitea",
            "gitea",
            &[("x-gitea-event", "push"), ("x-gitea-delivery", "1")],
            gitea_body(),
            |secret, body| vec![("x-gitea-signature", hex256(secret, body))],
        ),
        case(
            "Forgejo",
            "forgejo",
            &[("x-forgejo-event", "push"), ("x-gitea-event", "push")],
            gitea_body(),
            |secret, body| {
                vec![
                    ("x-forgejo-signature", hex256(secret, body)),
                    // Right for the body, whatever the header of its own says: it must not rescue that.
                    ("x-gitea-signature", hex256(SECRET, body)),
                ]
            },
        ),
        case(
            "Bitbucket Cloud",
            "bitbucket",
            &[("x-event-key", "repo:push"), ("x-request-uuid", "1")],
            json!({
                "push": {"changes": [
                    {"old": {"type": "branch", "name": "gone"}, "new": null, "closed": true},
                    {"old": null, "new": {"type": "branch", "name": "main"}},
                ]},
                "repository": {"links": {"html": {"href": "https://forge.example/acme/library"}}},
            }),
            |secret, body| {
                vec![(
                    "x-hub-signature",
                    format!("sha256={}", hex256(secret, body)),
                )]
            },
        ),
        case(
            "Bitbucket Data Center",
            "bitbucket",
            &[("x-event-key", "repo:refs_changed")],
            json!({
                "changes": [
                    {"ref": {"id": "refs/heads/topic", "displayId": "topic", "type": "BRANCH"}},
                    {"ref": {"id": "refs/heads/main", "displayId": "main", "type": "BRANCH"}},
                ],
                "repository": {"links": {"clone": [
                    {"name": "ssh", "href": "ssh://git@forge.example:7999/acme/library.git"},
                    {"name": "http", "href": "https://forge.example/scm/acme/library.git"},
                ]}},
            }),
            |secret, body| {
                vec![(
                    "x-hub-signature",
                    format!("sha256={}", hex256(secret, body)),
                )]
            },
        ),
        Case {
            unsigned_body: true,
            ..case(
                "Azure DevOps",
                "azure",
                &[],
                json!({
                    "eventType": "git.push",
                    "resource": {
                        "refUpdates": [{"name": "refs/heads/main"}],
                        "repository": {"remoteUrl": "https://forge.example/acme/library"},
                    },
                }),
                |secret, _| {
                    let pair = STANDARD.encode(format!("hooks:{secret}"));
                    vec![("authorization", format!("Basic {pair}"))]
                },
            )
        },
        case(
            "generic, SHA-256",
            "generic",
            &[],
            json!({"repository": "https://forge.example/acme/library"}),
            |secret, body| vec![("x-signature", format!("sha256={}", hex256(secret, body)))],
        ),
        case(
            "generic, SHA-512",
            "generic",
            &[("x-delivery", "1")],
            json!({"repository": {"url": "https://forge.example/acme/library"}}),
            |secret, body| vec![("x-signature", format!("sha512={}", hex512(secret, body)))],
        ),
        case(
            "generic, with a time",
            "generic",
            &[],
            json!({"repository": "https://forge.example/acme/library"}),
            |secret, body| {
                let time = now().to_string();
                let mac = hmac256(secret.as_bytes(), &[time.as_bytes(), b".", body]);
                let signature = format!("sha256={}", hex::encode(mac));
                vec![("x-timestamp", time), ("x-signature", signature)]
            },
        ),
    ]
}

impl Case {
    pub(super) async fn send(
        &self,
        port: &Port,
        proof: &[(&'static str, String)],
        body: &[u8],
    ) -> u16 {
        let mut headers = vec![("content-type", "application/json")];
        let own = |name: &str| proof.iter().any(|(one, _)| *one == name);
        headers.extend(self.event.iter().filter(|(name, _)| !own(name)));
        headers.extend(proof.iter().map(|(name, value)| (*name, value.as_str())));
        let path = format!("/v1/hooks/{}", self.receiver);
        port.post(&path, &headers, body).await.status
    }
}
