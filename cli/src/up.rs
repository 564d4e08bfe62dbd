//! `ramen up`: McpGroups on one machine, with the same source, deploy step and worker as on a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::exit::Failure;
use crate::names;
use crate::output::OutputArg;

mod child;
pub(crate) mod deploy;

/// `ramen up`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct UpArgs {
    /// A folder that holds mcp/: served as it is and reloaded on save
    #[arg(group = "what", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// File with McpGroup documents and the Secret documents they name; read again when it changes and on SIGHUP
    #[arg(short, long, group = "what", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where the first worker listens; others take free ports of the same address [default: free ports of 127.0.0.1]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<std::net::SocketAddr>,
    /// State directory [default: $XDG_STATE_HOME/ramen]
    #[arg(long, env = names::STATE_DIR, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: UpArgs) -> Result<ExitCode, Failure> {
    let _ = args;
    Err(Failure::error("not built yet"))
}
