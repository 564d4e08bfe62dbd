//! How a command ends: its exit code and the one message that says why.

use std::fmt;
use std::process::ExitCode;

/// `ramen status`: a group is not ready.
pub const NOT_READY: u8 = 7;

/// The exit codes of every command.
pub const TABLE: &[(u8, &str)] = &[
    (0, "all is well"),
    (
        1,
        "it failed; the message says why (bridge --health: not SERVING)",
    ),
    (
        2,
        "wrong usage: flags, arguments of a tool, files named by flags, or a spec that does not validate",
    ),
    (
        3,
        "validate: some packages are broken, the others would serve",
    ),
    (
        4,
        "validate: nothing would serve, requirements or golden calls failed",
    ),
    (
        5,
        "call, read: the tool or the resource answered with an error",
    ),
    (
        6,
        "call, ls, read, prompt, bridge: there is no worker, it cannot be reached or it refused the call; \
         status: the same of the cluster, or it knows no McpGroups",
    ),
    (NOT_READY, "status: a group is not ready"),
];

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Anything that is not told apart below: exit 1.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            message: message.into(),
        }
    }

    /// Wrong usage: exit 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }

    /// The function of a tool or resource failed: exit 5.
    pub fn tool(message: impl Into<String>) -> Self {
        Self {
            code: 5,
            message: message.into(),
        }
    }

    /// The worker is away or refused the call: exit 6.
    pub fn transport(message: impl Into<String>) -> Self {
        Self {
            code: 6,
            message: message.into(),
        }
    }

    /// An end without a message: the command has printed what there is to say.
    pub fn silent(code: u8) -> Self {
        Self {
            code,
            message: String::new(),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> Self {
        Self::from(failure.code)
    }
}

/// The codes as text, for the end of every `--help`.
pub fn help() -> String {
    TABLE
        .iter()
        .fold("Exit codes:\n".to_owned(), |text, (code, what)| {
            text + &format!("  {code}  {what}\n")
        })
}
