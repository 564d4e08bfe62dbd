//! `ramen validate`: what a deploy would say about a folder.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use ramen_group::{Finding, Outcome, Report};

use crate::exit::Failure;
use crate::output::{self, Colour, OutputArg, paint};
use crate::state::StateDir;
use crate::up::deploy::{Code, Job};
use crate::up::spec::group_of_folder;
use crate::worker_bin;

/// `ramen validate`.
#[derive(Args)]
pub(crate) struct ValidateArgs {
    /// The folder that holds mcp/, or the mcp folder itself
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Only what needs no Python: layout, descriptors, prompts, the syntax of requirements.txt
    #[arg(long)]
    no_install: bool,
    /// Python version to check with, as 3.12 [default: the newest that has a host]
    #[arg(long, value_name = "VERSION", conflicts_with = "no_install")]
    python: Option<String>,
    /// Allow requirements that must be built from source
    #[arg(long, conflicts_with = "no_install")]
    allow_sdist: bool,
    /// State directory whose store of installed requirements is used [default: `$XDG_STATE_HOME/ramen`]
    #[arg(long, env = crate::names::STATE_DIR, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: &ValidateArgs) -> Result<ExitCode, Failure> {
    if !args.dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is no folder",
            args.dir.display()
        )));
    }
    let report = match worker_bin::find() {
        Ok(worker) => deploy(args, worker)?,
        // The static half needs no other program; what only the worker checks is left out and said.
        Err(_) if args.no_install => {
            output::note("ramen-worker was not found: requirements.txt is not checked");
            scan(&args.dir)
        }
        Err(failure) => return Err(failure),
    };
    args.output.print(&report, || text(&report))?;
    Ok(ExitCode::from(match report.outcome {
        Outcome::Ok => 0,
        Outcome::Partial => 3,
        Outcome::Failed => 4,
    }))
}

fn scan(dir: &Path) -> Report {
    let group = ramen_group::scan(dir);
    let outcome = Outcome::of(&group.packages, &group.errors);
    Report {
        revision: None,
        tree: None,
        python: None,
        group: Some(group_of_folder(dir)),
        code: None,
        deps: None,
        packages: group.packages,
        errors: group.errors,
        errors_total: None,
        warnings: group.warnings,
        lock: None,
        lock_key: None,
        golden: ramen_group::Golden::default(),
        timings: ramen_group::Timings::default(),
        log: String::new(),
        outcome,
    }
}

fn deploy(args: &ValidateArgs, worker: PathBuf) -> Result<Report, Failure> {
    let state = StateDir::locate(args.state_dir.as_deref())?;
    // Or the worker would make it, with the rights that are usual. Where it cannot be made the worker says so if it needs it.
    let _ = state.make();
    let out = tempfile::tempdir()
        .map_err(|error| Failure::error(format!("no temporary folder: {error}")))?;
    let job = Job {
        worker,
        code: Code::Dir(args.dir.clone()),
        store: state.store(),
        cache: state.cache(),
        out: out.path().to_owned(),
        // As `ramen up` names it: secrets belong to a group, and golden calls may use them.
        group: Some(group_of_folder(&args.dir)),
        revision: None,
        python: args.python.clone(),
        no_install: args.no_install,
        allow_sdist: args.allow_sdist,
        timeout_secs: None,
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with("RAMEN_SECRET_"))
            .collect(),
    };
    let bar = bar();
    let report = crate::runtime()?.block_on(async {
        tokio::select! {
            report = job.run(|step| bar.set_message(step.text())) => report.map_err(Failure::error),
            () = crate::signals::stop() => Err(Failure::error("interrupted")),
        }
    });
    bar.finish_and_clear();
    report
}

/// A line of progress on a terminal, nothing elsewhere.
pub(crate) fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

fn text(report: &Report) -> String {
    let colour = output::colours();
    let mut lines = findings(&report.errors, &report.warnings, colour);
    let ok = report.packages.iter().filter(|package| package.ok).count();
    let verdict = match report.outcome {
        Outcome::Ok => paint(colour, Colour::Green, "ok"),
        Outcome::Partial => paint(colour, Colour::Yellow, "partly ok"),
        Outcome::Failed => paint(colour, Colour::Red, "failed"),
    };
    let golden = match report.golden.passed + report.golden.failed {
        0 => String::new(),
        all => format!(", {} of {all} golden calls passed", report.golden.passed),
    };
    let packages = report.packages.len();
    let served = match report.outcome {
        // Each package may be in order, and the revision fails for its requirements or golden calls.
        Outcome::Failed => format!("nothing would serve, {ok} of {packages} packages in order"),
        Outcome::Ok | Outcome::Partial => format!("{ok} of {packages} packages serve"),
    };
    lines.push(format!(
        "{verdict}: {served}, {}, {}{golden}",
        counted(report.errors.len(), "error"),
        counted(report.warnings.len(), "warning")
    ));
    lines.join("\n")
}

/// `1 error`, `2 errors`.
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The errors and warnings list, each entry with its fix.
pub(crate) fn findings(errors: &[Finding], warnings: &[Finding], colour: bool) -> Vec<String> {
    let kinds = [
        (errors, Colour::Red, "error"),
        (warnings, Colour::Yellow, "warning"),
    ];
    let mut lines = Vec::new();
    for (list, shade, word) in kinds {
        for finding in list {
            let told = output::plain(&finding.to_string());
            lines.push(format!("{} {told}", paint(colour, shade, word)));
            lines.push(paint(
                colour,
                Colour::Dim,
                &format!("  fix: {}", finding.reason.fix()),
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_verdict_does_not_say_that_packages_serve() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("Sales Desk");
        let tool = group.join("mcp/tools/hello");
        std::fs::create_dir_all(&tool).unwrap();
        std::fs::write(tool.join("hello.py"), "def hello(): pass\n").unwrap();
        std::fs::write(
            tool.join("hello.json"),
            r#"{"type": "tool", "name": "hello", "description": "d", "callable": "hello"}"#,
        )
        .unwrap();
        let mut report = scan(&group);
        assert_eq!(report.group.as_deref(), Some("sales-desk"));
        assert_eq!(
            text(&report),
            "ok: 1 of 1 packages serve, 0 errors, 0 warnings"
        );
        report.outcome = Outcome::Failed;
        assert_eq!(
            text(&report),
            "failed: nothing would serve, 1 of 1 packages in order, 0 errors, 0 warnings"
        );
    }
}
