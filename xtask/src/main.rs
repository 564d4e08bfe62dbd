//! The project's own chores: `cargo xtask --help` lists them. One file per command.
#![expect(clippy::print_stdout, reason = "results of a command line tool")]

mod changelog;
mod check_deps;
mod check_dirs;
mod check_size;
mod crdgen;
mod fuzz;
mod r#gen;
mod hosts;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the Ramen workspace
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the changelog fragments, or join them
    Changelog(changelog::Args),
    /// Check which crate may depend on what
    CheckDeps,
    /// Check the layout: known top-level folders, no mod.rs
    CheckDirs(check_dirs::Args),
    /// Check that no source file is too long
    CheckSize,
    /// Write the kind McpGroup as YAML, for kubectl and for the chart
    Crdgen(crdgen::Args),
    /// Build the fuzz targets and run them
    Fuzz(fuzz::Args),
    /// Write the generated pages of docs/reference
    Gen(r#gen::Args),
    /// Build one ramen-host per CPython found
    Hosts(hosts::Args),
}

fn main() -> ExitCode {
    workspace::exit_code(run(Cli::parse().command))
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Changelog(args) => changelog::run(&args),
        Command::CheckDeps => check_deps::run(),
        Command::CheckDirs(args) => check_dirs::run(&args),
        Command::CheckSize => check_size::run(),
        Command::Crdgen(args) => crdgen::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Gen(args) => r#gen::run(&args),
        Command::Hosts(args) => hosts::run(&args),
    }
}
