//! The chart's alert rules in a real Prometheus that reads what runs.

use std::env;

use anyhow::{Context as _, bail};
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
    let python = env::var_os("RAMEN_TEST_PYTHON").context("RAMEN_TEST_PYTHON is not set")?;
    let mut command = Command::new(python);
    command.arg(top().join("e2e/prometheus.py"));
    command.args(targets.iter().map(|(job, at)| format!("{job}={at}")));
    command.args(absent.iter().map(|series| format!("--absent={series}")));
    let done = command.kill_on_drop(true).output().await?;
    if done.status.code() == Some(NONE) {
        eprintln!(
            "SKIPPED the alert rules in a real Prometheus: there is none (charts/tests/tools.sh brings it)"
        );
        return Ok(());
    }
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("the alert rules do not hold:\n{said}");
    }
    Ok(())
}
