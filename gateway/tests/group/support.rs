//! A gateway in this process and clients of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::Door;
use ramen_gateway::origin::Sites;
use ramen_gateway::upstreams::Policy;
use ramen_gateway::{Gateway, GroupName, GroupSpec, Groups, Oidc, gateway, listener};
use ramen_group::{AddressRule, CidrSet};
use ramen_redact::KeySet;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) const KEY: &str = "rmk_caller";
pub(crate) const PATH: &str = "/default/demo/mcp";
/// The one other origin whose pages may call.
pub(crate) const ORIGIN: &str = "https://app.example.com";
/// A hang guard, never a measure.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Waits until this holds.
pub(crate) async fn eventually(what: &str, check: impl Fn() -> bool) {
    let waiting = async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(LONG, waiting).await;
    assert!(came.is_ok(), "never came true: {what}");
}

/// What has to happen, within a time that only a fault uses up.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what)
        .await
        .expect("this should have happened long ago")
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) groups: Groups,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) stop: watch::Sender<bool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

pub(crate) fn spec(name: &str, key: &str, workers: &[SocketAddr]) -> GroupSpec {
    GroupSpec {
        name: GroupName {
            namespace: "default".into(),
            name: name.into(),
        },
        keys: KeySet::from_lines(key),
        access: None,
        ranges: CidrSet::parse_list("127.0.0.0/8").unwrap(),
        worker_key: "rmk_of_the_gateway".into(),
        workers: workers
            .iter()
            .map(|worker| worker.to_string().into())
            .collect(),
        upstreams: Vec::new(),
    }
}

impl Running {
    /// A gateway of the group `default/demo`, with these workers.
    pub(crate) async fn start(workers: &[SocketAddr]) -> Self {
        Self::with(workers, Limits::default()).await
    }

    pub(crate) async fn with(workers: &[SocketAddr], limits: Limits) -> Self {
        Self::of(&spec("demo", KEY, workers), limits, Policy::default()).await
    }

    /// One that trusts tokens.
    pub(crate) async fn trusting(workers: &[SocketAddr], limits: Limits, oidc: Arc<Oidc>) -> Self {
        let spec = spec("demo", KEY, workers);
        Self::open_for(&spec, limits, Policy::default(), Some(oidc)).await
    }

    pub(crate) async fn of(spec: &GroupSpec, limits: Limits, policy: Policy) -> Self {
        Self::open_for(spec, limits, policy, None).await
    }

    /// One that gives a call so long, and its caller one call at once.
    pub(crate) async fn hurried(workers: &[SocketAddr], call_timeout: Duration) -> Self {
        let limits = Limits {
            in_flight: 1,
            ..Limits::default()
        };
        let spec = spec("demo", KEY, workers);
        Self::begin(&spec, limits, Policy::default(), None, call_timeout).await
    }

    async fn open_for(
        spec: &GroupSpec,
        limits: Limits,
        policy: Policy,
        oidc: Option<Arc<Oidc>>,
    ) -> Self {
        Self::begin(spec, limits, policy, oidc, Duration::from_secs(30)).await
    }

    async fn begin(
        spec: &GroupSpec,
        limits: Limits,
        policy: Policy,
        oidc: Option<Arc<Oidc>>,
        call_timeout: Duration,
    ) -> Self {
        let groups = Groups::new(policy);
        groups.set(spec);
        let (stop, stopping) = watch::channel(false);
        let gateway = Arc::new(Gateway {
            groups: groups.clone(),
            door: Door {
                address: AddressRule::default(),
                sites: Sites {
                    loopback: true,
                    origins: vec![ORIGIN.to_owned()],
                    ..Sites::default()
                },
                callers: Callers::new(limits),
            },
            call_timeout,
            stopping,
            oidc,
            operations: None,
            recent: Arc::default(),
            metrics: Arc::default(),
            info: gateway::info(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listener::serve(listener, Arc::clone(&gateway), None, 1000));
        Self {
            address,
            groups,
            gateway,
            stop,
        }
    }

    /// A POST as a good legacy client sends it.
    pub(crate) fn post(&self, body: &Value) -> Request<Full<Bytes>> {
        self.post_raw(body.to_string())
    }

    pub(crate) fn post_raw(&self, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::post(PATH)
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {KEY}"))
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2025-11-25")
            .body(Full::new(body.into()))
            .unwrap()
    }

    /// A POST as a good modern client sends it.
    pub(crate) fn modern(&self, method: &str, mut params: Value) -> Request<Full<Bytes>> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        for (key, value) in meta.as_object().unwrap() {
            params["_meta"][key] = value.clone();
        }
        let name = params["name"].as_str().map(str::to_owned);
        let mut request =
            self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
        let headers = request.headers_mut();
        headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
        headers.insert("mcp-method", method.parse().unwrap());
        if let Some(name) = name {
            headers.insert("mcp-name", name.parse().unwrap());
        }
        request
    }

    /// A subscription to changes of the tools, and what it says first.
    pub(crate) async fn listen(&self) -> (Events, Value) {
        let params = json!({"notifications": {"toolsListChanged": true}});
        let request = self.modern("subscriptions/listen", params);
        let mut events = Events::of(self.open(request).await);
        let first = events.next().await.unwrap();
        (events, first)
    }

    pub(crate) async fn open(&self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(LONG, sender.send_request(request))
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        Got::of(self.open(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        let request = Request::get(path).header("host", self.address.to_string());
        self.send(request.body(Full::default()).unwrap()).await
    }

    /// Calls a tool as a legacy client.
    pub(crate) async fn call(&self, tool: &str) -> Got {
        self.send(self.post(&call(tool))).await
    }

    /// Sends bytes, and reads until the gateway closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The gateway may answer and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut answer))
            .await
            .unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

pub(crate) fn call(tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"a": 1}}})
}

pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) async fn of<B>(answer: http::Response<B>) -> Self
    where
        B: http_body::Body<Error: std::fmt::Debug>,
    {
        let (parts, body) = answer.into_parts();
        let body = tokio::time::timeout(LONG, body.collect()).await.unwrap();
        Self {
            status: parts.status,
            headers: parts.headers,
            body: body.unwrap().to_bytes(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
    }

    /// The messages of a stream of events.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), "text/event-stream");
        let text = std::str::from_utf8(&self.body).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The text of a tool's result.
    pub(crate) fn text(&self) -> String {
        self.json()["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

/// A stream of events that is read one by one.
pub(crate) struct Events {
    body: Incoming,
    kept: String,
}

impl Events {
    pub(crate) fn of(answer: http::Response<Incoming>) -> Self {
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self {
            body: answer.into_body(),
            kept: String::new(),
        }
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.kept.split_once("\n\n") {
                let line = event.lines().find_map(|line| line.strip_prefix("data: "));
                let message = line.map(|line| serde_json::from_str(line).unwrap());
                let rest = rest.to_owned();
                self.kept = rest;
                match message {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let frame = tokio::time::timeout(LONG, self.body.frame())
                .await
                .unwrap()?;
            let data = frame.unwrap().into_data().unwrap();
            self.kept.push_str(std::str::from_utf8(&data).unwrap());
        }
    }
}
