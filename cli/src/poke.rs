//! `ramen poke`: tells the running `ramen up` to look at its sources now.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::exit::Failure;
use crate::names;
use crate::state::StateDir;

const PATIENCE: Duration = Duration::from_secs(5);

/// `ramen poke`.
#[derive(Args)]
pub(crate) struct PokeArgs {
    /// The group (or namespace/group) [default: all]
    group: Option<String>,
    /// Also try again what failed before with the same code
    #[arg(long)]
    retry: bool,
    /// State directory of `ramen up` [default: `$XDG_STATE_HOME/ramen`]
    #[arg(long, env = names::STATE_DIR, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &PokeArgs) -> Result<ExitCode, Failure> {
    let socket = StateDir::locate(args.state_dir.as_deref())?.socket();
    let verb = if args.retry { "retry" } else { "poke" };
    let answer =
        ask(&socket, verb, args.group.as_deref().unwrap_or_default()).map_err(|error| {
            Failure::error(format!(
                "no `ramen up` listens at {}: {error}; start one (`ramen up DIR`), or name its --state-dir",
                socket.display()
            ))
        })?;
    match answer.split_once(' ') {
        Some(("ok", _)) => Ok(ExitCode::SUCCESS),
        Some(("error", why)) => Err(Failure::usage(why.to_owned())),
        _ => Err(Failure::error(format!(
            "an answer that makes no sense: {answer:?}"
        ))),
    }
}

/// Says a line to the running `ramen up`; its answer.
pub(crate) fn ask(socket: &std::path::Path, verb: &str, group: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{verb} {group}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}
