//! The benchmark of one machine: our worker against its peers, all on the same calculator and the same Python, in
//! interleaved rounds. Writes `target/bench/worker.json`, a plot of the ratios, and one table on stdout.
#![expect(clippy::print_stdout, reason = "results of a command line tool")]

mod grpc;
mod http;
mod lab;
mod load;
mod measures;
mod null;
mod plot;
mod servers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ramen_bench::{processes, report, stats};

#[derive(Parser)]
#[command(about = "Benchmarks of Ramen on one machine", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: lab::Options,
}

#[derive(Subcommand)]
enum Command {
    /// The null server: the transport's ceiling, a calculator in Rust (started by the benchmark itself)
    #[command(hide = true)]
    Null,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        match cli.command {
            Some(Command::Null) => runtime.block_on(null::serve()),
            None => runtime.block_on(measures::run(cli.options)),
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
