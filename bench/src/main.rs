//! The benchmark of one machine: our worker and our gateway against their peers, all on the same calculator and the same
//! Python, in interleaved rounds. Writes `target/bench/worker.json` and a plot of the ratios, or `target/bench/gateway.json`,
//! and one table on stdout.
#![expect(clippy::print_stdout, reason = "results of a command line tool")]

mod api_server;
mod cli;
mod grpc;
mod http;
mod lab;
mod load;
mod measures;
mod null;
mod plot;
mod servers;
mod stub;

use std::process::ExitCode;

use clap::Parser as _;
use ramen_bench::{processes, report, stats};

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        match cli.command {
            Some(Command::Null) => runtime.block_on(null::serve()),
            Some(Command::Stub) => runtime.block_on(stub::serve()),
            Some(Command::Gateway(options)) => runtime.block_on(measures::gateway::run(options)),
            None => runtime.block_on(measures::run(cli.worker.options, cli.worker.plot)),
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
