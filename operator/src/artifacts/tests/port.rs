//! An endpoint on a port of its own.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Method;
use ramen_group::{LayerRef, Report};
use ramen_source::layer::pack_tree;
use ramen_source::tree::TreeFile;
use ramen_source::{Digest, Tree};
use serde_json::json;
use tempfile::TempDir;

use super::super::endpoint::Limits;
use super::super::*;
use crate::testing::web::{self, Got};

pub(super) type Reports = watch::Receiver<Option<Arc<Report>>>;

pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) artifacts: Artifacts,
    pub(super) leads: Leads,
    pub(super) dir: TempDir,
    stop: CancellationToken,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An archive and the headers it is handed over with.
pub(super) struct Archive {
    pub(super) bytes: Bytes,
    pub(super) digest: Digest,
}

impl Archive {
    /// Not that of a layer: the endpoint looks at bytes and digest alone.
    pub(super) fn of(text: &str) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            digest: Digest::of(text.as_bytes()),
        }
    }
}

/// A deploy under way.
pub(super) struct Deploying {
    pub(super) id: DeployId,
    pub(super) token: Secret,
    pub(super) code: LayerRef,
    pub(super) reports: Reports,
}

impl Deploying {
    pub(super) fn path(&self, tail: &str) -> String {
        let GroupKey { namespace, name } = &self.id.group;
        format!("/v1/deploys/{namespace}/{name}/{}/{tail}", self.id.id)
    }
}

impl Port {
    pub(super) async fn start() -> Self {
        Self::with(Limits::DEFAULT).await
    }

    pub(super) async fn with(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let port = Self::open(dir, store, limits).await;
        port.leads.begin();
        port
    }

    /// A replica over the same store, which does not write.
    pub(super) async fn over(other: &Self) -> Self {
        let store = other.artifacts.store().clone();
        Self::open(tempfile::tempdir().unwrap(), store, Limits::DEFAULT).await
    }

    /// A replica over a store that lies elsewhere, which does not write yet.
    pub(super) async fn in_store(dir: TempDir, store: Store) -> Self {
        Self::open(dir, store, Limits::DEFAULT).await
    }

    async fn open(dir: TempDir, store: Store, limits: Limits) -> Self {
        let artifacts = Artifacts::open(store).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leads = Leads::default();
        let stop = CancellationToken::new();
        tokio::spawn(endpoint::serve(
            artifacts.clone(),
            listener,
            leads.clone(),
            limits,
            stop.clone(),
        ));
        Self {
            address,
            artifacts,
            leads,
            dir,
            stop,
        }
    }

    /// Puts a layer of code into the store.
    pub(super) async fn code(&self, text: &str) -> LayerRef {
        let files = vec![TreeFile {
            path: "tools/a/a.py".to_owned(),
            data: text.as_bytes().to_vec(),
        }];
        let tree = Tree {
            files,
            ..Tree::default()
        };
        let layer = pack_tree(&tree, self.dir.path()).unwrap();
        let key = hash(text);
        let store = self.artifacts.store();
        store.put(Kind::Code, &key, &layer).await.unwrap()
    }

    /// Begins a deploy of a group, with code of its own.
    pub(super) async fn deploy(&self, group: &str, id: &str) -> Deploying {
        let code = self.code(&format!("{group} {id}")).await;
        let id = DeployId {
            group: GroupKey::new("team-a", group),
            id: id.to_owned(),
        };
        let token = one_time().unwrap();
        let reports = self.artifacts.admit(&id, &token, &code).await.unwrap();
        Deploying {
            id,
            token,
            code,
            reports,
        }
    }

    pub(super) async fn get(&self, path: &str, token: &Secret) -> Got {
        let bearer = format!("Bearer {}", token.expose());
        let headers = [("authorization", bearer.as_str())];
        web::send(self.address, Method::GET, path, &headers, "").await
    }

    pub(super) async fn put(&self, path: &str, token: &Secret, body: impl Into<Bytes>) -> Got {
        self.put_with(path, token, &[], body).await
    }

    pub(super) async fn put_with(
        &self,
        path: &str,
        token: &Secret,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Got {
        let bearer = format!("Bearer {}", token.expose());
        let headers = [headers, &[("authorization", bearer.as_str())]].concat();
        web::send(self.address, Method::PUT, path, &headers, body).await
    }

    /// Hands a layer of requirements over.
    pub(super) async fn put_deps(&self, deploy: &Deploying, key: &str, archive: &Archive) -> Got {
        let digest = archive.digest.to_string();
        let path = deploy.path(&format!("layers/deps/{key}"));
        let headers = [("x-ramen-digest", digest.as_str())];
        self.put_with(&path, &deploy.token, &headers, archive.bytes.clone())
            .await
    }

    /// The files of a folder of the store.
    pub(super) fn files(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.artifacts.store().root().join(folder));
        let mut names: Vec<String> = entries
            .map(|entries| {
                entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }
}

pub(super) fn layer_path(kind: Kind, layer: &LayerRef) -> String {
    format!("/v1/layers/{kind}/{}", layer.digest)
}

pub(super) fn reference(got: &Got) -> LayerRef {
    assert_eq!(got.status, 200, "{}", got.text());
    serde_json::from_slice(&got.body).unwrap()
}

/// A good report about this code, naming this layer of requirements.
pub(super) fn report(deploy: &Deploying, deps: Option<&LayerRef>) -> Vec<u8> {
    let report = json!({
        "revision": "main@sha1:1", "tree": "x", "python": "3.11", "group": deploy.id.group.name,
        "code": deploy.code, "deps": deps,
        "packages": [{"kind": "tool", "name": "calc", "ok": true}],
        "outcome": "ok",
    });
    report.to_string().into_bytes()
}
