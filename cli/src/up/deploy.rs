//! `ramen-worker deploy` as a child process: its progress lines, its report, its end.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ramen_group::{LayerRef, Report};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use super::child;

/// Bytes of the child's stderr that are kept for a message.
const MAX_STDERR: u64 = 16 * 1024;

/// What to deploy.
#[derive(Debug, Clone)]
pub(crate) enum Code {
    /// A folder that holds `mcp/`.
    Dir(PathBuf),
    /// A code layer in the store.
    Layer(LayerRef),
}

/// One deploy.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) worker: PathBuf,
    pub(crate) code: Code,
    pub(crate) store: PathBuf,
    /// Unpacked layers, shared with the worker.
    pub(crate) cache: PathBuf,
    /// Where `report.json` goes.
    pub(crate) out: PathBuf,
    pub(crate) group: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) python: Option<String>,
    pub(crate) no_install: bool,
    pub(crate) allow_sdist: bool,
    pub(crate) timeout_secs: Option<u64>,
    /// Environment beyond the one inherited: package index settings, and all of `RAMEN_SECRET_*`.
    pub(crate) env: Vec<(String, OsString)>,
}

/// A line of progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Progress {
    pub(crate) phase: String,
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) message: String,
}

impl Progress {
    /// `install 3/12 4.1 MiB numpy`, for one line of a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = self.phase.clone();
        if let Some(total) = self.total {
            let _ = write!(text, " {}/{total}", self.done);
        } else if self.done > 0 {
            let _ = write!(text, " {}", self.done);
        }
        if let Some(bytes) = self.bytes {
            let _ = write!(text, " {}", size(bytes));
        }
        if !self.message.is_empty() {
            text.push(' ');
            text.push_str(&self.message);
        }
        text
    }
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB"];
    let mut power = 0;
    while power + 1 < units.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    if power == 0 {
        return format!("{bytes} B");
    }
    let tenths = (bytes >> (10 * (power - 1))) * 10 / 1024;
    format!("{}.{} {}", tenths / 10, tenths % 10, units[power])
}

impl Job {
    fn command(&self) -> Command {
        let mut command = child::command(&self.worker);
        command.arg("deploy");
        match &self.code {
            Code::Dir(dir) => command.arg("--code-dir").arg(dir),
            Code::Layer(layer) => command
                .arg("--code-layer")
                .arg(format!("{}@{}", layer.key, layer.digest)),
        };
        command
            .arg("--store")
            .arg(&self.store)
            .arg("--out")
            .arg(&self.out)
            .args(["--progress", "json"]);
        let options = [
            ("--group", &self.group),
            ("--revision", &self.revision),
            ("--python", &self.python),
        ];
        for (flag, value) in options {
            if let Some(value) = value {
                command.arg(flag).arg(value);
            }
        }
        if let Some(secs) = self.timeout_secs {
            command.arg("--timeout").arg(secs.to_string());
        }
        for (flag, on) in [
            ("--no-install", self.no_install),
            ("--allow-sdist", self.allow_sdist),
        ] {
            if on {
                command.arg(flag);
            }
        }
        if self
            .env
            .iter()
            .any(|(name, _)| name.starts_with("RAMEN_SECRET_"))
        {
            command.arg("--secrets-from-env");
        }
        command.env("RAMEN_CACHE_DIR", &self.cache);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        child::own_group(&mut command);
        command
    }

    /// Runs the deploy to its end, or kills it when the future is dropped. The error is a sentence.
    pub(crate) async fn run(&self, mut progress: impl FnMut(Progress)) -> Result<Report, String> {
        let report = self.out.join("report.json");
        // A report of an earlier run must not be taken for this one's.
        match std::fs::remove_file(&report) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot replace {}: {error}", report.display()));
            }
            _ => {}
        }
        let mut running = child::spawn(self.command())
            .map_err(|error| format!("cannot start {}: {error}", self.worker.display()))?;
        let stdout = running.child.stdout.take();
        let stderr = running.child.stderr.take();
        let read_progress = async {
            let Some(stdout) = stdout else { return };
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(step) = serde_json::from_str(&line) {
                    progress(step);
                }
            }
        };
        let read_errors = async {
            let mut text = Vec::new();
            if let Some(stderr) = stderr {
                let mut stderr = stderr.take(MAX_STDERR);
                let _ = stderr.read_to_end(&mut text).await;
                let _ = tokio::io::copy(&mut stderr.into_inner(), &mut tokio::io::sink()).await;
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let ((), errors) = tokio::join!(read_progress, read_errors);
        let status = running
            .child
            .wait()
            .await
            .map_err(|error| format!("the deploy was lost: {error}"))?;
        let ended = status.code().is_some_and(|code| matches!(code, 0 | 3 | 4));
        match read_report(&report) {
            Ok(report) if ended => Ok(report),
            Ok(_) | Err(_) if !ended => Err(format!(
                "the deploy ended with {status}: {}",
                last_lines(&errors)
            )),
            Ok(report) => Ok(report),
            Err(why) => Err(why),
        }
    }
}

fn read_report(file: &Path) -> Result<Report, String> {
    let bytes =
        std::fs::read(file).map_err(|error| format!("the deploy left no report: {error}"))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("the deploy's report cannot be read: {error}"))
}

/// The end of a child's stderr, where the reason usually stands.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let from = lines.len().saturating_sub(3);
    let text = lines[from..].join("; ");
    if text.is_empty() {
        "it said nothing".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_progress_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(5 * 1024 * 1024 + 1), "5.0 MiB");
        let step: Progress = serde_json::from_str(
            r#"{"phase":"install","done":3,"total":12,"bytes":4194304,"message":"numpy"}"#,
        )
        .unwrap();
        assert_eq!(step.text(), "install 3/12 4.0 MiB numpy");
        let step: Progress = serde_json::from_str(r#"{"phase":"resolve","total":null}"#).unwrap();
        assert_eq!(step.text(), "resolve");
    }
}
