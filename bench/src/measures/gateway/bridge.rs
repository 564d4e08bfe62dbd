//! What the bridge adds to a call: stdin to stdout against the worker's own answer.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::lab::Lab;
use crate::load::closed;
use crate::measures::throughput::calculator;
use crate::report::Findings;
use crate::servers::{Worker, clean, deploy};
use crate::stats::quantile;

const WANTED: &str = "\"42";
const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}"#;

pub(super) async fn added(lab: &Lab, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = lab.folder("bridge")?;
    let report = deploy(lab, &lab.group("bridge-repo")?, &folder).await?;
    let worker = Worker::start(lab, &folder, &report, &[]).await?;
    let mut bridge = Bridge::start(lab, &worker)?;
    bridge.ask(HELLO, "\"serverInfo\"").await?;
    let (target, body) = (worker.target(), calculator());
    let call = String::from_utf8(body.to_vec())?;
    let mut rounds = Vec::new();
    for _ in 0..lab.rounds {
        let own = closed(&target, 1, lab.load, &body, WANTED).await?;
        let own = own.good("worker")?.quantile_us(0.5);
        let through = bridge.load(&call, lab.load).await?;
        rounds.push((through - own) / 1e3);
    }
    findings.add("bridge_added_ms", rounds, "p50, one in flight");
    bridge.end().await?;
    worker.stop().await
}

struct Bridge {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    fn start(lab: &Lab, worker: &Worker) -> anyhow::Result<Self> {
        let mut command = Command::new(lab.bin.join("ramen"));
        let mut child = clean(&mut command)
            .args(["bridge", "--target", &worker.address, "--key-file"])
            .arg(worker.folder.join("keys/key"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the bridge")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    async fn ask(&mut self, message: &str, wanted: &str) -> anyhow::Result<()> {
        self.stdin.write_all(message.as_bytes()).await?;
        self.stdin.write_all(b"\n").await?;
        self.stdin.flush().await?;
        let answer = self.lines.next_line().await?.context("the bridge ended")?;
        ensure!(answer.contains(wanted), "the bridge answers {answer}");
        Ok(())
    }

    /// The median of calls one after the other, in microseconds.
    async fn load(&mut self, call: &str, time: Duration) -> anyhow::Result<f64> {
        let (begin, mut latencies) = (Instant::now(), Vec::new());
        while begin.elapsed() < time {
            let started = Instant::now();
            self.ask(call, WANTED).await?;
            latencies.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        latencies.sort_unstable();
        Ok(quantile(&latencies, 0.5))
    }

    async fn end(self) -> anyhow::Result<()> {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        let status = child.wait().await?;
        ensure!(status.success(), "the bridge ended with {status}");
        Ok(())
    }
}
