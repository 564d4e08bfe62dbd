//! The gateway: what is where, and what all endpoints share.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Body as HttpBody;
use ramen_mcp::model::Implementation;
use tokio::sync::watch;

use crate::answer::{self, Answer, Refusal};
use crate::door::{self, Door};
use crate::endpoint;
use crate::groups::{Group, Groups};
use crate::metrics::Metrics;
use crate::names::GROUP_HEADER;
use crate::operations::Operations;
use crate::recent::Recent;

/// A gateway, before it listens.
#[derive(Debug)]
pub struct Gateway {
    /// The groups that are served.
    pub groups: Groups,
    /// The gate of all endpoints.
    pub door: Door,
    /// Longest time of one call.
    pub call_timeout: Duration,
    /// Set when no new requests are taken.
    pub stopping: watch::Receiver<bool>,
    /// The platform's operations, when they are served.
    pub operations: Option<Operations>,
    /// What was called lately.
    pub recent: Arc<Recent>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// JSON of who the gateway is.
    pub info: Arc<str>,
}

/// JSON of who the gateway is, for what it says on its own.
pub fn info() -> Arc<str> {
    let info = Implementation {
        name: "ramen-gateway".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Implementation::default()
    };
    serde_json::to_string(&info).unwrap_or_default().into()
}

/// What is at a path.
enum Place<'p> {
    Health,
    Ready,
    Operations(&'p Operations),
    Api(&'p Operations, String),
    Group(Option<Arc<Group>>),
    Nothing,
}

impl Gateway {
    /// Answers one request. Dropping the future cancels what it does.
    pub async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let answer = match self.place(&request) {
            Place::Health => return health(&request, true),
            Place::Ready => return health(&request, self.is_ready()),
            Place::Operations(operations) => operations.mcp(&self.door, peer, request).await,
            Place::Api(operations, path) => operations.api(&self.door, peer, &path, request).await,
            Place::Group(group) => {
                let running = self.metrics.begin(group.as_ref().map(|group| &group.name));
                let answer = endpoint::answer(self, group, peer, request).await;
                running.end(&answer);
                return answer;
            }
            Place::Nothing => match door::bounds(request.headers()) {
                Ok(()) => Refusal::Path.answer(),
                Err(refusal) => refusal.answer(),
            },
        };
        self.metrics.judged(&answer);
        answer
    }

    fn place<B>(&self, request: &Request<B>) -> Place<'_> {
        let path = request.uri().path();
        match path {
            "/healthz" => return Place::Health,
            "/readyz" => return Place::Ready,
            "/mcp" => return Place::Group(self.by_header(request)),
            _ => {}
        }
        if let (Some(path), Some(operations)) = (path.strip_prefix("/api/v1/"), &self.operations) {
            return match path {
                "mcp" => Place::Operations(operations),
                path => Place::Api(operations, path.to_owned()),
            };
        }
        let mut parts = path.strip_prefix('/').unwrap_or_default().split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(namespace), Some(name), Some("mcp"), None) => {
                Place::Group(self.groups.get(namespace, name))
            }
            _ => Place::Nothing,
        }
    }

    /// Whether new callers should be sent here.
    fn is_ready(&self) -> bool {
        self.groups.is_complete() && !*self.stopping.borrow()
    }

    fn by_header<B>(&self, request: &Request<B>) -> Option<Arc<Group>> {
        let mut lines = request.headers().get_all(GROUP_HEADER).iter();
        let name = lines.next()?.to_str().ok()?;
        if lines.next().is_some() {
            return None;
        }
        self.groups.named(name)
    }
}

/// Health needs no key.
fn health<B>(request: &Request<B>, good: bool) -> Answer {
    match *request.method() {
        Method::GET | Method::HEAD if good => answer::text(StatusCode::OK, "ok\n"),
        Method::GET | Method::HEAD => answer::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        _ => answer::empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}
