//! The benchmark of Ramen on a real cluster (`make bench-cluster`): what a push, a change of requirements and a new group
//! take on real pods (tier 3 or 4), and what a thousand groups cost where nothing but the operator runs (tier 2).
//! Each part runs inside a cluster (`e2e/bench.sh`); `report` puts them together.
#![expect(clippy::print_stdout, reason = "results of a command line tool")]

mod clock;
mod live;
mod measures;
mod scale;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use ramen_bench::processes;
use ramen_bench::report::Findings;
use serde_json::Value;

use crate::measures::GOALS;

#[derive(Parser)]
#[command(
    about = "Benchmarks of Ramen on a cluster of e2e/cluster",
    version,
    after_help = "`make bench-cluster` runs both parts and the report; BENCH=\"…\" gives flags to both parts."
)]
struct Cli {
    #[command(subcommand)]
    part: Part,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
struct Options {
    /// Only these measures, by id, separated by commas
    #[arg(long, value_delimiter = ',', global = true)]
    only: Vec<String>,
    /// Two rounds of each measure with real pods, and a short look at rest, to see that everything runs
    #[arg(long, global = true)]
    quick: bool,
    /// Groups of the part on tier 2; they are compared with a tenth of them
    #[arg(long, default_value_t = 1000, global = true)]
    groups: usize,
    /// Where the results are written
    #[arg(long, default_value = "target/bench", global = true)]
    out: PathBuf,
}

impl Options {
    /// Whether one of these is to be measured.
    fn wants(&self, ids: &[&str]) -> bool {
        self.only.is_empty() || ids.iter().any(|id| self.only.iter().any(|only| only == id))
    }
}

#[derive(Subcommand, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// With real pods, on a cluster of tier 3 or 4
    Live,
    /// A thousand groups, on a cluster of tier 2
    Scale,
    /// Joins what the parts wrote: cluster.json and the table
    Report,
}

impl Part {
    fn file(self) -> &'static str {
        match self {
            Self::Live => "cluster-live.json",
            Self::Scale => "cluster-scale.json",
            Self::Report => "cluster.json",
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.part, &cli.options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Gives whether everything that was wanted could be measured.
fn run(part: Part, options: &Options) -> anyhow::Result<bool> {
    let mut findings = Findings::new(GOALS);
    if part == Part::Report {
        for part in [Part::Live, Part::Scale] {
            let path = options.out.join(part.file());
            // A part that did not run is not in the report.
            if let Ok(text) = std::fs::read_to_string(&path) {
                let json = serde_json::from_str(&text)
                    .with_context(|| format!("what is in {}", path.display()))?;
                findings.join(&json);
            }
        }
    } else {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            match part {
                Part::Live => live::run(options, &mut findings).await,
                Part::Scale | Part::Report => scale::run(options, &mut findings).await,
            }
        });
    }
    findings.sort();
    let mut machine = processes::machine();
    machine["full"] = Value::from(!options.quick && options.only.is_empty());
    machine["groups"] = Value::from(options.groups);
    let json = serde_json::to_string_pretty(&findings.json(&machine))?;
    std::fs::create_dir_all(&options.out)?;
    let path = options.out.join(part.file());
    std::fs::write(&path, json + "\n").with_context(|| format!("writing {}", path.display()))?;
    if part == Part::Report {
        print!("{}", findings.table());
    }
    Ok(findings.missed.is_empty())
}
