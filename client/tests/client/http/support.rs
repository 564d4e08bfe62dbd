//! A raw HTTP server: a test writes the bytes of each answer.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Marks bytes after which the connection stays open without more.
const STAY: &[u8] = b"\0STAY";
/// Marks bytes after which the connection is closed.
const HANG_UP: &[u8] = b"\0HANGUP";
/// Marks bytes after which the rest waits until the test lets it go.
const WAIT: &[u8] = b"\0WAIT";

/// A request that came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) http_method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Value,
    /// The body where it is no JSON.
    pub(crate) form: String,
    before: Vec<Self>,
}

impl Seen {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or("")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        let (_, value) = found.next()?;
        assert!(found.next().is_none(), "{name} twice");
        Some(value)
    }

    /// How many requests of this method came before.
    pub(crate) fn earlier(&self, method: &str) -> usize {
        self.before
            .iter()
            .filter(|seen| seen.method() == method)
            .count()
    }

    /// The last one of this method that came before.
    pub(crate) fn last(&self, method: &str) -> Option<&Self> {
        self.before
            .iter()
            .rev()
            .find(|seen| seen.method() == method)
    }

    /// The message that answers it.
    pub(crate) fn result(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }
}

/// The server.
pub(crate) struct Http {
    address: std::net::SocketAddr,
    seen: watch::Receiver<Vec<Seen>>,
    hung_up: watch::Receiver<usize>,
    go: CancellationToken,
    deaf: CancellationToken,
    port: watch::Receiver<bool>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Http {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(crate) fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.borrow();
        seen.iter()
            .filter(|seen| seen.method() == method)
            .cloned()
            .collect()
    }

    pub(crate) async fn until(&self, method: &str) -> Seen {
        let mut seen = self.seen.clone();
        let there = |all: &Vec<Seen>| all.iter().any(|seen| seen.method() == method);
        let all = seen.wait_for(there).await.expect("the server is there");
        all.iter()
            .find(|seen| seen.method() == method)
            .cloned()
            .expect("it is there")
    }

    /// Waits until so many of this method came.
    pub(crate) async fn until_many(&self, method: &str, count: usize) -> Vec<Seen> {
        let mut seen = self.seen.clone();
        let enough =
            |all: &Vec<Seen>| all.iter().filter(|seen| seen.method() == method).count() >= count;
        let _ = seen.wait_for(enough).await.expect("the server is there");
        self.seen(method)
    }

    /// Waits until the client hung up on an answer that was not at its end.
    pub(crate) async fn until_hung_up(&self) {
        let mut hung_up = self.hung_up.clone();
        let _ = hung_up
            .wait_for(|count| *count > 0)
            .await
            .expect("the server is there");
    }

    /// Lets the answers go on that wait.
    pub(crate) fn go_on(&self) {
        self.go.cancel();
    }

    /// Closes the port. The connections that are open stay.
    pub(crate) async fn close_port(&self) {
        self.deaf.cancel();
        let mut port = self.port.clone();
        // Its end says the same.
        let _ = port.wait_for(|open| !open).await;
    }

