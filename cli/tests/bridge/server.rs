//! A scripted `ramen.v1.Mcp` on a free port: answers by what the request asks for and remembers what it saw.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use ramen_source::testing::FreePort;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

pub(crate) const KEY: &str = "rmk_test_key_that_must_not_be_printed";

#[derive(Default)]
pub(crate) struct Seen {
    /// Bodies through `Call`.
    pub(crate) calls: Mutex<Vec<Bytes>>,
    /// Bodies through `Session`.
    pub(crate) sessions: Mutex<Vec<Bytes>>,
    /// Metadata of the last call.
    pub(crate) metadata: Mutex<Vec<(String, String)>>,
    /// Slow calls that have begun, and those whose future was dropped before they answered.
    pub(crate) begun: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    /// Lets slow calls answer.
    pub(crate) release: Notify,
    /// Wakes whoever waits for a change of the counters.
    pub(crate) changed: Notify,
    /// Makes the next session be refused as by a worker that is going.
    pub(crate) refuse: AtomicBool,
    /// Makes every session announce a change of the tools.
    pub(crate) announce: watch::Sender<u32>,
}

#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) seen: Arc<Seen>,
    pub(crate) sessions: bool,
}

pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) seen: Arc<Seen>,
    /// Its own, so that ending it cuts its connections too.
    runtime: Option<tokio::runtime::Runtime>,
    /// Keeps the port for one that comes after it.
    _port: Option<FreePort>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(None, true, None).await
    }

    pub(crate) async fn without_sessions() -> Self {
        Self::with(None, false, None).await
    }

    /// Where one was before that was ended.
    pub(crate) async fn on(address: &str, sessions: bool) -> Self {
        Self::with(Some(address), sessions, None).await
    }

    pub(crate) async fn tls(authority: &ramen_source::testing::Authority) -> Self {
        Self::with(None, true, Some(authority)).await
    }

    async fn with(
        address: Option<&str>,
        sessions: bool,
        tls: Option<&ramen_source::testing::Authority>,
    ) -> Self {
        let (address, port) = if let Some(address) = address {
            (address.to_owned(), None)
        } else {
            let port = FreePort::new().unwrap();
            (port.address().unwrap().to_string(), Some(port))
        };
        let listener = std::net::TcpListener::bind(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let seen = Arc::<Seen>::default();
        let service = McpServer::new(Script {
            seen: Arc::clone(&seen),
            sessions,
        })
        .max_encoding_message_size(64 << 20)
        .max_decoding_message_size(64 << 20);
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_serving::<McpServer<Script>>().await;
        reporter
            .set_service_status("down", tonic_health::ServingStatus::NotServing)
            .await;
        let mut builder = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            let read = |file| std::fs::read(file).unwrap();
            let identity = tonic::transport::Identity::from_pem(read(&tls.cert), read(&tls.key));
            let config = tonic::transport::ServerTlsConfig::new().identity(identity);
            builder = builder.tls_config(config).unwrap();
        }
        let server = builder.add_service(health).add_service(service);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            server
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self {
            address,
            seen,
            runtime: Some(runtime),
            _port: port,
        }
    }

    /// Ends at once, connections included; returns when nothing listens any more.
    pub(crate) async fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
        while tokio::net::TcpStream::connect(&self.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Seen {
    /// Waits until `test` holds, which only the server's own steps can bring about.
    pub(crate) async fn until(&self, test: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if test(self) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), wait)
            .await
            .expect("the condition never held");
    }
}

#[derive(serde::Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct CallParams<'a> {
    name: &'a str,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

struct Slow(Arc<Seen>, bool);

impl Drop for Slow {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
            self.0.changed.notify_waiters();
        }
    }
}

