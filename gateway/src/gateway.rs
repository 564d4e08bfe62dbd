//! The gateway: what is where, and what all endpoints share.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as HttpBody;
use ramen_mcp::model::Implementation;
use tokio::sync::watch;

use crate::answer::{self, Answer, Refusal};
use crate::cors;
use crate::door::{self, Door};
use crate::endpoint;
use crate::groups::{Group, Groups, is_label};
use crate::metrics::Metrics;
use crate::names::GROUP_HEADER;
use crate::oidc::{Oidc, WELL_KNOWN};
use crate::operations::{MCP_PATH, Operations};
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
    /// Who judges tokens, when some are trusted.
    pub oidc: Option<Arc<Oidc>>,
    /// What was called lately.
    pub recent: Arc<Recent>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// JSON of who the gateway is.
    pub info: Arc<str>,
}

/// Who the gateway is, for what it says on its own.
pub(crate) fn implementation() -> Implementation {
    Implementation {
        name: "ramen-gateway".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Implementation::default()
    }
}

/// JSON of that.
pub fn info() -> Arc<str> {
    serde_json::to_string(&implementation())
        .unwrap_or_default()
        .into()
}

/// What is at a path.
enum Place<'p> {
    Health,
    Ready,
    Operations(&'p Operations),
    Api(&'p Operations, String),
    /// A group, and the path of the resource that it is.
    Group(Option<Arc<Group>>, String),
    /// What clients read before they sign in, of the resource at a path.
    Description(&'p Oidc, String),
    Nothing,
}

impl Gateway {
    /// Answers one request. Dropping the future cancels what it does.
    pub async fn answer<B>(&self, peer: IpAddr, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let presented = request.headers().contains_key(AUTHORIZATION);
        // Of web pages that may read the answer of a group.
        let origin = self.door.sites.listed(request.headers()).cloned();
        let answer = match self.place(&request) {
            Place::Health => return health(&request, true),
            Place::Ready => return health(&request, self.is_ready()),
            Place::Operations(operations) => {
                let answer = operations.mcp(&self.door, peer, request).await;
                self.told(answer, presented)
            }
            Place::Api(operations, path) => {
                let answer = operations.api(&self.door, peer, &path, request).await;
                self.told(answer, presented)
            }
            Place::Group(group, path) => {
                let (request, preflight) = self.preflight(request, "POST");
                if let Some(answer) = preflight {
                    return answer;
                }
                let running = self.metrics.begin(group.as_ref().map(|group| &group.name));
                let answer = endpoint::answer(self, group, &path, peer, request).await;
                running.end(&answer);
                return cors::readable(answer, &self.door.sites, origin);
            }
            Place::Description(oidc, path) => {
                let (request, preflight) = self.preflight(request, "GET");
                preflight.unwrap_or_else(|| {
                    let answer = described(oidc, &path, &request);
                    cors::readable(answer, &self.door.sites, origin)
                })
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
            "/mcp" => return Place::Group(self.by_header(request), String::new()),
            _ => {}
        }
        if let (Some(path), Some(operations)) = (path.strip_prefix("/api/v1/"), &self.operations) {
            return match path {
                "mcp" => Place::Operations(operations),
                path => Place::Api(operations, path.to_owned()),
            };
        }
        if let (Some(path), Some(oidc)) = (path.strip_prefix(WELL_KNOWN), &self.oidc) {
            return match path {
                "" | "/" | "/mcp" => Place::Description(oidc, String::new()),
                path if named(path).is_some() => Place::Description(oidc, path.to_owned()),
                _ => Place::Nothing,
            };
        }
        match named(path) {
            Some((namespace, name)) => {
                Place::Group(self.groups.get(namespace, name), path.to_owned())
            }
            None => Place::Nothing,
        }
    }

    /// The request again, and the answer when a browser asks by it whether a page may send another one.
    fn preflight<B>(
        &self,
        request: Request<B>,
        methods: &'static str,
    ) -> (Request<B>, Option<Answer>) {
        if request.method() != Method::OPTIONS {
            return (request, None);
        }
        let (parts, body) = request.into_parts();
        let answer = cors::preflight(&self.door, &parts, methods);
        (Request::from_parts(parts, body), answer)
    }

    /// The answer to a refusal at `path`; to one of the credential with how to get one.
    pub(crate) fn refuse(&self, refusal: Refusal, path: &str, headers: &HeaderMap) -> Answer {
        match &self.oidc {
            Some(oidc) => oidc.refuse(refusal, path, headers.contains_key(AUTHORIZATION)),
            None => refusal.answer(),
        }
    }

    /// An answer of the operations; one that refuses the credential says how to get one.
    fn told(&self, answer: Answer, presented: bool) -> Answer {
        match &self.oidc {
            Some(oidc) => oidc.challenged(answer, MCP_PATH, presented),
            None => answer,
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

/// Namespace and name in `/<namespace>/<group>/mcp`.
fn named(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix('/')?.strip_suffix("/mcp")?;
    let (namespace, name) = inner.split_once('/')?;
    (is_label(namespace) && is_label(name)).then_some((namespace, name))
}

/// How to sign in, which needs no credential.
fn described<B>(oidc: &Oidc, path: &str, request: &Request<B>) -> Answer {
    if let Err(refusal) = door::bounds(request.headers()) {
        return refusal.answer();
    }
    match *request.method() {
        Method::GET | Method::HEAD => oidc.describe(path),
        _ => answer::empty(StatusCode::METHOD_NOT_ALLOWED),
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
