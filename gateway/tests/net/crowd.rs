//! Ten thousand connections that do nothing, and a thousand that leave in mid-answer, at a gateway of its own process.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{KEY, LONG, PATH, eventually};
use crate::wire::{good, statuses};
use crate::worker::Worker;

/// Connections that do nothing.
const CROWD: usize = 10_000;
/// Descriptors for other things, here and in the gateway.
const OTHERS: usize = 500;
/// What one idle connection may weigh in a build without optimization.
const KIB_EACH: usize = 48;

struct Process {
    child: Child,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    async fn start(dir: &Path, worker: &Worker) -> Self {
        fs::write(dir.join("keys"), KEY).unwrap();
        fs::write(dir.join("own"), "rmk_own").unwrap();
        let groups = format!(
            "groups:\n- {{name: demo, keysFile: keys, workerKeyFile: own, workers: ['{}']}}\n",
            worker.address
        );
        fs::write(dir.join("groups.yaml"), groups).unwrap();
        let told = dir.join("address.json");
        let child = Command::new(env!("CARGO_BIN_EXE_ramen-gateway"))
            .arg("--config")
            .arg(dir.join("groups.yaml"))
            .args(["--listen", "127.0.0.1:0", "--address-file"])
            .arg(&told)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let text = tokio::time::timeout(LONG, async {
            loop {
                if let Ok(text) = fs::read(&told) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let text: serde_json::Value = serde_json::from_slice(&text.await.unwrap()).unwrap();
        let address = text["http"].as_str().unwrap().to_owned();
        Self { child, address }
    }

    fn status(&self, field: &str) -> usize {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    async fn call(&self) -> u16 {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = good("echo").replacen("accept:", "connection: close\r\naccept:", 1);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        tokio::time::timeout(LONG, reading).await.unwrap().unwrap();
        statuses(&answer)[0]
    }
}

#[tokio::test]
async fn ten_thousand_idle_connections_weigh_little_and_hold_up_nobody() {
    let temp = tempfile::tempdir().unwrap();
    let worker = Worker::start().await;
    let gateway = Process::start(temp.path(), &worker).await;
    // Both processes need a descriptor for each, and some for other things.
    let count = ramen_listener::places(CROWD + OTHERS).saturating_sub(OTHERS);
    if count < CROWD {
        let why = format!("{CROWD}: the hard limit of descriptors allows {count} (ulimit -Hn)");
        ramen_skip::say(&why);
    }
    assert_eq!(gateway.call().await, StatusCode::OK);
    let before = gateway.status("VmRSS:");
    let mut idle = Vec::with_capacity(count);
    for n in 0..count {
        let mut stream = TcpStream::connect(&gateway.address).await.unwrap();
        // Some have said nothing, some the half of something, some have had their answer.
        match n % 3 {
            0 => {}
            1 => stream.write_all(b"POST /default/demo").await.unwrap(),
            _ => {
                let ask = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
                stream.write_all(ask).await.unwrap();
                let mut first = [0; 15];
                stream.read_exact(&mut first).await.unwrap();
                assert_eq!(&first, b"HTTP/1.1 200 OK");
            }
        }
        idle.push(stream);
        if n % 1000 == 999 {
            assert_eq!(gateway.call().await, StatusCode::OK);
        }
    }
    let grown = gateway.status("VmRSS:") - before;
    assert!(
        grown < count * KIB_EACH,
        "{grown} KiB for {count} connections"
    );
    assert_eq!(gateway.call().await, StatusCode::OK);
    drop(idle);
}

/// Clients that leave at once.
const LEAVING: usize = 50;
/// What one that left may leave behind, as far as the allocator keeps something for the next.
const KIB_LEFT: usize = 16;

/// Calls a tool that tells of its progress and never ends, reads the first of it, and goes away.
async fn leaves(address: &str) {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "hang", "arguments": {}, "_meta": {"progressToken": "p"}}});
    let body = body.to_string();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("notifications/progress") {
        let read = tokio::time::timeout(LONG, stream.read_buf(&mut answer)).await;
        assert_ne!(read.unwrap().unwrap(), 0, "{answer:?}");
    }
}

#[tokio::test]
async fn net07_clients_that_leave_in_mid_answer_leave_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let worker = Worker::start().await;
    let gateway = Process::start(temp.path(), &worker).await;
    let mut left = 0;
    let mut leave = async |rounds: usize| {
        for _ in 0..rounds {
            let leaving = (0..LEAVING).map(|_| leaves(&gateway.address));
            futures::future::join_all(leaving).await;
            left += LEAVING;
            eventually("their calls were given up", || {
                worker.state.given_up.load(Ordering::SeqCst) == left
            })
            .await;
        }
    };
    // What is made once and kept is there after that.
    leave(4).await;
    assert_eq!(gateway.call().await, StatusCode::OK);
    let (descriptors, memory) = (gateway.descriptors(), gateway.status("VmRSS:"));
    leave(20).await;
    assert_eq!(gateway.call().await, StatusCode::OK);
    eventually("their connections are closed", || {
        gateway.descriptors() <= descriptors
    })
    .await;
    let grown = gateway.status("VmRSS:").saturating_sub(memory);
    let most = 20 * LEAVING * KIB_LEFT;
    assert!(grown < most, "{grown} KiB after a thousand that left");
}
