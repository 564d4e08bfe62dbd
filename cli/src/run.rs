//! From the arguments of the process to its exit code.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::{app, exit, output};

/// The program's other name: called by it, the command is `ramen bridge`.
const BRIDGE_NAME: &str = "ramen-mcp-bridge";

/// Runs the command with these arguments (the first is the program's name) and returns its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = rename(args.into_iter().collect());
    let matches = match app::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            // A closed pipe is no reason to fail while failing.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let cli = match app::Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.format(&mut app::Cli::command()).exit(),
    };
    output::init_log();
    match cli.run() {
        Ok(code) => code,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                output::note(&format!("error: {text}"));
            }
            failure.into()
        }
    }
}

/// `ramen-mcp-bridge ARGS` is `ramen bridge ARGS`.
fn rename(args: Vec<OsString>) -> Vec<OsString> {
    let called = args
        .first()
        .and_then(|name| Path::new(name).file_stem())
        .map(ToOwned::to_owned);
    if called.as_deref() != Some(BRIDGE_NAME.as_ref()) {
        return args;
    }
    let rest = args.into_iter().skip(1);
    [OsString::from("ramen"), OsString::from("bridge")]
        .into_iter()
        .chain(rest)
        .collect()
}

/// The async runtime of a command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, exit::Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| exit::Failure::error(format!("cannot start: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_name_is_the_bridge() {
        let os = |items: &[&str]| items.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            rename(os(&["/x/ramen-mcp-bridge", "--health"])),
            os(&["ramen", "bridge", "--health"])
        );
        assert_eq!(rename(os(&["ramen", "ls"])), os(&["ramen", "ls"]));
        assert_eq!(rename(Vec::new()), Vec::<OsString>::new());
    }
}
