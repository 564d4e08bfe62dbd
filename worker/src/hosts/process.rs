//! One host process: spawn, load, call, end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// What a host is started with. The environment is built from nothing: `PATH`, `LANG`, `TZ` of the
/// front, `HOME` and `TMPDIR` as given here, the secrets and `env`.
#[derive(Clone)]
pub struct HostSpec {
    /// The `ramen-host-3.x` program.
    pub program: PathBuf,
    /// A writable folder: `HOME`, `TMPDIR` and the working directory of the host.
    pub home: PathBuf,
    /// Calls at once in the host; also divides the cores among BLAS threads.
    pub threads: u16,
    /// `RAMEN_SECRET_*` names and values.
    pub secrets: Vec<(String, String)>,
    /// Further variables (`PYTHON*` and loader variables are refused).
    pub env: BTreeMap<String, String>,
    /// Where lines of stdout and stderr go; `None` discards them.
    pub output: Option<mpsc::Sender<OutputLine>>,
}

/// One line that user code printed.
#[derive(Debug, Clone)]
pub struct OutputLine {
    /// The host's process id.
    pub pid: u32,
    /// True for stderr.
    pub stderr: bool,
    /// The line, at most 8 KiB, without its newline, not yet redacted.
    pub line: String,
    /// The package that ran, when exactly one did.
    pub package: Option<u32>,
}

/// The `LOAD` frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// The group's name.
    pub group: String,
    /// The folder that contains `mcp/`'s content (the `mcp` folder itself).
    pub code_dir: PathBuf,
    /// The installed requirements.
    pub deps_dir: Option<PathBuf>,
    /// What to import, in this order.
    pub packages: Vec<LoadPackage>,
    /// `mcp/env.yaml`, resolved.
    pub env: BTreeMap<String, String>,
    /// Calls at once.
    pub threads: u16,
    /// `sys.setswitchinterval`.
    pub switch_interval_ms: u16,
}

/// Whether a package answers `tools/call` or `resources/read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageKind {
    /// A tool.
    Tool,
    /// A resource.
    Resource,
}

/// One package of a [`Load`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadPackage {
    /// Its number in `CALL` frames.
    pub id: u32,
    /// Tool or resource.
    pub kind: PackageKind,
    /// Its name.
    pub name: String,
    /// Its folder under `code_dir`, such as `tools/calc`.
    pub dir: String,
    /// The function to call.
    pub callable: String,
    /// Every parameter.
    pub params: Vec<String>,
    /// The parameters without a default in the descriptor.
    pub required: Vec<String>,
}

/// What the host says of one package.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedPackage {
    /// The number of the [`LoadPackage`].
    pub id: u32,
    /// True when it can be called.
    pub ok: bool,
    /// The reason's name when it cannot.
    #[serde(default)]
    pub reason: Option<String>,
    /// One line for the author, not redacted.
    #[serde(default)]
    pub message: Option<String>,
    /// True for `async def`.
    #[serde(default, rename = "async")]
    pub is_async: bool,
    /// Milliseconds of its import.
    #[serde(default)]
    pub ms: u64,
}

/// The `LOADED` frame.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadReport {
    /// One entry per package of the load.
    pub packages: Vec<LoadedPackage>,
    /// Threads that run after the imports.
    #[serde(default)]
    pub threads: u32,
    /// The full Python version.
    #[serde(default)]
    pub python: String,
}

/// How long a load may take.
#[derive(Debug, Clone, Copy)]
pub struct LoadLimits {
    /// From the start to the first frame.
    pub start: Duration,
    /// One package's import.
    pub package: Duration,
    /// All of it.
    pub total: Duration,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(20),
            package: Duration::from_secs(30),
            total: Duration::from_secs(120),
        }
    }
}

/// How a host ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Death {
    /// `exit(code)`.
    Exited(i32),
    /// Ended by this signal.
    Signalled(i32),
    /// It closed or broke the channel and was killed for it.
    Channel(String),
}

