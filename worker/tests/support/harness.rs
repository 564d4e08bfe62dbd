//! A worker in this process, a group on disk, and a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ramen_group::{DesiredState, SecretTable};
use ramen_proto::v1::JsonRpc;
use ramen_proto::v1::admin_client::AdminClient;
use ramen_proto::v1::mcp_client::McpClient;
use ramen_source::tree::{TreeLimits, walk_folder};
use ramen_source::{Kind, Store, layer};
use ramen_worker::config::{Config, ServeArgs};
use ramen_worker::serve::Worker;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

pub(crate) const KEY: &str = "rmk_test";
pub(crate) const ADMIN_KEY: &str = "admin_test";

/// A hang guard, never a measure.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Waits for `check` to give something; looks every few milliseconds.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(LONG, waiting).await;
    found.unwrap_or_else(|late| panic!("never came true: {what} ({late})"))
}

/// A group being written.
pub(crate) struct Group {
    dir: TempDir,
}

impl Group {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("mcp")).unwrap();
        Self { dir }
    }

    pub(crate) fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let path = self.dir.path().join("mcp").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// A tool whose callable is `run`; `more` is merged into its descriptor.
    pub(crate) fn tool(self, name: &str, input: &Value, source: &str) -> Self {
        self.tool_with(name, input, source, &json!({}))
    }

    pub(crate) fn tool_with(self, name: &str, input: &Value, source: &str, more: &Value) -> Self {
        let mut descriptor = json!({
            "type": "tool", "name": name, "description": format!("{name} of a test"),
            "callable": "run", "input": input,
        });
        for (key, value) in more.as_object().unwrap() {
            descriptor[key] = value.clone();
        }
        self.file(&format!("tools/{name}/{name}.json"), descriptor.to_string())
            .file(&format!("tools/{name}/{name}.py"), source)
    }

    pub(crate) fn resource(self, name: &str, uri: &str, mime: &str, source: &str) -> Self {
        let descriptor = json!({
            "type": "resource", "name": name, "description": "a resource", "callable": "run",
            "uri": uri, "mime_type": mime,
        });
        self.file(
            &format!("resources/{name}/{name}.json"),
            descriptor.to_string(),
        )
        .file(&format!("resources/{name}/{name}.py"), source)
    }

    /// A tool of the scripted host: it does what `callable` says.
    pub(crate) fn scripted(self, name: &str, callable: &str) -> Self {
        self.scripted_with(name, callable, &json!({}))
    }

    pub(crate) fn scripted_with(self, name: &str, callable: &str, more: &Value) -> Self {
        let mut more = more.clone();
        more["callable"] = callable.into();
        let source = format!("def {callable}():\n    pass\n");
        self.tool_with(name, &json!({}), &source, &more)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Puts the code into a store.
    pub(crate) async fn publish(&self, store: &Path, revision: &str) -> DesiredState {
        let store = Store::open(store).unwrap();
        let tree = walk_folder(&self.dir.path().join("mcp"), &TreeLimits::default()).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let packed = layer::pack_tree(&tree, scratch.path()).unwrap();
        let code = store.put(Kind::Code, &tree.id, &packed).await.unwrap();
        DesiredState {
            revision: revision.into(),
            code,
            deps: None,
            python: "3.11".into(),
            exclude: Vec::new(),
        }
    }
}

/// A worker and the folders it lives in.
pub(crate) struct Running {
    pub(crate) worker: Option<Worker>,
    pub(crate) grpc: std::net::SocketAddr,
    pub(crate) metrics: std::net::SocketAddr,
    pub(crate) dir: TempDir,
}

/// How a worker is started.
pub(crate) struct Setup {
    pub(crate) args: ServeArgs,
    pub(crate) secrets: Vec<(String, String)>,
    dir: TempDir,
}

