//! `ramen-gateway`: serves the groups that its configuration names.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "ramen-gateway",
    version,
    about = "One HTTP address for all groups"
)]
struct Cli {
    #[command(flatten)]
    args: ramen_gateway::config::Args,
}

fn main() -> ExitCode {
    ramen_gateway::serve::run(Cli::parse().args)
}
