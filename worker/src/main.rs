//! `ramen-worker`: `serve` answers MCP calls, `deploy` builds and checks one revision.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "ramen-worker", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer MCP calls of one group over gRPC.
    Serve(Box<ramen_worker::config::ServeArgs>),
    /// Build the layers of one revision, check every package and write the report.
    Deploy(Box<ramen_worker::deploy::DeployArgs>),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    ramen_worker::parent::watch();
    match cli.command {
        Command::Serve(args) => ramen_worker::serve::run(*args),
        Command::Deploy(args) => ramen_worker::deploy::run(*args),
    }
}
