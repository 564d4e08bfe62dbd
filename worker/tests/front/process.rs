//! The program: its configuration, its end and its signals.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::{Client, KEY, connect, eventually};
use crate::{group, scripted_hosts};

pub(crate) struct Program {
    pub(crate) child: Child,
    grpc: std::net::SocketAddr,
    dir: tempfile::TempDir,
}

impl Program {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// One with more variables.
    pub(crate) async fn start_with(variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys"), KEY).unwrap();
        let desired = group(&["echo", "pid", "seen"])
            .scripted_with("slow", "until_interrupted", &json!({"timeout_seconds": 1}))
            .scripted_with(
                "note",
                "echo",
                &json!({"input": {"text": {"type": "string"}}}),
            )
            .publish(&dir.path().join("store"), "one")
            .await;
        std::fs::write(
            dir.path().join("desired"),
            serde_json::to_vec(&desired).unwrap(),
        )
        .unwrap();
        let addresses = dir.path().join("addresses");
        let child = Command::new(env!("CARGO_BIN_EXE_ramen-worker"))
            .arg("serve")
            .args([
                "--listen",
                "127.0.0.1:0",
                "--metrics-listen",
                "off",
                "--drain-secs",
                "10",
            ])
            .args(["--hosts", "1", "--group", "g"])
            .env("RAMEN_KEYS_FILE", dir.path().join("keys"))
            .env("RAMEN_STORE", dir.path().join("store"))
            .env("RAMEN_DESIRED", dir.path().join("desired"))
            .env("RAMEN_HOST_DIR", scripted_hosts())
            .env("RAMEN_ADDRESS_FILE", &addresses)
            .envs(variables.iter().copied())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let grpc = eventually("the address file", async || {
            let text = std::fs::read(&addresses).ok()?;
            let json: Value = serde_json::from_slice(&text).unwrap();
            json["grpc"].as_str()?.parse().ok()
        })
        .await;
        Self { child, grpc, dir }
    }

    pub(crate) async fn client(&self) -> Client {
        let client = Client::new(connect(self.grpc).await, Some(KEY));
        eventually("it serves", async || {
            client.try_tool("echo", json!({})).await.ok()
        })
        .await;
        client
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

#[tokio::test]
async fn run14_sigterm_answers_what_is_in_flight_and_exits_0() {
    let mut program = Program::start().await;
    let client = program.client().await;
    let host = client.text("pid", json!({})).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.error("slow", json!({})).await }
    });
    let mut other = client.session().await;
    other
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await;
    other.next().await;
    program.signal(Signal::TERM);
    // The idle session is ended by the worker.
    assert_eq!(other.try_next().await.unwrap(), None);
    // No new connections.
    eventually("the port is closed", async || {
        tokio::net::TcpStream::connect(program.grpc)
            .await
            .is_err()
            .then_some(())
    })
    .await;
    let answer = waiting.await.unwrap();
    assert!(
        answer.starts_with("TimeoutError"),
        "it was answered: {answer}"
    );
    let status = tokio::time::timeout(Duration::from_secs(20), program.child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(0));
    eventually("the host is gone", async || {
        (!std::path::Path::new(&format!("/proc/{host}")).exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_killed_worker_leaves_no_host_behind() {
    let mut program = Program::start().await;
    let client = program.client().await;
    let host = client.text("pid", json!({})).await;
    program.child.kill().await.unwrap();
    eventually("the host is gone", async || {
        (!std::path::Path::new(&format!("/proc/{host}")).exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn sighup_reads_the_keys_again() {
    let program = Program::start().await;
    let client = program.client().await;
    // At once: half written it would hold neither key.
    let (new, keys) = (
        program.dir.path().join("new"),
        program.dir.path().join("keys"),
    );
    std::fs::write(&new, "rmk_next").unwrap();
    std::fs::rename(new, keys).unwrap();
    program.signal(Signal::HUP);
    eventually("the old key is refused", async || {
        client.try_tool("echo", json!({})).await.err()
    })
    .await;
    let next = Client::new(connect(program.grpc).await, Some("rmk_next"));
    eventually("the new key counts", async || {
        next.try_tool("echo", json!({})).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_wrong_configuration_is_told_in_one_message_with_exit_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_ramen-worker"))
        .args([
            "serve",
            "--listen",
            "here",
            "--allowed-cidrs",
            "10.0.0.0/ 24",
        ])
        .env_remove("RAMEN_STORE")
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    for name in [
        "RAMEN_LISTEN",
        "RAMEN_ALLOWED_CIDRS",
        "10.0.0.0/ 24",
        "RAMEN_STORE",
    ] {
        assert!(text.contains(name), "{name} in {text}");
    }
}

#[tokio::test]
async fn a_worker_ends_when_the_named_parent_is_not_its_parent() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ramen-worker"))
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--metrics-listen",
            "off",
        ])
        .env("RAMEN_STORE", tempfile::tempdir().unwrap().path())
        .env("RAMEN_PARENT_PID", "1")
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait()).await;
    assert!(!ended.expect("it ends").unwrap().success());
}
