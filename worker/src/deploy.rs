//! `ramen-worker deploy`: from a code layer to checked layers and a report.

use std::process::ExitCode;

/// Arguments of `ramen-worker deploy`.
#[derive(Debug, clap::Args)]
pub struct DeployArgs {}

/// Runs the deploy step.
#[must_use]
pub fn run(args: DeployArgs) -> ExitCode {
    let DeployArgs {} = args;
    ExitCode::from(1)
}
