//! Ten thousand connections that do nothing, at a gateway of its own process.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::StatusCode;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{KEY, LONG};
use crate::wire::{good, statuses};
use crate::worker::Worker;

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
    let limit = getrlimit(Resource::Nofile);
    let room = limit
        .current
        .unwrap_or(u64::MAX)
        .min(limit.maximum.unwrap_or(u64::MAX));
    let count = usize::try_from(room)
        .unwrap()
        .saturating_sub(1000)
        .min(10_000);
    if count < 10_000 {
        let why = format!("ten thousand: the limit of descriptors allows {count} (ulimit -n)");
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
