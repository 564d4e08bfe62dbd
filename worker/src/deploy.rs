//! `ramen-worker deploy`: from a code layer to checked layers and a report.
//!
//! ```text
//! code (folder or layer) → scan → requirements → lock → deps layer → host: import, check → golden calls
//!                                                                                    └→ report.json
//! ```
//! Used by `ramen up`, `ramen validate` and the deploy job alike. It changes nothing that serves:
//! what it makes is new layers in the store and a report. Code of the group runs nowhere but in a
//! host process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ramen_group::{Outcome, Report};

use crate::config::{HOSTS_MEMORY, HostEnv, IMPORT};
use crate::names;

mod deps;
mod golden;
mod host;
mod import;
mod index;
mod log;
mod progress;
mod requirements;
mod run;
mod uv;
mod verdict;
mod work;

pub use progress::ProgressMode;

/// Arguments of `ramen-worker deploy`.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(
    args_override_self = true,
    after_help = "Exit codes: 0 all packages serve, 3 some do, 4 none or the revision failed, \
                        2 wrong usage, 1 internal error. With --report-url: 0 when the report \
                        was handed over, whatever it says."
)]
pub struct DeployArgs {
    /// The folder that holds `mcp/`, or the `mcp` folder itself.
    #[arg(long, value_name = "DIR", required_unless_present = "code_layer")]
    pub code_dir: Option<PathBuf>,
    /// A code layer of the store.
    #[arg(long, value_name = "KEY@sha256:HEX", conflicts_with = "code_dir")]
    pub code_layer: Option<CodeLayer>,
    /// The artifact store, or the address of the operator's artifact endpoint.
    #[arg(long, value_name = "DIR|URL", env = names::STORE)]
    pub store: PathBuf,
    /// File with the token for the artifact endpoint.
    #[arg(long, alias = "token-file", value_name = "FILE", env = names::STORE_TOKEN_FILE)]
    pub store_token_file: Option<PathBuf>,
    /// Where the deps layer and the report are handed over, besides `--out`: an address of the
    /// artifact endpoint that ends with `/report`.
    #[arg(long, value_name = "URL", requires = "store_token_file")]
    pub report_url: Option<String>,
    /// Where `report.json` is written, and scratch files during the run.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Folder for unpacked layers; shared with `serve` nothing is unpacked twice [default:
    /// `unpacked` in the store, or in `--out` when the store is an address].
    #[arg(long, value_name = "DIR", env = names::CACHE_DIR)]
    pub cache_dir: Option<PathBuf>,
    /// Name of the group, for its secrets.
    #[arg(long, value_name = "NAME", env = names::GROUP, default_value = "group")]
    pub group: String,
    /// Copied into the report.
    #[arg(long, value_name = "TEXT")]
    pub revision: Option<String>,
    /// The Python version, such as 3.11 [default: the newest that has a host].
    #[arg(long, value_name = "VERSION")]
    pub python: Option<String>,
    /// Folder of the `ramen-host-3.x` programs [default: the folder of this program].
    #[arg(long, value_name = "DIR", env = names::HOST_DIR)]
    pub host_dir: Option<PathBuf>,
    /// Variables of this process that the code gets too, by their names, separated by commas.
    #[arg(long, value_name = "NAMES", env = names::HOST_ENV, default_value = "", hide_default_value = true)]
    pub host_env: HostEnv,
    /// The `uv` program [default: `uv` on PATH].
    #[arg(long, value_name = "PATH", env = names::UV)]
    pub uv: Option<PathBuf>,
    /// Check files only: nothing is installed, imported or called.
    #[arg(long)]
    pub no_install: bool,
    /// Allow requirements that must be built from source, which runs their code.
    #[arg(long)]
    pub allow_sdist: bool,
    /// Resolve again although a lock for the same requirements is known.
    #[arg(long)]
    pub refresh: bool,
    /// Seconds for the whole run.
    #[arg(long, value_name = "SECS", default_value_t = 600)]
    pub timeout: u64,
    /// Seconds for the import of one package.
    #[arg(long, value_name = "SECS", env = names::IMPORT_TIMEOUT_SECS, default_value_t = 30, value_parser = clap::value_parser!(u64).range(IMPORT))]
    pub import_timeout: u64,
    /// Memory for all processes of the group together, 0 for no bound [default: what the container
    /// or the machine has, less a reserve].
    #[arg(long, value_name = "MIB", env = names::HOSTS_MEMORY_MIB, value_parser = clap::value_parser!(u64).range(HOSTS_MEMORY))]
    pub hosts_memory_mib: Option<u64>,
    /// The most that installed requirements may take, and the most that building local ones may write.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    pub max_deps_bytes: u64,
    /// How progress is told: JSON lines on stdout, text on stderr, or not.
    #[arg(long, value_enum, default_value_t)]
    pub progress: ProgressMode,
    /// Hand the `RAMEN_SECRET_*` of this process to the code (for `env.yaml` and golden calls).
    #[arg(long)]
    pub secrets_from_env: bool,
}

