//! A server in this process whose answers a test writes.

use std::sync::Arc;
use std::time::Duration;

use ramen_client::{Client, ClientError, EraChoice, Limits, Options};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::{mpsc, watch};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("this should have happened long ago")
}

/// The server's end: what came in, and the way out.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    seen: watch::Receiver<Vec<Value>>,
    out: Out,
}

/// The way out. Dropping every copy closes the connection.
#[derive(Clone, Debug)]
pub(crate) struct Out(mpsc::UnboundedSender<Vec<u8>>);

impl Out {
    pub(crate) fn raw(&self, bytes: impl Into<Vec<u8>>) {
        let _ = self.0.send(bytes.into());
    }

    pub(crate) fn send(&self, message: &Value) {
        self.raw(format!("{message}\n"));
    }

    pub(crate) fn result(&self, request: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    pub(crate) fn error(&self, request: &Value, code: i32, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
    }

    pub(crate) fn notify(&self, method: &str) {
        self.send(&json!({"jsonrpc": "2.0", "method": method}));
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.raw([]);
    }
}

impl Server {
    pub(crate) fn out(&self) -> &Out {
        &self.out
    }

    /// What came in with this method.
    pub(crate) fn seen(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.borrow();
        seen.iter()
            .filter(|m| m["method"] == method)
            .cloned()
            .collect()
    }

    /// The methods that came in, in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        let seen = self.seen.borrow();
        seen.iter()
            .map(|m| m["method"].as_str().unwrap_or("answer").to_owned())
            .collect()
    }

    /// Waits until this came in so many times.
    pub(crate) async fn until(&mut self, method: &str, count: usize) -> Value {
        let enough =
            |seen: &Vec<Value>| seen.iter().filter(|m| m["method"] == method).count() >= count;
        soon(self.seen.wait_for(enough))
            .await
            .expect("the server is there");
        self.seen(method)[count - 1].clone()
    }

    /// Whether the client still holds its end.
    pub(crate) fn still_open(&self) -> bool {
        self.seen.has_changed().is_ok()
    }

    /// Waits for an answer to something that the server asked.
    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        let found = |m: &&Value| m.get("method").is_none() && m["id"] == *id;
        let there = |seen: &Vec<Value>| seen.iter().any(|m| found(&m));
        let seen = soon(self.seen.wait_for(there))
            .await
            .expect("the server is there");
        seen.iter().find(found).cloned().expect("it is there")
    }
}

/// Starts a server; `script` answers each message.
pub(crate) fn serve(
    script: impl Fn(&Value, &Out) + Send + 'static,
) -> (DuplexStream, DuplexStream, Server) {
    let (to_client, client_reads) = tokio::io::duplex(256 * 1024);
    let (client_writes, from_client) = tokio::io::duplex(256 * 1024);
    let (seen_in, seen) = watch::channel(Vec::new());
    let (sender, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
    let out = Out(sender);
    tokio::spawn(async move {
        let mut to_client = to_client;
        while let Some(bytes) = queue.recv().await {
            if bytes.is_empty() || to_client.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let replies = out.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(from_client).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).expect("a client writes JSON");
            seen_in.send_modify(|seen| seen.push(message.clone()));
            script(&message, &replies);
        }
        replies.close();
    });
    (client_reads, client_writes, Server { seen, out })
}

/// What a legacy server answers; `false` when it has nothing to say to it.
pub(crate) fn legacy(message: &Value, out: &Out, tools: &Value) -> bool {
    match message["method"].as_str() {
        Some("initialize") => out.result(
            message,
            &json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}, "prompts": {}, "resources": {}},
                "serverInfo": {"name": "scripted", "version": "1.2"},
            }),
        ),
        Some("tools/list") => out.result(message, &json!({ "tools": tools })),
        Some("server/discover") => out.error(message, -32601, "no such method"),
        _ => return false,
    }
    true
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object"}})
}

/// Connects to a script in the default way.
pub(crate) async fn connect(
    script: impl Fn(&Value, &Out) + Send + 'static,
) -> Result<(Client, Server), ClientError> {
    connect_with(script, EraChoice::Auto, Options::default()).await
}

pub(crate) async fn connect_with(
    script: impl Fn(&Value, &Out) + Send + 'static,
    era: EraChoice,
    options: Options,
) -> Result<(Client, Server), ClientError> {
    let (reads, writes, server) = serve(script);
    let client = Client::over_streams("scripted", reads, writes, era, &options).await?;
    Ok((client, server))
}

/// A connection to a legacy server with one tool, whose calls `script` answers.
pub(crate) async fn legacy_client(
    script: impl Fn(&Value, &Out) + Send + 'static,
) -> (Client, Server) {
    let tools = json!([tool("one")]);
    connect(move |message, out| {
        if !legacy(message, out, &tools) {
            script(message, out);
        }
    })
    .await
    .expect("a plain server")
}

pub(crate) fn limits(change: impl FnOnce(&mut Limits)) -> Options {
    let mut limits = Limits::default();
    change(&mut limits);
    Options {
        limits,
        ..Options::default()
    }
}

/// A log that a test can read.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    /// Collects everything that this thread logs while the guard lives.
    pub(crate) fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        tracing::subscriber::set_default(
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_ansi(false)
                .with_writer(move || log.clone())
                .finish(),
        )
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
