//! The `ramen` command; called as `ramen-mcp-bridge` it is `ramen bridge`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ramen_cli::main(std::env::args_os())
}
