//! The command line.

use clap::{Args, Parser, Subcommand};

use crate::lab;

#[derive(Parser)]
#[command(about = "Benchmarks of Ramen on one machine", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
}

#[derive(Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) options: lab::Options,
    /// Where to write the plot of the ratios (only after a full run)
    #[arg(long, default_value = "docs/assets/bench-worker.svg")]
    pub(crate) plot: std::path::PathBuf,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The null server: the transport's ceiling, a calculator in Rust (started by the benchmark itself)
    #[command(hide = true)]
    Null,
    /// The stub of a worker behind the gateway (started by the benchmark itself)
    #[command(hide = true)]
    Stub,
    /// The gateway, the bridge and the client instead of the worker
    Gateway(lab::Options),
}