impl Setup {
    /// With hosts from `host_dir`; one host of eight threads unless changed.
    pub(crate) fn new(host_dir: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys"), format!("{KEY}\n")).unwrap();
        std::fs::write(dir.path().join("admin"), format!("{ADMIN_KEY}\n")).unwrap();
        let args = ServeArgs {
            listen: "127.0.0.1:0".into(),
            metrics_listen: "127.0.0.1:0".into(),
            group: "g".into(),
            keys_file: Some(dir.path().join("keys")),
            admin_key_file: Some(dir.path().join("admin")),
            trust_proxy: "0".into(),
            max_inflight: "64".into(),
            max_connections: "64".into(),
            call_timeout_secs: "30".into(),
            hosts: Some("1".into()),
            host_threads: "8".into(),
            host_rss_limit_mib: "0".into(),
            host_max_calls: "0".into(),
            import_timeout_secs: "30".into(),
            store: Some(dir.path().join("store")),
            host_dir: Some(host_dir.into()),
            log: "info".into(),
            drain_secs: "10".into(),
            ..ServeArgs::default()
        };
        Self {
            args,
            secrets: Vec::new(),
            dir,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut ServeArgs)) -> Self {
        change(&mut self.args);
        self
    }

    pub(crate) fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push((name.into(), value.into()));
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A worker without a revision.
    pub(crate) async fn start(self) -> Running {
        let Self { args, secrets, dir } = self;
        let group = args.group.clone();
        let mut config = Config::read(args).unwrap();
        config.secrets = SecretTable::from_env(&group, secrets);
        let worker = Worker::start(config).await.unwrap();
        Running {
            grpc: worker.grpc,
            metrics: worker.metrics.unwrap(),
            worker: Some(worker),
            dir,
        }
    }

    /// A worker that serves `group`.
    pub(crate) async fn serve(self, group: &Group) -> Running {
        let running = self.start().await;
        running.load(group, "one").await;
        running
    }
}

impl Running {
    pub(crate) fn worker(&self) -> &Worker {
        self.worker.as_ref().unwrap()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) async fn load(&self, group: &Group, revision: &str) -> DesiredState {
        let desired = group.publish(&self.store(), revision).await;
        if let Err(error) = self.worker().manager().reload(desired.clone()).await {
            panic!("{revision} does not load: {error}: {error:?}");
        }
        desired
    }

    pub(crate) async fn channel(&self) -> Channel {
        connect(self.grpc).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.channel().await, Some(KEY))
    }

    pub(crate) async fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel().await)
    }

    pub(crate) async fn stop(mut self) {
        self.worker.take().unwrap().stop().await;
    }

    /// The value of a counter's or gauge's line; 0 while there is none.
    pub(crate) async fn metric(&self, line: &str) -> u64 {
        let text = scrape(self.metrics).await;
        text.lines()
            .find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
            .unwrap_or(0)
    }
}

pub(crate) async fn connect(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(crate) async fn scrape(address: std::net::SocketAddr) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

pub(crate) fn with_admin_key<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("x-ramen-admin-key", ADMIN_KEY.parse().unwrap());
    request
}

/// Speaks JSON-RPC through `Mcp/Call` and `Mcp/Session`.
#[derive(Clone)]
pub(crate) struct Client {
    inner: McpClient<Channel>,
    key: Option<String>,
    pub(crate) metadata: Vec<(&'static str, String)>,
    pub(crate) timeout: Option<Duration>,
}

impl Client {
    pub(crate) fn new(channel: Channel, key: Option<&str>) -> Self {
        let client = McpClient::new(channel)
            .max_decoding_message_size(64 << 20)
            .max_encoding_message_size(64 << 20);
        Self {
            inner: client,
            key: key.map(str::to_owned),
            metadata: Vec::new(),
            timeout: None,
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            let value: MetadataValue<_> = format!("Bearer {key}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        for (name, value) in &self.metadata {
            request.metadata_mut().append(*name, value.parse().unwrap());
        }
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// One message as bytes, and the bytes of the answer.
    pub(crate) async fn raw(&self, body: impl Into<Bytes>) -> Result<Bytes, Status> {
        let request = self.request(JsonRpc { body: body.into() });
        let mut client = self.inner.clone();
        let answer = tokio::time::timeout(LONG, client.call(request)).await;
        answer
            .expect("an answer before the hang guard")
            .map(|reply| reply.into_inner().body)
    }

    pub(crate) async fn send(&self, message: &Value) -> Result<Value, Status> {
        let answer = self.raw(message.to_string()).await?;
        Ok(if answer.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&answer).unwrap()
        })
    }

    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.send(&message).await.unwrap()
    }

