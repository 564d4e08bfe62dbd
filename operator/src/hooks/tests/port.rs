//! A receiver on a port of its own, and a client for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use http::Method;
use sha2::{Sha256, Sha512};
use tempfile::TempDir;
use tokio::sync::watch;

use super::super::receivers::Receivers;
use super::super::*;
use crate::testing::web;

pub(super) const SECRET: &str = "the-secret-of-today";
pub(super) const OLD_SECRET: &str = "the-secret-of-yesterday";

/// Groups that only note what they are asked.
pub(super) struct Scripted {
    known: Vec<Followed>,
    looks: watch::Sender<Vec<(GroupKey, u32)>>,
    counted: Mutex<BTreeMap<(String, &'static str), u32>>,
    /// Hooks that were sent, for the order of things.
    pub(super) sent: watch::Sender<u32>,
}

impl Groups for Scripted {
    fn all(&self) -> Vec<Followed> {
        self.known.clone()
    }

    fn look(&self, group: &GroupKey, _receiver: &str) {
        let sent = *self.sent.borrow();
        self.looks
            .send_modify(|looks| looks.push((group.clone(), sent)));
    }

    fn counted(&self, receiver: &str, outcome: &'static str) {
        let mut counted = self.counted.lock().unwrap();
        *counted.entry((receiver.to_owned(), outcome)).or_default() += 1;
    }
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) retry_after: Option<String>,
}

pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) dir: TempDir,
    pub(super) groups: Arc<Scripted>,
    stop: CancellationToken,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) fn key(name: &str) -> GroupKey {
    GroupKey::new("team-a", name)
}

fn followed(name: &str, address: &str, reference: Option<serde_json::Value>) -> Followed {
    let reference = reference.map(|value| serde_json::from_value(value).unwrap());
    Followed {
        key: key(name),
        address: address.to_owned(),
        follows: Follows::of(reference.as_ref()),
    }
}

impl Port {
    /// With a receiver for each sender, named after it, with two secrets.
    pub(super) async fn start() -> Self {
        Self::with(Limits::DEFAULT).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        for sender in [
            "github",
            "gitlab",
            "gitea",
            "forgejo",
            "bitbucket",
            "azure",
            "generic",
        ] {
            let secrets = format!("{SECRET}\n{OLD_SECRET}\n");
            file(&format!("{sender}.{sender}"), &secrets);
        }
        file("unready.github", "\n");
        let at = "https://forge.example/acme/library.git";
        let known = vec![
            followed("library", at, Some(serde_json::json!({"branch": "main"}))),
            followed("release", at, Some(serde_json::json!({"semver": ">=1"}))),
            followed("head", "git@forge.example:acme/library.git", None),
            followed("other", "https://forge.example/acme/other", None),
        ];
        let groups = Arc::new(Scripted {
            known,
            looks: watch::channel(Vec::new()).0,
            counted: Mutex::default(),
            sent: watch::channel(0).0,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let receivers = Receivers::new(dir.path().to_owned());
        let serving: Arc<dyn Groups> = Arc::clone(&groups) as _;
        tokio::spawn(endpoint::serve(
            listener,
            receivers,
            limits,
            serving,
            stop.clone(),
        ));
        Self {
            address,
            dir,
            groups,
            stop,
        }
    }

    /// One hook on a connection of its own.
    pub(super) async fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Said {
        self.send(Method::POST, path, headers, body).await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Said {
        let got = web::send(self.address, method, path, headers, body.to_vec()).await;
        Said {
            status: got.status,
            text: got.text().to_owned(),
            retry_after: got.header("retry-after").map(str::to_owned),
        }
    }

    /// The groups that were asked to look, in order of their names, each time.
    pub(super) fn looks(&self) -> Vec<String> {
        let looks = self.groups.looks.borrow();
        let mut names: Vec<String> = looks.iter().map(|(key, _)| key.name.clone()).collect();
        names.sort();
        names
    }

    /// Waits until a group is asked to look after that many hooks were sent.
    pub(super) async fn looked_after(&self, name: &str, sent: u32) {
        let mut looks = self.groups.looks.subscribe();
        let there = looks.wait_for(|looks| {
            looks
                .iter()
                .any(|(group, after)| group.name == name && *after >= sent)
        });
        let waited = tokio::time::timeout(Duration::from_secs(20), there).await;
        waited.expect("a look").unwrap();
    }

    pub(super) fn counted(&self, receiver: &str, outcome: &'static str) -> u32 {
        let counted = self.groups.counted.lock().unwrap();
        let found = counted.get(&(receiver.to_owned(), outcome));
        found.copied().unwrap_or_default()
    }
}

pub(super) fn hmac256(secret: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(secret).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hex256(secret: &str, body: &[u8]) -> String {
    hex::encode(hmac256(secret.as_bytes(), &[body]))
}

pub(super) fn hex512(secret: &str, body: &[u8]) -> String {
    let mut mac = <Hmac<Sha512> as hmac::Mac>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

/// Headers of a GitHub push, signed.
pub(super) fn github<'a>(signature: &'a str, delivery: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("content-type", "application/json"),
        ("x-github-event", "push"),
        ("x-github-delivery", delivery),
        ("x-hub-signature-256", signature),
    ]
}

pub(super) fn signature(body: &[u8]) -> String {
    format!("sha256={}", hex256(SECRET, body))
}

pub(super) fn push(reference: &str) -> Vec<u8> {
    let body = serde_json::json!({
        "ref": reference,
        "before": "0".repeat(40),
        "after": "1".repeat(40),
        "deleted": false,
        "repository": {
            "full_name": "acme/library",
            "clone_url": "https://forge.example/acme/library.git",
            "ssh_url": "git@forge.example:acme/library.git",
            "html_url": "https://forge.example/acme/library",
        },
    });
    body.to_string().into_bytes()
}
