//! `ramen-host`: one CPython that runs a group's code for the worker's front.
//!
//! Owns the interpreter, the import scopes and the threads that run calls; knows nothing of gRPC,
//! keys or MCP methods. It speaks the frames of `ramen-frame` on file descriptor 3 and ends when
//! that is closed.

mod boot;
mod call;
mod channel;
mod encode;
mod home;
mod identity;
mod interpreter;
mod load;
mod native;
mod outcome;
mod pool;
mod slots;

use std::{io::Write as _, process::ExitCode};

const USAGE: &str = "usage: ramen-host [--describe | --version]\n\
    Started by ramen-worker with a socket on file descriptor 3.\n";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        None => match run() {
            Ok(never) => match never {},
            Err(message) => fail(&message),
        },
        Some("--describe") => print(&identity::describe()),
        Some("--version" | "-V") => print(identity::TITLE),
        Some("--help" | "-h") => print(USAGE.trim_end()),
        Some(other) => fail(&format!("unknown argument {other}\n{USAGE}")),
    }
}

fn run() -> Result<std::convert::Infallible, String> {
    identity::check_library()?;
    let channel = channel::Channel::adopt()?;
    home::prepare();
    interpreter::start()?;
    call::serve(channel)
}

fn print(text: &str) -> ExitCode {
    let written = writeln!(std::io::stdout(), "{text}");
    if written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn fail(message: &str) -> ExitCode {
    // Nothing is left to tell it to when stderr is gone.
    let _ = writeln!(std::io::stderr(), "ramen-host: {message}");
    ExitCode::FAILURE
}
