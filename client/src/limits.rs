//! How much a server may cost.

use std::time::Duration;

/// The bounds of one connection. The defaults fit people's servers; a gateway narrows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one message, either way, and of one HTTP answer.
    pub message: usize,
    /// Requests waiting for their answers.
    pub pending: usize,
    /// Pages of one list.
    pub pages: usize,
    /// Items of one list.
    pub items: usize,
    /// Bytes of all items of one list.
    pub list: usize,
    /// Lines of stderr that are kept to explain an end.
    pub stderr_lines: usize,
    /// Bytes of one line of stderr that are kept.
    pub stderr_line: usize,
    /// From the start to the end of the first `tools/list`.
    pub connect: Duration,
    /// How long a server may be silent to the question whether it is a modern one.
    pub probe: Duration,
    /// From a request to its answer, when the request does not say otherwise.
    pub request: Duration,
    /// How long a process may take to end by itself, and then again after `SIGTERM`.
    pub close: Duration,
    /// Between two refreshes of a list that a server says has changed.
    pub refresh: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 16 * 1024 * 1024,
            pending: 1024,
            pages: 1000,
            items: 10_000,
            list: 64 * 1024 * 1024,
            stderr_lines: 20,
            stderr_line: 2048,
            connect: Duration::from_mins(1),
            probe: Duration::from_secs(3),
            request: Duration::from_mins(2),
            close: Duration::from_secs(2),
            refresh: Duration::from_secs(1),
        }
    }
}