    /// Closes the port and every connection.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts it.
pub(crate) async fn serve(script: impl Fn(&Seen) -> Vec<u8> + Send + Sync + 'static) -> Http {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen_in, seen) = watch::channel(Vec::new());
    let (hung_in, hung_up) = watch::channel(0);
    let (seen_in, hung_in, script) = (Arc::new(seen_in), Arc::new(hung_in), Arc::new(script));
    let (go, deaf) = (CancellationToken::new(), CancellationToken::new());
    let (port_in, port) = watch::channel(true);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (stopped, tracker) = (stop.clone(), tasks.clone());
    let (released, deafened) = (go.clone(), deaf.clone());
    tasks.spawn(async move {
        loop {
            let (stream, _) = tokio::select! {
                accepted = listener.accept() => accepted.unwrap(),
                () = deafened.cancelled() => break,
                () = stopped.cancelled() => return,
            };
            let (seen, hung, go, script, stopped) = (
                Arc::clone(&seen_in),
                Arc::clone(&hung_in),
                released.clone(),
                Arc::clone(&script),
                stopped.clone(),
            );
            tracker.spawn(async move {
                tokio::select! {
                    () = connection(stream, &seen, &hung, &go, &*script) => {}
                    () = stopped.cancelled() => {}
                }
            });
        }
        drop(listener);
        port_in.send_replace(false);
    });
    Http {
        address,
        seen,
        hung_up,
        go,
        deaf,
        port,
        stop,
        tasks,
    }
}

async fn connection(
    mut stream: TcpStream,
    seen: &watch::Sender<Vec<Seen>>,
    hung: &watch::Sender<usize>,
    go: &CancellationToken,
    script: &(dyn Fn(&Seen) -> Vec<u8> + Send + Sync),
) {
    let mut buffer = Vec::new();
    while let Some(mut request) = read(&mut stream, &mut buffer).await {
        // One at a time, so that what came before is what came before.
        let answered = Mutex::new(Vec::new());
        seen.send_modify(|all| {
            request.before.clone_from(all);
            for before in &mut request.before {
                before.before = Vec::new();
            }
            all.push(request.clone());
            *answered.lock().unwrap() = script(&request);
        });
        let bytes = answered.into_inner().unwrap();
        let find = |mark: &[u8]| bytes.windows(mark.len()).position(|window| window == mark);
        if let Some(end) = find(STAY) {
            let _ = stream.write_all(&bytes[..end]).await;
            let mut rest = [0; 64];
            while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            hung.send_modify(|count| *count += 1);
            return;
        }
        if let Some(end) = find(HANG_UP) {
            let _ = stream.write_all(&bytes[..end]).await;
            return;
        }
        if let Some(end) = find(WAIT) {
            let _ = stream.write_all(&bytes[..end]).await;
            go.cancelled().await;
            let _ = stream.write_all(&bytes[end + WAIT.len()..]).await;
            continue;
        }
        if bytes.is_empty() || stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

pub(crate) async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let mut more = [0; 4096];
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let count = stream
            .read(&mut more)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        buffer.extend_from_slice(&more[..count]);
    };
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ').map(str::to_owned);
    let (http_method, path) = (words.next().unwrap(), words.next().unwrap());
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < end + length {
        let count = stream
            .read(&mut more)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        buffer.extend_from_slice(&more[..count]);
    }
    let body: Vec<u8> = buffer.drain(..end + length).skip(end).collect();
    let form = String::from_utf8(body.clone()).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(Seen {
        http_method,
        path,
        headers,
        body,
        form,
        before: Vec::new(),
    })
}

/// 200 with a result.
pub(crate) fn answer(seen: &Seen, result: &Value) -> Vec<u8> {
    status(200, &seen.result(result))
}

/// A status with a JSON body.
pub(crate) fn status(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The same answer with more headers.
pub(crate) fn with_headers(answer: Vec<u8>, headers: &str) -> Vec<u8> {
    let text = String::from_utf8(answer).unwrap();
    let (line, rest) = text.split_once("\r\n").unwrap();
    format!("{line}\r\n{headers}{rest}").into_bytes()
}

fn chunks(events: &[String]) -> Vec<u8> {
    let mut out =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for event in events {
        out.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }
    out
}

/// A stream of events to its end.
pub(crate) fn events(events: &[String]) -> Vec<u8> {
    let mut out = chunks(events);
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// A stream of events that stays open.
pub(crate) fn open_events(events: &[String]) -> Vec<u8> {
    let mut out = chunks(events);
    out.extend_from_slice(STAY);
    out
}

/// 64 MiB of spaces as gzip, in less than half a MiB. The check sum behind them is left out.
pub(crate) fn bomb() -> Vec<u8> {
    // The last block, of fixed codes; a space; that byte 258 times more, again and again; the end.
    let mut bits = vec![1, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0];
    for _ in 0..(64 << 20) / 258 {
        bits.extend_from_slice(&[1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]);
    }
    bits.extend_from_slice(&[0; 7]);
    let pack = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    let mut all = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    all.extend(bits.chunks(8).map(pack));
    all
}

/// 200 with such a body, said to be JSON.
pub(crate) fn compressed() -> Vec<u8> {
    let bomb = bomb();
    let length = bomb.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.into_bytes(), bomb].concat()
}

/// The head of this answer, and its body once the test says so.
pub(crate) fn later(answer: &[u8]) -> Vec<u8> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.expect("an answer has a head") + 4);
    [head, WAIT, body].concat()
}

/// This answer, once the test says so.
pub(crate) fn held(answer: &[u8]) -> Vec<u8> {
    [WAIT, answer].concat()
}

/// These bytes, then nothing, and the connection stays open.
pub(crate) fn then_silence(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(STAY);
    bytes
}

/// These bytes, then the connection is closed.
pub(crate) fn then_hang_up(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(HANG_UP);
    bytes
}