/// `KEY@sha256:HEX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLayer {
    /// The key.
    pub key: String,
    /// The digest.
    pub digest: String,
}

impl std::str::FromStr for CodeLayer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, digest) = text.rsplit_once('@').ok_or("write KEY@sha256:HEX")?;
        digest
            .parse::<ramen_source::Digest>()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            key: key.to_owned(),
            digest: digest.to_owned(),
        })
    }
}

/// Exit code of a run that could not even write a report.
const INTERNAL: u8 = 1;

/// Runs the deploy step as a program.
#[must_use]
pub fn run(args: DeployArgs) -> ExitCode {
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    let progress = args.progress;
    let handed_over = args.report_url.is_some();
    let result = runtime.block_on(async {
        tokio::select! {
            result = deploy(args, std::env::vars().collect()) => Some(result),
            () = stopped() => None,
        }
    });
    // A blocked file operation must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_millis(200));
    match result {
        None => fail("stopped by a signal"),
        Some(Err(error)) => fail(&format!("{error:#}")),
        Some(Ok(report)) => {
            if progress == ProgressMode::Text {
                summary(&report);
            }
            ExitCode::from(match report.outcome {
                // Whoever took the report judges it; a job that ended well is not a failed job.
                _ if handed_over => 0,
                Outcome::Ok => 0,
                Outcome::Partial => 3,
                Outcome::Failed => 4,
            })
        }
    }
}

/// Runs the deploy step and writes the report. `vars` is the environment: installer settings and
/// secrets are taken from it. An error means that there is no report.
pub async fn deploy(args: DeployArgs, vars: BTreeMap<String, String>) -> anyhow::Result<Report> {
    run::run(args, vars).await
}

async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

fn fail(message: &str) -> ExitCode {
    say(&format!("ramen-worker deploy: {message}"));
    ExitCode::from(INTERNAL)
}

fn summary(report: &Report) {
    for finding in &report.warnings {
        say(&format!("warning: {finding}"));
    }
    for finding in &report.errors {
        say(&format!("error: {finding}"));
    }
    let ok = report.packages.iter().filter(|package| package.ok).count();
    let all = report.packages.len();
    let verdict = match report.outcome {
        Outcome::Ok => format!("ok: all {all} packages serve"),
        Outcome::Partial => format!("partly ok: {ok} of {all} packages serve"),
        Outcome::Failed => "failed: nothing of this revision is served".to_owned(),
    };
    let golden = report.golden;
    let calls = match golden.passed + golden.failed {
        0 => String::new(),
        calls => format!(", {} of {calls} golden calls passed", golden.passed),
    };
    say(&format!(
        "{verdict}{calls} ({} ms)",
        report.timings.total_ms
    ));
}

fn say(line: &str) {
    use std::io::Write as _;
    // Nobody reads it: the exit code still tells.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

fn write_by_rename(dir: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    std::io::Write::write_all(&mut file, bytes)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
