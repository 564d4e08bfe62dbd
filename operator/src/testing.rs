//! A scripted API server for tests: what the operator sends is checked one request after the other.

pub(crate) mod web;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::runtime::events::{Recorder, Reporter};
use prometheus_client::registry::Registry;
use ramen_source::Store;
use ramen_source::git::Git;
use serde_json::Value;
use tower_test::mock;

use crate::artifacts::Artifacts;
use crate::deploy::{Deploy, DeployRequest};
use crate::group::{Context, Wake, Work};
use crate::metrics::Metrics;
use crate::pods::Pods;
use crate::reload::{
    Ailment, InspectRequest, Reload, ReloadRequest, Reloaded, Said, SurveyRequest,
};
use crate::watches::{Caches, Writers};

/// A request as a test looks at it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

impl Asked {
    async fn read(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        Self {
            verb: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        }
    }

    /// Verb and last part of the path.
    pub(crate) fn short(&self) -> String {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let kind = self.path.rsplit('/').nth(1).unwrap_or_default();
        format!("{} {kind}/{last}", self.verb)
    }
}

/// The other end of a client.
pub(crate) struct Server(mock::Handle<Request<Body>, Response<Body>>);

impl Server {
    /// The next request, which must come, and its answer.
    pub(crate) async fn answer(&mut self, reply: impl FnOnce(&Asked) -> (u16, Value)) -> Asked {
        let next = tokio::time::timeout(Duration::from_secs(20), self.0.next_request());
        let (request, send) = next
            .await
            .expect("a request long before this")
            .expect("a client");
        let asked = Asked::read(request).await;
        let (status, value) = reply(&asked);
        let body = Body::from(serde_json::to_vec(&value).unwrap());
        send.send_response(Response::builder().status(status).body(body).unwrap());
        asked
    }

    /// Answers everything that is sent until `work` is done, however long nothing is sent.
    pub(crate) async fn serve<T>(
        &mut self,
        work: impl Future<Output = T>,
        reply: impl FnMut(&Asked) -> (u16, Value),
    ) -> (T, Vec<Asked>) {
        self.serve_after(work, Duration::ZERO, reply).await
    }

    /// The same, with a pause before each answer.
    pub(crate) async fn serve_after<T>(
        &mut self,
        work: impl Future<Output = T>,
        pause: Duration,
        mut reply: impl FnMut(&Asked) -> (u16, Value),
    ) -> (T, Vec<Asked>) {
        let mut all = Vec::new();
        tokio::pin!(work);
        loop {
            let answered = async {
                let (request, send) = self.0.next_request().await.expect("a client");
                tokio::time::sleep(pause).await;
                let asked = Asked::read(request).await;
                let (status, value) = reply(&asked);
                let body = Body::from(serde_json::to_vec(&value).unwrap());
                send.send_response(Response::builder().status(status).body(body).unwrap());
                asked
            };
            tokio::select! {
                done = &mut work => return (done, all),
                asked = answered => all.push(asked),
            }
        }
    }

    /// Takes everything that is sent until `work` is done.
    pub(crate) async fn accept_all<T>(&mut self, work: impl Future<Output = T>) -> (T, Vec<Asked>) {
        let mut all = Vec::new();
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return (done, all),
                asked = self.answer(|asked| Self::accepted(asked, "8")) => all.push(asked),
            }
        }
    }

    /// Answers what was sent, as the API server would, with a uid and this version.
    pub(crate) fn accepted(asked: &Asked, version: &str) -> (u16, Value) {
        let mut object = asked.body.clone();
        if asked.path.contains("/mcpgroups/") {
            // The whole object comes back, not what was sent of it.
            object["spec"] = serde_json::json!({
                "source": {"url": "https://git.example/team/tools"},
                "network": {"allowedCIDRs": ["10.0.0.0/8"]},
            });
        }
        object["metadata"]["uid"] = "uid".into();
        object["metadata"]["resourceVersion"] = version.into();
        (200, object)
    }

    /// There is no such object.
    pub(crate) fn missing() -> (u16, Value) {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "message": "not found", "code": 404,
        });
        (404, status)
    }

    /// Nothing more is asked.
    pub(crate) async fn silent(&mut self) {
        let next = tokio::time::timeout(Duration::from_millis(50), self.0.next_request());
        assert!(next.await.is_err(), "a request that was not expected");
    }
}

/// A client and the server behind it.
pub(crate) fn api() -> (Client, Server) {
    let (service, handle) = mock::pair::<Request<Body>, Response<Body>>();
    (Client::new(service, "team-a"), Server(handle))
}

struct Never;

impl Deploy for Never {
    fn deploy(
        &self,
        _request: DeployRequest,
    ) -> futures::future::BoxFuture<'static, Result<ramen_group::Report, ramen_rollout::Failure>>
    {
        Box::pin(std::future::pending())
    }
}

impl Reload for Never {
    fn reload(
        &self,
        _request: ReloadRequest,
    ) -> futures::future::BoxFuture<'static, Result<Reloaded, ramen_rollout::Failure>> {
        Box::pin(std::future::pending())
    }

    fn inspect(
        &self,
        _request: InspectRequest,
    ) -> futures::future::BoxFuture<'static, Vec<Ailment>> {
        Box::pin(std::future::pending())
    }

    fn survey(&self, _request: SurveyRequest) -> futures::future::BoxFuture<'static, Vec<Said>> {
        Box::pin(std::future::pending())
    }
}

/// A context whose tasks never end, over a folder that lives as long as what is returned.
pub(crate) fn context(client: Client) -> (Arc<Context>, Writers, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Metrics::new(&mut Registry::default());
    let (caches, writers) = Caches::new();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let work = Work {
        git: Git::new(&folder.path().join("git"), 1).unwrap(),
        scratch: folder.path().to_owned(),
        // Over a folder nothing is waited for.
        artifacts: Artifacts::open(store).now_or_never().unwrap().unwrap(),
        deploy: Arc::new(Never),
        reload: Arc::new(Never),
        metrics: metrics.clone(),
    };
    let reporter = Reporter {
        controller: "ramen-operator".to_owned(),
        instance: None,
    };
    let context = Context::new(
        client.clone(),
        crate::group::test_operator(),
        caches,
        Pods::default(),
        work,
        Wake::new().0,
        metrics,
        Recorder::new(client, reporter),
    );
    (Arc::new(context), writers, folder)
}
