//! The chart's alert rules in a real Prometheus that reads what runs.

use std::env;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::release::top;

/// The exit code of the program where there is no Prometheus.
const NONE: i32 = 77;

/// Holds every rule of the chart to these targets, `(job, host:port)`: all of them can be read, each rule is evaluated, and
/// asks for series that are there but for the `absent` ones. Without a Prometheus it says so and holds nothing.
///
/// # Errors
/// With what does not hold.
pub async fn rules_hold(targets: &[(&str, String)], absent: &[&str]) -> anyhow::Result<()> {
    let absent = absent.iter().map(|series| format!("--absent={series}"));
    let held = run(targets, absent).await;
    held.context("the alert rules do not hold").map(drop)
}

/// What the expression of one of the chart's alerts finds at these targets now: a list with the labels of each series. Without
/// a Prometheus it says so, and gives `None`.
///
/// # Errors
/// When it cannot be evaluated.
pub async fn alert_finds(alert: &str, targets: &[(&str, String)]) -> anyhow::Result<Option<Value>> {
    let said = run(targets, [format!("--alert={alert}")]).await?;
    let found = said.map(|said| serde_json::from_str(&said)).transpose();
    found.with_context(|| format!("what {alert} finds"))
}

/// What the program prints that starts a Prometheus; `None` where there is none.
async fn run(
    targets: &[(&str, String)],
    words: impl IntoIterator<Item = String>,
) -> anyhow::Result<Option<String>> {
    let python = env::var_os("RAMEN_TEST_PYTHON").context("RAMEN_TEST_PYTHON is not set")?;
    let mut command = Command::new(python);
    command.arg(top().join("e2e/prometheus.py"));
    command.args(targets.iter().map(|(job, at)| format!("{job}={at}")));
    command.args(words);
    let done = command.kill_on_drop(true).output().await?;
    if done.status.code() == Some(NONE) {
        ramen_skip::say(
            "its part with a real Prometheus: there is none (charts/tests/tools.sh brings it)",
        );
        return Ok(None);
    }
    if !done.status.success() {
        bail!("{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned()))
}
