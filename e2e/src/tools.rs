//! The programs that a person has: helm and kubectl, built by `e2e/cluster`.

use std::{env, process::Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command};

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// It ended well.
    pub ok: bool,
    /// On stdout.
    pub out: String,
    /// On stderr.
    pub err: String,
}

impl Said {
    /// What it printed.
    ///
    /// # Errors
    /// When it did not end well; its words are in the text.
    pub fn good(self) -> anyhow::Result<String> {
        if self.ok {
            return Ok(self.out);
        }
        bail!("{}{}", self.out, self.err)
    }
}

/// Runs helm, with values on its stdin where there are any (then `--values -` is among the words).
///
/// # Errors
/// When it cannot be run.
pub async fn helm(words: &[&str], values: Option<&Value>) -> anyhow::Result<Said> {
    // What is JSON is YAML.
    let text = values.map(Value::to_string);
    run("helm", words, text.as_deref()).await
}

/// Runs kubectl.
///
/// # Errors
/// When it cannot be run.
pub async fn kubectl(words: &[&str]) -> anyhow::Result<Said> {
    run("kubectl", words, None).await
}

/// Runs kubectl with something on its stdin.
///
/// # Errors
/// When it cannot be run.
pub async fn kubectl_with(words: &[&str], stdin: &str) -> anyhow::Result<Said> {
    run("kubectl", words, Some(stdin)).await
}

async fn run(tool: &str, words: &[&str], stdin: Option<&str>) -> anyhow::Result<Said> {
    let program = env::var_os("RAMEN_CLUSTER_PROGRAM")
        .with_context(|| format!("{tool} needs a test that runs through `cluster exec`"))?;
    let mut child = Command::new(program)
        .args([tool, "--"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {tool}"))?;
    let mut to = child.stdin.take().context("a pipe was asked for")?;
    to.write_all(stdin.unwrap_or_default().as_bytes()).await?;
    drop(to);
    let output = child.wait_with_output().await?;
    Ok(Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
