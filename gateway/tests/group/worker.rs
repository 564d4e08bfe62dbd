//! A worker of the test: speaks `ramen.v1.Mcp` and does what the name of the tool says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::mcp_server::{Mcp, McpServer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

#[derive(Default)]
pub(crate) struct State {
    /// Calls that began.
    pub(crate) began: AtomicUsize,
    /// Calls that were given up by the other side.
    pub(crate) given_up: AtomicUsize,
    /// Lets one call of `wait` go on.
    pub(crate) go: Notify,
    /// Metadata of the last request.
    pub(crate) metadata: Mutex<MetadataMap>,
    /// The last message, as it came.
    pub(crate) last: Mutex<Bytes>,
    /// Sessions that listen.
    pub(crate) listeners: AtomicUsize,
    /// It has loaded nothing, so it begins no call.
    pub(crate) empty: AtomicBool,
    /// Each page of its tools leads to another one.
    pub(crate) endless: AtomicBool,
}

pub(crate) struct Worker {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<State>,
    pub(crate) revision: watch::Sender<u32>,
    connections: Arc<Mutex<JoinSet<()>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

impl Worker {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let revision = watch::Sender::new(1);
        let service = Service(Arc::clone(&state), revision.subscribe());
        let service = McpServer::new(service).max_decoding_message_size(5 << 20);
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let open = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = TowerToHyperService::new(service.clone());
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                open.lock().unwrap().spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Self {
            address,
            state,
            revision,
            connections,
            task,
        }
    }

    /// Breaks all connections, as a process that is killed does.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }

    pub(crate) fn began(&self) -> usize {
        self.state.began.load(Ordering::SeqCst)
    }
}

struct Service(Arc<State>, watch::Receiver<u32>);

/// Counts a call that is dropped before it ends.
struct Guard(Arc<State>, bool);

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.1 {
            self.0.given_up.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn result(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}], "isError": false}})
}

fn reply(value: &Value) -> JsonRpc {
    JsonRpc {
        body: Bytes::from(value.to_string()),
    }
}

/// Lists, prompts and resources.
fn other(id: &Value, method: &str, params: &Value) -> Value {
    let result = match method {
        "prompts/list" => json!({"prompts": [{"name": "own"}]}),
        "prompts/get" => json!({"messages": [], "description": params["name"]}),
        "resources/list" => json!({"resources": [{"uri": "own://r", "name": "r"}]}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "resources/read" if params["uri"] == "own://r" => {
            json!({"contents": [{"uri": "own://r", "text": "of the group"}]})
        }
        "resources/read" => {
            let error = json!({"code": -32002, "message": "resource not found", "data": {"uri": params["uri"]}});
            return json!({"jsonrpc": "2.0", "id": id, "error": error});
        }
        "completion/complete" => json!({"completion": {"values": ["own"]}}),
        _ => {
            // Two pages.
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {"x": {"maximum": 1.5}}}});
            match params["cursor"].as_str() {
                None => {
                    json!({"tools": [tool("echo")], "nextCursor": ramen_mcp::cursor::encode("echo")})
                }
                Some(_) => json!({"tools": [tool("web_own"), tool("webecho")]}),
            }
        }
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn nothing_loaded() -> Status {
    ramen_proto::not_begun("no revision of the group is loaded yet")
}

