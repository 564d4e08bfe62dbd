//! Why something did not work. No message holds a secret of the configuration.

use std::sync::Arc;
use std::time::Duration;

use ramen_mcp::McpError;

/// A cause that is only shown.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What can go wrong with one server.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration cannot be used.
    #[error("the configuration of {server} cannot be used: {why}")]
    Config {
        /// Which server.
        server: String,
        /// What is wrong.
        why: String,
    },
    /// The program cannot be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The command.
        program: String,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// The address cannot be reached.
    #[error("cannot reach {url}: {why}")]
    Connect {
        /// Where, without credentials.
        url: String,
        /// Why.
        why: String,
    },
    /// The server answered with an HTTP status that means failure.
    #[error("{url} answers HTTP {status}{}", detail(.text))]
    Http {
        /// Where, without credentials.
        url: String,
        /// The status.
        status: u16,
        /// The beginning of what it says.
        text: String,
    },
    /// The server wants a sign-in, or refuses the one it got.
    #[error("{url} wants a sign-in (HTTP {status})")]
    SignIn {
        /// Where, without credentials.
        url: String,
        /// 401 or 403.
        status: u16,
        /// `WWW-Authenticate`, where it tells how to sign in.
        challenge: Option<String>,
    },
    /// The sign-in that a server wants did not work.
    #[error("the sign-in at {url} did not work: {why}")]
    SignInFailed {
        /// Where, without credentials.
        url: String,
        /// Why.
        why: String,
    },
    /// The transport went away: the process ended, the connection dropped, or the client was closed.
    #[error("the server is gone: {why}")]
    Gone {
        /// What was noticed.
        why: String,
    },
    /// The legacy session is not known to the server any more.
    #[error("the server does not know the session any more")]
    SessionLost,
    /// No answer in time; the server was told to stop.
    #[error("no answer to {method} within {} s", .after.as_secs_f64())]
    Timeout {
        /// The request.
        method: String,
        /// How long we waited.
        after: Duration,
    },
    /// Too many requests wait already.
    #[error("{pending} requests wait for an answer already")]
    Busy {
        /// The bound.
        pending: usize,
    },
    /// A message is larger than it may be.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// Which message.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The server says no, as the protocol has it.
    #[error("{0}")]
    Rpc(McpError),
    /// The server's answer breaks the protocol.
    #[error("the answer to {method} cannot be used: {why}")]
    Answer {
        /// The request.
        method: String,
        /// What is wrong.
        why: String,
    },
    /// The server asks a person something, and nobody is there to answer.
    #[error("{method} needs an answer from a person, which this client cannot get")]
    InputRequired {
        /// The request.
        method: String,
    },
}

impl ClientError {
    /// The transport went away.
    pub(crate) fn gone(why: impl Into<String>) -> Self {
        Self::Gone { why: why.into() }
    }

    /// An answer that cannot be used.
    pub(crate) fn answer(method: &str, why: impl Into<String>) -> Self {
        Self::Answer {
            method: method.to_owned(),
            why: why.into(),
        }
    }

    /// The message with its causes, for a log line or a person.
    pub fn chain(&self) -> String {
        ramen_redact::chain(self)
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}