impl Script {
    async fn answer(&self, body: &Bytes, streams: bool) -> Result<Bytes, Status> {
        let head: Head<'_> = match serde_json::from_slice(body) {
            Ok(head) => head,
            Err(error) => {
                let error = format!(
                    r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32700,"message":"{}"}}}}"#,
                    error.to_string().replace('"', "'")
                );
                return Ok(error.into());
            }
        };
        let Some(id) = head.id else {
            return Ok(Bytes::new());
        };
        let result = match head.method {
            "tools/call" => {
                let call: CallParams<'_> =
                    serde_json::from_str(head.params.unwrap().get()).unwrap();
                self.tool(call.name, call.arguments).await?
            }
            "tools/list" => TOOLS.to_owned(),
            // As a worker does: what a call cannot carry is not promised on it.
            "initialize" | "server/discover" if streams => {
                r#"{"capabilities":{"tools":{"listChanged":true},"prompts":{}}}"#.to_owned()
            }
            "initialize" | "server/discover" => {
                r#"{"capabilities":{"tools":{},"prompts":{}}}"#.to_owned()
            }
            "junk" => return Ok(Bytes::from_static(b"not json\nat all")),
            "other" => {
                return Ok(Bytes::from_static(
                    br#"{"jsonrpc":"2.0","id":"zzz","result":{}}"#,
                ));
            }
            "pretty" => {
                return Ok(format!(
                    "{{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": {},\n  \"result\": {{}}\n}}\n",
                    id.get()
                )
                .into());
            }
            "nothing" => return Ok(Bytes::new()),
            _ => "{}".to_owned(),
        };
        Ok(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get()).into())
    }

    async fn tool(&self, name: &str, arguments: Option<&RawValue>) -> Result<String, Status> {
        let code = |code: tonic::Code| Err(Status::new(code, format!("as asked: {name}")));
        match name {
            "slow" => {
                let mut slow = Slow(Arc::clone(&self.seen), false);
                let release = self.seen.release.notified();
                self.seen.begun.fetch_add(1, Ordering::SeqCst);
                self.seen.changed.notify_waiters();
                release.await;
                slow.1 = true;
                Ok(r#"{"content":[]}"#.to_owned())
            }
            "big" => Ok(format!(r#"{{"text":"{}"}}"#, "x".repeat(5 << 20))),
            "UNAUTHENTICATED" => code(tonic::Code::Unauthenticated),
            "PERMISSION_DENIED" => code(tonic::Code::PermissionDenied),
            "RESOURCE_EXHAUSTED" => code(tonic::Code::ResourceExhausted),
            "INTERNAL" => code(tonic::Code::Internal),
            _ => Ok(format!(
                r#"{{"echo":{}}}"#,
                arguments.map_or("{}", RawValue::get)
            )),
        }
    }
}

/// A list with references inside the schema, which must arrive as they are (NET15).
pub(crate) const TOOLS: &str = r##"{"tools":[{"name":"t","inputSchema":{"$defs":{"n":{"type":"number"}},"properties":{"a":{"$ref":"#/$defs/n"},"b":{"$ref":"#/properties/a"}},"type":"object"}}]}"##;

type Outgoing = Pin<Box<dyn tokio_stream::Stream<Item = Result<JsonRpc, Status>> + Send>>;

#[tonic::async_trait]
impl Mcp for Script {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        let metadata = ["authorization", "ramen-group", "ramen-zone", "grpc-timeout"]
            .iter()
            .filter_map(|name| {
                let value = request.metadata().get(*name)?;
                Some(((*name).to_owned(), value.to_str().ok()?.to_owned()))
            });
        *self.seen.metadata.lock().unwrap() = metadata.collect();
        let key = request
            .metadata()
            .get("authorization")
            .and_then(|v| v.to_str().ok());
        if key != Some(&format!("Bearer {KEY}")) {
            return Err(Status::unauthenticated("no valid key"));
        }
        let body = request.into_inner().body;
        self.seen.calls.lock().unwrap().push(body.clone());
        self.seen.changed.notify_waiters();
        self.answer(&body, false)
            .await
            .map(|body| Response::new(JsonRpc { body }))
    }

    async fn session(
        &self,
        request: Request<Streaming<JsonRpc>>,
    ) -> Result<Response<Outgoing>, Status> {
        if !self.sessions {
            return Err(Status::unimplemented("no sessions here"));
        }
        if self.seen.refuse.swap(false, Ordering::SeqCst) {
            return Err(Status::unavailable("as asked"));
        }
        let script = self.clone();
        let mut incoming = request.into_inner();
        let (out, messages) = mpsc::channel(16);
        let mut announced = script.seen.announce.subscribe();
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    next = incoming.message() => next,
                    Ok(()) = announced.changed() => {
                        let body = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                        let _ = out.send(Ok(JsonRpc { body })).await;
                        continue;
                    }
                };
                let Ok(Some(message)) = next else { return };
                script
                    .seen
                    .sessions
                    .lock()
                    .unwrap()
                    .push(message.body.clone());
                script.seen.changed.notify_waiters();
                let head: Head<'_> = serde_json::from_slice(&message.body).unwrap();
                let note = match head.method {
                    "tools/call" => {
                        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#
                    }
                    "subscriptions/listen" => {
                        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}"#
                    }
                    _ => "",
                };
                if !note.is_empty() {
                    let _ = out.send(Ok(JsonRpc { body: note.into() })).await;
                }
                if head.method == "subscriptions/listen" {
                    continue;
                }
                let body = message.body.clone();
                let answer = tokio::select! {
                    answer = script.answer(&body, true) => answer,
                    () = out.closed() => return,
                };
                let answer = answer.map(|body| JsonRpc { body });
                if answer.as_ref().is_ok_and(|a| a.body.is_empty()) {
                    continue;
                }
                let _ = out.send(answer).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}