/// What can go wrong with a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The program could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A package's import took longer than [`LoadLimits::package`]; the host was killed.
    #[error("importing package {id} took longer than {limit:?}")]
    ImportTimeout {
        /// The package.
        id: u32,
        /// The limit.
        limit: Duration,
    },
    /// The load as a whole took longer than [`LoadLimits::total`]; the host was killed.
    #[error("the load took longer than {limit:?}")]
    LoadTimeout {
        /// The limit.
        limit: Duration,
    },
    /// The host ended; `package` was being imported, if one was.
    #[error("the host ended: {death:?}")]
    Died {
        /// How.
        death: Death,
        /// The package that was being imported.
        package: Option<u32>,
    },
    /// A frame could not be read or was larger than the protocol allows.
    #[error("the host broke the protocol: {0}")]
    Protocol(String),
}

/// The status byte of a `RESULT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyStatus {
    /// UTF-8 text: the callable returned a `str`.
    Text,
    /// JSON.
    Json,
    /// A JSON array of MCP content blocks.
    Content,
    /// UTF-8 `Type: message`, not yet redacted.
    Error,
    /// Raw bytes.
    Blob,
}

/// The `RESULT` of one call.
#[derive(Debug, Clone)]
pub struct Reply {
    /// What the payload is.
    pub status: ReplyStatus,
    /// The payload.
    pub payload: Bytes,
}

/// What a call says before its result.
#[derive(Debug, Clone)]
pub enum HostEvent {
    /// JSON `{"progress","total"?,"message"?}`.
    Progress(Bytes),
    /// JSON `{"level","logger"?,"data"}`, not yet redacted.
    Log(Bytes),
}

/// The `STATS` frame.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Calls that run or wait in the host.
    #[serde(default)]
    pub in_flight: u32,
    /// Threads of the process.
    #[serde(default)]
    pub threads: u32,
    /// Calls since the start.
    #[serde(default)]
    pub calls: u64,
}

/// Options of one call.
#[derive(Default)]
pub struct CallOptions {
    /// Where progress and log lines go; without it they are dropped.
    pub events: Option<mpsc::Sender<HostEvent>>,
}

/// A running host. Dropping it kills the host and everything in its process group.
pub struct HostProcess {
    _private: (),
}

impl HostProcess {
    /// Starts the program with its end of the channel as fd 3.
    pub async fn spawn(spec: &HostSpec) -> Result<Self, HostError> {
        let _ = spec;
        todo!("skeleton")
    }

    /// Sends `LOAD` and waits for `LOADED`. `importing` is told of each package before its import.
    pub async fn load(
        &self,
        load: &Load,
        limits: LoadLimits,
        importing: impl FnMut(u32),
    ) -> Result<LoadReport, HostError> {
        let _ = (load, limits, importing);
        todo!("skeleton")
    }

    /// Sends one call; `arguments` is a JSON object. Fails at once when the host is gone.
    pub fn call(
        &self,
        package: u32,
        arguments: &[u8],
        options: CallOptions,
    ) -> Result<CallHandle, HostError> {
        let _ = (package, arguments, options);
        todo!("skeleton")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        todo!("skeleton")
    }

    /// `SIGKILL` to the whole process group.
    pub fn kill(&self) {
        todo!("skeleton")
    }

    /// Waits until the process ended and was reaped.
    pub async fn died(&self) -> Death {
        todo!("skeleton")
    }

    /// Asks for `STATS`.
    pub async fn stats(&self) -> Result<Stats, HostError> {
        todo!("skeleton")
    }

    /// Sends `EXIT`, waits up to `grace` and kills what is left.
    pub async fn end(self, grace: Duration) -> Death {
        let _ = grace;
        todo!("skeleton")
    }
}

/// A call in flight. Dropping it before the reply sends `CANCEL`.
pub struct CallHandle {
    _private: (),
}

impl CallHandle {
    /// The reply, or how the host was lost.
    pub async fn reply(self) -> Result<Reply, HostError> {
        todo!("skeleton")
    }
}
