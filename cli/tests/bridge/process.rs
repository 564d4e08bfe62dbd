//! `ramen bridge` as a client would run it: a child process with pipes, every line of its stdout checked.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::server::KEY;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bridge {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

/// The program with an environment that no setting of the machine leaks into.
pub(crate) fn ramen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramen"));
    command
        .args(args)
        .env_clear()
        .env("RAMEN_BRIDGE_KEY", KEY)
        .env("HOME", "/nonexistent");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Bridge {
    pub(crate) fn start(target: &str) -> Self {
        Self::with(&["bridge", "--target", target])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Self::of(ramen(args))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines,
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes.as_ref()).await.unwrap();
        stdin.flush().await.unwrap();
    }

    pub(crate) async fn line(&mut self, text: impl AsRef<str>) {
        self.send(format!("{}\n", text.as_ref())).await;
    }

    /// The next line of stdout as it is.
    pub(crate) async fn raw(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .expect("no line came")
            .unwrap()
            .expect("stdout ended")
    }

    /// The next line of stdout, which must be JSON-RPC.
    pub(crate) async fn read(&mut self) -> Value {
        let line = self.raw().await;
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(value["jsonrpc"], "2.0", "{line}");
        value
    }

    pub(crate) async fn ask(&mut self, text: impl AsRef<str>) -> Value {
        self.line(text).await;
        self.read().await
    }

    /// Closes stdin, waits for the end and returns what was left on stdout and stderr.
    pub(crate) async fn end(mut self) -> (std::process::ExitStatus, Vec<String>, String) {
        drop(self.stdin.take());
        let status = tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("it does not end")
            .unwrap();
        let mut rest = Vec::new();
        while let Some(line) = self.lines.next_line().await.unwrap() {
            rest.push(line);
        }
        let mut stderr = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .await
            .unwrap();
        assert!(!stderr.contains(KEY), "the key was printed");
        (status, rest, stderr)
    }
}

/// Runs the program to its end: exit code, stdout, stderr.
pub(crate) async fn output(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = ramen(args);
    command.stdin(Stdio::null());
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .expect("it does not end")
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(
        !out.contains(KEY) && !err.contains(KEY),
        "the key was printed"
    );
    (output.status.code(), out, err)
}