/// A status of one request of a session.
fn failed(id: &Value, status: &Status) -> Value {
    let mut data = json!({"grpc": ramen_proto::code_name(status.code())});
    if ramen_proto::is_not_begun(status) {
        data["notBegun"] = true.into();
    }
    let error = json!({"code": -32603, "message": status.message(), "data": data});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

async fn run(state: &Arc<State>, request: &Value) -> Result<Value, Status> {
    let id = &request["id"];
    let error =
        |code: i32| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}});
    let method = request["method"].as_str().unwrap();
    if method == "initialize" {
        let info = json!({"name": "a worker", "version": "1"});
        let version = &request["params"]["protocolVersion"];
        return Ok(
            json!({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}),
        );
    }
    if method == "server/discover" {
        return Ok(
            json!({"jsonrpc": "2.0", "id": id, "result": {"capabilities": {"tools": {"listChanged": false}}}}),
        );
    }
    if method == "tools/list" && state.endless.load(Ordering::SeqCst) {
        let page = json!({"tools": [{"name": "echo", "inputSchema": {}}], "nextCursor": "more"});
        return Ok(json!({"jsonrpc": "2.0", "id": id, "result": page}));
    }
    if method != "tools/call" {
        return Ok(other(id, method, &request["params"]));
    }
    if state.empty.load(Ordering::SeqCst) {
        return Err(nothing_loaded());
    }
    state.began.fetch_add(1, Ordering::SeqCst);
    let mut guard = Guard(Arc::clone(state), false);
    let answer = match request["params"]["name"].as_str().unwrap() {
        "echo" => Ok(result(id, &request["params"]["arguments"].to_string())),
        "hang" | "mute" => std::future::pending().await,
        "wait" => {
            state.go.notified().await;
            Ok(result(id, "result data"))
        }
        "foreign" => Ok(result(&json!(999), "of another")),
        "junk" => Ok(json!("no message")),
        "large" => Ok(result(id, &"x".repeat(4_000_000))),
        "full" => Err(Status::resource_exhausted(
            "too many calls in flight; try again later",
        )),
        "starting" => Err(nothing_loaded()),
        "crashes" => Err(Status::unavailable(
            "the host process died while the call ran (exit code 1)",
        )),
        "fails" => {
            Ok(json!({"jsonrpc": "2.0", "id": id, "result": {"content": [], "isError": true}}))
        }
        "refuses" => Err(Status::unauthenticated("the key is not valid")),
        "unknown" => Ok(error(-32602)),
        other => Ok(result(id, other)),
    };
    guard.1 = true;
    answer
}

#[tonic::async_trait]
impl Mcp for Service {
    async fn call(&self, request: Request<JsonRpc>) -> Result<Response<JsonRpc>, Status> {
        *self.0.metadata.lock().unwrap() = request.metadata().clone();
        *self.0.last.lock().unwrap() = request.get_ref().body.clone();
        let request: Value = serde_json::from_slice(&request.get_ref().body).unwrap();
        run(&self.0, &request)
            .await
            .map(|value| Response::new(reply(&value)))
    }

    async fn session(
        &self,
        request: Request<Streaming<JsonRpc>>,
    ) -> Result<Response<tonic::codegen::BoxStream<JsonRpc>>, Status> {
        *self.0.metadata.lock().unwrap() = request.metadata().clone();
        let (state, revision) = (Arc::clone(&self.0), self.1.clone());
        let mut incoming = request.into_inner();
        let (out, messages) = mpsc::channel(4);
        tokio::spawn(async move {
            let Ok(Some(message)) = incoming.message().await else {
                return;
            };
            let request: Value = serde_json::from_slice(&message.body).unwrap();
            *state.last.lock().unwrap() = message.body;
            let talk = talk(&state, revision, &request, &out);
            tokio::select! {
                () = talk => {}
                () = out.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

async fn talk(
    state: &Arc<State>,
    mut revision: watch::Receiver<u32>,
    request: &Value,
    out: &mpsc::Sender<Result<JsonRpc, Status>>,
) {
    let say = async |value: Value| {
        let _ = out.send(Ok(reply(&value))).await;
    };
    let id = &request["id"];
    match request["method"].as_str().unwrap() {
        "subscriptions/listen" => {
            state.listeners.fetch_add(1, Ordering::SeqCst);
            let _gone = Listening(Arc::clone(state));
            say(json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}})).await;
            while revision.changed().await.is_ok() {
                for kind in ["tools", "prompts"] {
                    say(json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed"), "params": {}})).await;
                }
            }
        }
        "server/discover" => {
            say(json!({"jsonrpc": "2.0", "id": id, "result": {"capabilities": {"tools": {"listChanged": true}}}})).await;
        }
        _ => {
            if state.empty.load(Ordering::SeqCst) {
                return say(failed(id, &nothing_loaded())).await;
            }
            let token = &request["params"]["_meta"]["progressToken"];
            if request["params"]["name"] != "quiet" && request["params"]["name"] != "mute" {
                for progress in [50, 100] {
                    say(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": progress}})).await;
                }
            }
            match run(state, request).await {
                Ok(value) => say(value).await,
                // What concerns one request does not end the stream; a key that is not valid does.
                Err(status) if status.code() != Code::Unauthenticated => {
                    say(failed(id, &status)).await;
                }
                Err(status) => {
                    let _ = out.send(Err(status)).await;
                }
            }
        }
    }
}

struct Listening(Arc<State>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
