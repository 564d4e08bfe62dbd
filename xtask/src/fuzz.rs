//! `cargo xtask fuzz`: coverage-guided fuzzing with libFuzzer on the stable toolchain. The instrumentation is LLVM's
//! own sanitizer coverage, which needs no nightly flag; the corpus is committed under `fuzz/corpus/<target>`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::workspace::{cargo, root, run as run_command, target};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this target (default: all)
    target: Option<String>,
    /// A short run with a fixed seed for `make test`; the corpus is not written
    #[arg(long)]
    smoke: bool,
    /// How long to fuzz each target
    #[arg(long, default_value_t = 60, conflicts_with = "smoke")]
    seconds: u32,
}

const SMOKE_RUNS: u32 = 2000;

/// A build for another `--target` than the host's keeps build scripts and macros free of the instrumentation.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks \
    --cfg fuzzing";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let all = targets()?;
    let chosen: Vec<String> = match &args.target {
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => bail!("no fuzz target '{name}'; there are: {}", all.join(", ")),
        None => all,
    };
    let folder = target().join("fuzz");
    let triple = host_triple()?;
    let mut build = cargo([
        "build",
        "--quiet",
        "--release",
        "--bins",
        "--target",
        &triple,
    ]);
    build
        .current_dir(root().join("fuzz"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", COVERAGE);
    run_command(&mut build).context("building the fuzz targets")?;
    let mut passed = 0;
    for name in &chosen {
        let program = folder.join(&triple).join("release").join(name);
        let corpus = root().join("fuzz/corpus").join(name);
        let artifacts = folder.join("artifacts").join(name);
        std::fs::create_dir_all(&artifacts).context("cannot create the folder for findings")?;
        let mut fuzzer = Command::new(program);
        fuzzer
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-timeout=10")
            .arg("-rss_limit_mb=2048");
        // The first folder takes what the run finds; the committed corpus is only read.
        let scratch = folder
            .join(if args.smoke { "smoke" } else { "found" })
            .join(name);
        if args.smoke {
            let _ = std::fs::remove_dir_all(&scratch);
            fuzzer.arg(format!("-runs={SMOKE_RUNS}")).arg("-seed=1");
        } else {
            fuzzer.arg(format!("-max_total_time={}", args.seconds));
        }
        std::fs::create_dir_all(&scratch).context("cannot create the folder for new inputs")?;
        fuzzer.arg(&scratch);
        fuzzer.arg(&corpus);
        if args.smoke {
            quiet(name, &mut fuzzer)?;
        } else {
            run_command(&mut fuzzer).with_context(|| {
                format!("fuzz target {name}; inputs in {}", artifacts.display())
            })?;
        }
        passed += 1;
    }
    println!("fuzz: {passed} passed, 0 failed");
    Ok(())
}

/// Runs a smoke; the fuzzer's talk is shown only when it fails.
fn quiet(name: &str, fuzzer: &mut Command) -> anyhow::Result<()> {
    let output = fuzzer
        .output()
        .with_context(|| format!("cannot start the fuzz target {name}"))?;
    if !output.status.success() {
        let talk = String::from_utf8_lossy(&output.stderr);
        bail!("fuzz target {name}: {}\n{talk}", output.status);
    }
    println!("fuzz: {name}: {SMOKE_RUNS} runs");
    Ok(())
}

/// The names of the programs in `fuzz/fuzz_targets`.
fn targets() -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("fuzz/fuzz_targets"))
        .context("cannot list fuzz/fuzz_targets")?
        .filter_map(Result::ok)
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| name.extension().is_some_and(|e| e == "rs"))
        .filter_map(|name| {
            name.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

fn host_triple() -> anyhow::Result<String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(root()).arg("-vV");
    let text = crate::workspace::output(&mut rustc)?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}
