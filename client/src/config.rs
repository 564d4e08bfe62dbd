//! Which servers there are: the `mcpServers` files that people have already.
//!
//! Read are the shapes of Claude Desktop, Claude Code and Cursor (`{"mcpServers": {..}}`) and of VS Code
//! (`{"servers": {..}}` in `mcp.json`, `{"mcp": {"servers": {..}}}` in its settings), comments and trailing commas
//! included. A field that says something about the connection is honoured, one that only concerns the other program is
//! ignored, and one that nobody knows is a fault of its entry: a typing error must not start another server than meant.
//!
//! One broken entry costs that entry and nothing else: it becomes a [`Fault`] that names server and file.

mod entry;
mod expand;
mod fingerprint;
mod jsonc;
mod load;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ramen_redact::{Redactor, SafeUrl, Secret};

use crate::handshake::EraChoice;

pub use entry::from_json;
pub use fingerprint::Fingerprint;
pub use load::{Fault, Loaded, Sources, load};

/// Where a workspace keeps its own list.
pub const PROJECT_FILE: &str = ".ramen/mcp.json";

/// Characters of a secret from which on it is masked. Short values ("1", "true", "info") are settings, and would mask half of
/// every text.
pub(crate) const MIN_MASKED: usize = 6;

/// One entry: how a server is reached. Its `Debug` shows no value of the environment and no header.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// How it is reached.
    pub transport: Transport,
    /// Whether it is to be connected at all.
    pub enabled: bool,
    /// Which era of the protocol is tried.
    pub era: EraChoice,
    /// How long a request may take, when the entry says so.
    pub timeout: Option<Duration>,
    /// Which of its tools are known at all, by name; `*` at the end of one stands for any rest. All when empty.
    pub allowed_tools: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program of its own, spoken to over its stdin and stdout.
    Stdio {
        /// The program, looked up on the `PATH`.
        command: String,
        /// Its arguments. They may hold secrets: many servers take a token there.
        args: Vec<String>,
        /// What its environment has beside the harmless rest of ours.
        env: BTreeMap<String, Secret>,
        /// Where it runs.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP endpoint.
    Http {
        /// Where.
        url: SafeUrl,
        /// Sent with each request.
        headers: BTreeMap<String, Secret>,
    },
}

impl ServerConfig {
    /// A program, spoken to over stdio.
    pub fn stdio<A: Into<String>>(
        command: impl Into<String>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        Self::over(Transport::Stdio {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
        })
    }

    /// A Streamable HTTP endpoint.
    pub fn http(url: SafeUrl) -> Self {
        Self::over(Transport::Http {
            url,
            headers: BTreeMap::new(),
        })
    }

    /// Whatever the transport reaches, with everything else as it is by default.
    pub fn over(transport: Transport) -> Self {
        Self {
            transport,
            enabled: true,
            era: EraChoice::default(),
            timeout: None,
            allowed_tools: Vec::new(),
        }
    }

    /// The same with a variable in its environment, or a header, by what it is.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        match &mut self.transport {
            Transport::Stdio { env, .. } => env.insert(name.into(), value.into()),
            Transport::Http { headers, .. } => headers.insert(name.into(), value.into()),
        };
        self
    }

    /// The same, tried in this era.
    #[must_use]
    pub fn with_era(mut self, era: EraChoice) -> Self {
        self.era = era;
        self
    }

    /// Whether a tool of this name is let through.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == pattern,
        };
        self.allowed_tools.is_empty() || self.allowed_tools.iter().any(fits)
    }

    /// Whether both lead to one server, if with other credentials.
    pub(crate) fn same_server(&self, other: &Self) -> bool {
        match (&self.transport, &other.transport) {
            (Transport::Http { url: a, .. }, Transport::Http { url: b, .. }) => a == b,
            (
                Transport::Stdio {
                    command: a,
                    args: c,
                    ..
                },
                Transport::Stdio {
                    command: b,
                    args: d,
                    ..
                },
            ) => a == b && c == d,
            _ => false,
        }
    }

    /// What identifies the connection: another one after any edit that can change what is reached.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self)
    }

    /// Takes the values of environment and headers out of a text.
    pub(crate) fn redactor(&self) -> Redactor {
        let values = match &self.transport {
            Transport::Stdio { env, .. } => env,
            Transport::Http { headers, .. } => headers,
        };
        let secrets = values.values().flat_map(|value| {
            let value = value.expose().as_str();
            // A server that quotes its token quotes it without the scheme.
            let token = value.split_once(' ').map(|(_, token)| token);
            [Some(value), token].into_iter().flatten()
        });
        // Of an address, as it is written and as it is sent.
        let password = match &self.transport {
            Transport::Http { url, .. } => url.expose().password(),
            Transport::Stdio { .. } => None,
        };
        let sent = password.map(|password| {
            let bytes = percent_encoding::percent_decode_str(password);
            bytes.decode_utf8_lossy().into_owned()
        });
        let secrets = secrets.chain(password).chain(sent.as_deref());
        Redactor::new(secrets.filter(|value| value.chars().count() >= MIN_MASKED))
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ServerConfig");
        match &self.transport {
            Transport::Stdio {
                command,
                args,
                env,
                cwd,
            } => out
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd),
            Transport::Http { url, headers } => out
                .field("url", url)
                .field("headers", &headers.keys().collect::<Vec<_>>()),
        };
        out.field("enabled", &self.enabled)
            .field("era", &self.era)
            .field("timeout", &self.timeout)
            .field("allowed_tools", &self.allowed_tools)
            .finish()
    }
}

/// A variable of our own environment, for the programs that are started.
pub(crate) fn inherited(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// The environment of this process, for [`Sources::env`]. What is not UTF-8 is not there.
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