    /// A tool call; the whole answer.
    pub(crate) async fn try_tool(&self, name: &str, arguments: Value) -> Result<Value, Status> {
        self.send(&call(1, name, arguments)).await
    }

    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Value {
        self.try_tool(name, arguments).await.unwrap()
    }

    /// The text of a tool call that worked.
    pub(crate) async fn text(&self, name: &str, arguments: Value) -> String {
        let answer = self.tool(name, arguments).await;
        assert_ne!(answer["result"]["isError"], json!(true), "{answer}");
        text_of(&answer)
    }

    /// The text of a tool call that gave an error of the tool.
    pub(crate) async fn error(&self, name: &str, arguments: Value) -> String {
        let answer = self.tool(name, arguments).await;
        assert_eq!(answer["result"]["isError"], json!(true), "{answer}");
        text_of(&answer)
    }

    pub(crate) async fn session(&self) -> Session {
        let (sender, receiver) = mpsc::channel(64);
        let outgoing = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let incoming = self
            .inner
            .clone()
            .session(self.request(outgoing))
            .await
            .unwrap()
            .into_inner();
        Session {
            sender: Some(sender),
            incoming,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`json!` at every call")]
pub(crate) fn call(id: impl Into<Value>, name: &str, arguments: Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id.into(), "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    })
}

/// A call of the modern era.
pub(crate) fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

pub(crate) fn text_of(answer: &Value) -> String {
    match &answer["result"]["content"][0]["text"] {
        Value::String(text) => text.clone(),
        _ => panic!("no text in {answer}"),
    }
}

/// An open `Mcp/Session`.
pub(crate) struct Session {
    sender: Option<mpsc::Sender<JsonRpc>>,
    incoming: Streaming<JsonRpc>,
}

impl Session {
    pub(crate) async fn send(&self, message: &Value) {
        self.send_raw(message.to_string()).await;
    }

    pub(crate) async fn send_raw(&self, body: impl Into<Bytes>) {
        self.sender
            .as_ref()
            .unwrap()
            .send(JsonRpc { body: body.into() })
            .await
            .unwrap();
    }

    /// Nothing more from this side.
    pub(crate) fn finish(&mut self) {
        self.sender = None;
    }

    /// The next message, `None` at the end.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Value>, Status> {
        let next = tokio::time::timeout(LONG, self.incoming.message()).await;
        let next = next.expect("a message before the hang guard")?;
        Ok(next.map(|message| serde_json::from_slice(&message.body).unwrap()))
    }

    pub(crate) async fn next(&mut self) -> Value {
        self.try_next().await.unwrap().expect("one more message")
    }
}

/// Where the programs are.
pub(crate) fn bin_dir() -> PathBuf {
    std::env::var_os("RAMEN_BIN_DIR").map_or_else(
        || {
            // …/target/debug/deps/<test>
            let exe = std::env::current_exe().unwrap();
            exe.parent().unwrap().parent().unwrap().to_path_buf()
        },
        PathBuf::from,
    )
}

/// The hosts with real Python.
pub(crate) fn python_hosts() -> PathBuf {
    let dir = bin_dir();
    let host = dir.join("ramen-host-3.11");
    assert!(
        host.exists(),
        "{} is missing: run `cargo xtask hosts`",
        host.display()
    );
    dir
}

/// Lines that were logged, for tests that look for text in logs.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<std::sync::Mutex<Vec<u8>>>);

impl Logs {
    /// Captures everything this process logs from here on.
    pub(crate) fn capture() -> Self {
        use tracing_subscriber::util::SubscriberInitExt;
        let logs = Self::default();
        let writer = logs.clone();
        tracing_subscriber::fmt()
            .with_env_filter("debug")
            .json()
            .with_writer(move || writer.clone())
            .finish()
            .try_init()
            .expect("one capture per process: each test has its own under nextest");
        logs
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
