//! Between a program and the API server: sees every request, and lets some go wrong.
//!
//! The program speaks plain HTTP and brings its own token; the proxy speaks TLS to the API server and has no rights of its
//! own.

mod fault;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config, client::Body};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

pub use fault::{Fault, Request};

type Answer = http::Response<UnsyncBoxBody<Bytes, std::io::Error>>;
type Rule = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

/// A proxy. It ends, with all its connections, when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    upstream: Client,
    seen: Mutex<Vec<Request>>,
    rule: Mutex<Option<Rule>>,
    /// Requests wait while it is so.
    frozen: watch::Sender<bool>,
    /// Counts up to break connections.
    cut: watch::Sender<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// To the API server of `KUBECONFIG`.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start() -> anyhow::Result<Self> {
        let mut config = Config::infer()
            .await
            .context("no API server to stand before")?;
        config.auth_info = kube::config::AuthInfo::default();
        // What goes wrong is for the program to see.
        config.default_retry = false;
        let shared = Arc::new(Shared {
            upstream: Client::try_from(config)?,
            seen: Mutex::default(),
            rule: Mutex::default(),
            frozen: watch::channel(false).0,
            cut: watch::channel(0).0,
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// For a kubeconfig.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on every request is judged by this; the last one counts.
    pub fn script(&self, rule: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        *lock(&self.shared.rule) = Some(Box::new(rule));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        *lock(&self.shared.rule) = None;
        self.shared.frozen.send_replace(false);
    }

    /// Breaks every connection, watches above all.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|times| *times += 1);
    }

    /// Holds everything, and takes nothing back; [`Self::heal`] ends it.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// Waits until a [`Fault::Freeze`] has struck.
    pub async fn frozen(&self) {
        let mut frozen = self.shared.frozen.subscribe();
        // The sender lives as long as this.
        let _ = frozen.wait_for(|frozen| *frozen).await;
    }

    /// All requests so far, in the order in which they came.
    pub fn seen(&self) -> Vec<Request> {
        lock(&self.shared.seen).clone()
    }

    /// How many requests came so far.
    pub fn count(&self) -> usize {
        lock(&self.shared.seen).len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(stream, Arc::clone(&shared)));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Arc::clone(&shared).answer(request).await }
    });
    let serving =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A fault that closes the connection is an error here.
        _ = serving => {}
        _ = cut.changed() => {}
    }
}

/// The connection is closed without an answer.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed by the proxy")
    }
}

impl std::error::Error for Closed {}

impl Shared {
    async fn answer(self: Arc<Self>, request: http::Request<Incoming>) -> Result<Answer, Closed> {
        let seen = Request::of(request.method(), request.uri());
        self.thawed().await;
        lock(&self.seen).push(seen.clone());
        let fault = lock(&self.rule).as_mut().and_then(|rule| rule(&seen));
        match fault {
            None => self.forward(request).await,
            Some(Fault::Answer(status, reason, message)) => {
                Ok(fault::status(status, reason, &message))
            }
            Some(Fault::Gone) => Ok(fault::gone()),
            Some(Fault::Close) => Err(Closed),
            Some(Fault::Lose) => {
                self.forward(request).await?;
                Err(Closed)
            }
            Some(Fault::Freeze) => {
                let answer = self.forward(request).await?;
                // It is done, and nobody hears of it, nor gets anything else done.
                self.frozen.send_replace(true);
                self.thawed().await;
                drop(answer);
                Err(Closed)
            }
            Some(Fault::Late(pause)) => {
                tokio::time::sleep(pause).await;
                self.forward(request).await
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }

    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        let _ = frozen.wait_for(|frozen| !*frozen).await;
    }

    async fn forward(&self, request: http::Request<Incoming>) -> Result<Answer, Closed> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(http::header::HOST);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| Closed)?;
        let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
        let request = http::Request::from_parts(parts, Body::from(body.to_vec()));
        let (mut parts, body) = self
            .upstream
            .send(request)
            .await
            .map_err(|_| Closed)?
            .into_parts();
        // Of the connection behind; this one has its own.
        for name in ["transfer-encoding", "connection", "keep-alive"] {
            parts.headers.remove(name);
        }
        let body = body.map_err(std::io::Error::other).boxed_unsync();
        Ok(Answer::from_parts(parts, body))
    }
}
