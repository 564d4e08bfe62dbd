//! The typed frames of both directions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Number, value::RawValue};

use crate::codec::{FrameError, RawFrame, begin, finish};

/// The kind bytes: below 128 from front to host, above from host to front.
pub mod kind {
    /// Import the packages; JSON [`Load`](super::Load).
    pub const LOAD: u8 = 1;
    /// Run a callable; `u64 LE call id | u32 LE package id | JSON arguments object`.
    pub const CALL: u8 = 2;
    /// Mark a call as cancelled; `u64 LE`.
    pub const CANCEL: u8 = 3;
    /// Interrupt the thread of a call; `u64 LE`.
    pub const INTERRUPT: u8 = 4;
    /// Ask for [`Stats`](super::Stats); empty.
    pub const STATS: u8 = 5;
    /// End the process; empty.
    pub const EXIT: u8 = 6;
    /// A package's import starts; JSON [`Importing`](super::Importing).
    pub const IMPORTING: u8 = 129;
    /// All imports are done; JSON [`Loaded`](super::Loaded).
    pub const LOADED: u8 = 130;
    /// A call ended; `u64 LE call id | u8 status | payload`.
    pub const RESULT: u8 = 131;
    /// Progress of a call; `u64 LE call id | JSON` [`Progress`](super::Progress).
    pub const PROGRESS: u8 = 132;
    /// A log message of a call; `u64 LE call id | JSON` [`Log`](super::Log).
    pub const LOG: u8 = 133;
    /// The host's counters; JSON [`Stats`](super::Stats).
    pub const STATS_REPLY: u8 = 134;
}

/// Which contract a package follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PackageKind {
    /// A callable under `mcp/tools`.
    Tool,
    /// A callable under `mcp/resources`: its `bytes` travel as a blob.
    Resource,
}

/// `LOAD`: everything that a host must know before it takes calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Load {
    /// Name of the group, for `{{$group.NAME}}` in `ramen_runtime.secrets.resolve`.
    pub group: String,
    /// The unpacked code layer: the folder that holds `tools/`, `resources/`, … (`mcp/` of the
    /// repo), or its parent.
    pub code_dir: String,
    /// The unpacked dependency layer, when the group has requirements.
    pub deps_dir: Option<String>,
    /// What to import, in this order.
    pub packages: Vec<LoadPackage>,
    /// Exported to `os.environ` before the first import.
    pub env: BTreeMap<String, String>,
    /// Calls at once; 0 = the default of 8.
    pub threads: usize,
    /// `sys.setswitchinterval`, in milliseconds; 0 = the default of 1.
    pub switch_interval_ms: u32,
}

/// One package of a [`Load`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadPackage {
    /// Named in `CALL`, `IMPORTING` and `LOADED`.
    pub id: u32,
    /// Tool or resource.
    pub kind: PackageKind,
    /// Name of the package: also the stem of its module.
    pub name: String,
    /// Its folder relative to the code folder, such as `tools/calc`.
    pub dir: String,
    /// Name of the callable in `<name>.py`.
    pub callable: String,
    /// All declared input parameters.
    #[serde(default)]
    pub params: Vec<String>,
    /// Those of them that a caller must send.
    #[serde(default)]
    pub required: Vec<String>,
}

/// `IMPORTING`: sent before each import, so that a hang can be put down to a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Importing {
    /// Package id.
    pub id: u32,
}

/// `LOADED`: the outcome of every import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loaded {
    /// One entry for each package of the `LOAD`, in its order.
    pub packages: Vec<LoadedPackage>,
    /// OS threads that the imports left running beside the host's own.
    #[serde(default)]
    pub threads: usize,
    /// Full version of the interpreter, such as `3.11.7`.
    pub python: String,
    /// A fault of the whole load that stops no package (for example a repo module that the
    /// built-in `ramen_runtime` hides).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Outcome of one import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedPackage {
    /// Package id.
    pub id: u32,
    /// Whether calls will be taken.
    pub ok: bool,
    /// Name of a `ramen_group` reason when not ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One line for people when not ok.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The callable is a coroutine function.
    #[serde(default, rename = "async")]
    pub is_async: bool,
    /// Milliseconds of import and checks.
    #[serde(default)]
    pub ms: u64,
}

/// `PROGRESS` of a call, as MCP's `notifications/progress` wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How far.
    pub progress: Number,
    /// Of how much, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Number>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `LOG` of a call, as MCP's `notifications/message` wants it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// One of the eight syslog levels of MCP.
    pub level: String,
    /// Name of the logger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// Any JSON value, as the tool gave it.
    pub data: Box<RawValue>,
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.level == other.level
            && self.logger == other.logger
            && self.data.get() == other.data.get()
    }
}

/// The host's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// Calls that run now.
    pub in_flight: usize,
    /// OS threads of the process.
    pub threads: usize,
    /// Calls ended since the start.
    pub calls: u64,
}

/// What the payload of a `RESULT` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The callable returned a `str`: its UTF-8.
    Text = 0,
    /// The callable returned another value: its JSON.
    Json = 1,
    /// The callable returned MCP content: a JSON array of content blocks.
    Content = 2,
    /// The callable failed: `Type: message`, one line of UTF-8. A second line may say where in its package
    /// ([`error_place`](crate::error_place)); it is for the log and never goes to a caller.
    Error = 3,
    /// A resource returned bytes: those bytes.
    Blob = 4,
}

impl Status {
    fn parse(byte: u8) -> Result<Self, FrameError> {
        Ok(match byte {
            0 => Self::Text,
            1 => Self::Json,
            2 => Self::Content,
            3 => Self::Error,
            4 => Self::Blob,
            other => return Err(FrameError::UnknownStatus(other)),
        })
    }
}

/// A frame from the front to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost<'a> {
    /// Import the packages.
    Load(Load),
    /// Run a callable.
    Call {
        /// Chosen by the front, unique among the calls in flight.
        call: u64,
        /// Which package.
        package: u32,
        /// JSON object.
        arguments: &'a [u8],
    },
    /// Mark a call as cancelled.
    Cancel(u64),
    /// Raise `KeyboardInterrupt` in the thread of a call.
    Interrupt(u64),
    /// Ask for the counters.
    Stats,
    /// End the process.
    Exit,
}

impl<'a> ToHost<'a> {
    /// Reads the payload of a frame that came from the front.
    pub fn parse(frame: RawFrame<'a>) -> Result<Self, FrameError> {
        Ok(match frame.kind {
            kind::LOAD => Self::Load(json(frame.kind, frame.payload)?),
            kind::CALL => {
                let (call, rest) = u64_field(frame.kind, frame.payload)?;
                let (package, arguments) = rest.split_first_chunk().ok_or_else(|| short(&frame))?;
                Self::Call {
                    call,
                    package: u32::from_le_bytes(*package),
                    arguments,
                }
            }
            kind::CANCEL => Self::Cancel(u64_field(frame.kind, frame.payload)?.0),
            kind::INTERRUPT => Self::Interrupt(u64_field(frame.kind, frame.payload)?.0),
            kind::STATS => Self::Stats,
            kind::EXIT => Self::Exit,
            other => return Err(FrameError::UnknownKind(other)),
        })
    }

    /// Appends the frame to `out`; on an error `out` is as before.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Load(load) => write_json(out, kind::LOAD, None, load),
            Self::Call {
                call,
                package,
                arguments,
            } => {
                let mark = begin(out, kind::CALL);
                out.extend_from_slice(&call.to_le_bytes());
                out.extend_from_slice(&package.to_le_bytes());
                out.extend_from_slice(arguments);
                finish(out, mark)
            }
            Self::Cancel(call) => write_u64(out, kind::CANCEL, *call),
            Self::Interrupt(call) => write_u64(out, kind::INTERRUPT, *call),
            Self::Stats => {
                let mark = begin(out, kind::STATS);
                finish(out, mark)
            }
            Self::Exit => {
                let mark = begin(out, kind::EXIT);
                finish(out, mark)
            }
        }
    }
}

/// A frame from a host to the front.
#[derive(Debug, Clone, PartialEq)]
pub enum FromHost<'a> {
    /// A package's import starts.
    Importing(Importing),
    /// All imports are done.
    Loaded(Loaded),
    /// A call ended.
    Result {
        /// Which call.
        call: u64,
        /// What the payload is.
        status: Status,
        /// By the status.
        payload: &'a [u8],
    },
    /// Progress of a call.
    Progress {
        /// Which call.
        call: u64,
        /// How far.
        update: Progress,
    },
    /// A log message of a call.
    Log {
        /// Which call.
        call: u64,
        /// The message.
        entry: Log,
    },
    /// The counters.
    Stats(Stats),
}

impl<'a> FromHost<'a> {
    /// Reads the payload of a frame that came from a host.
    pub fn parse(frame: RawFrame<'a>) -> Result<Self, FrameError> {
        Ok(match frame.kind {
            kind::IMPORTING => Self::Importing(json(frame.kind, frame.payload)?),
            kind::LOADED => Self::Loaded(json(frame.kind, frame.payload)?),
            kind::RESULT => {
                let (call, rest) = u64_field(frame.kind, frame.payload)?;
                let (status, payload) = rest.split_first().ok_or_else(|| short(&frame))?;
                Self::Result {
                    call,
                    status: Status::parse(*status)?,
                    payload,
                }
            }
            kind::PROGRESS => {
                let (call, rest) = u64_field(frame.kind, frame.payload)?;
                Self::Progress {
                    call,
                    update: json(frame.kind, rest)?,
                }
            }
            kind::LOG => {
                let (call, rest) = u64_field(frame.kind, frame.payload)?;
                Self::Log {
                    call,
                    entry: json(frame.kind, rest)?,
                }
            }
            kind::STATS_REPLY => Self::Stats(json(frame.kind, frame.payload)?),
            other => return Err(FrameError::UnknownKind(other)),
        })
    }

    /// Appends the frame to `out`; on an error `out` is as before.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Self::Importing(importing) => write_json(out, kind::IMPORTING, None, importing),
            Self::Loaded(loaded) => write_json(out, kind::LOADED, None, loaded),
            Self::Result {
                call,
                status,
                payload,
            } => {
                let mark = begin(out, kind::RESULT);
                out.extend_from_slice(&call.to_le_bytes());
                out.push(*status as u8);
                out.extend_from_slice(payload);
                finish(out, mark)
            }
            Self::Progress { call, update } => write_json(out, kind::PROGRESS, Some(*call), update),
            Self::Log { call, entry } => write_json(out, kind::LOG, Some(*call), entry),
            Self::Stats(stats) => write_json(out, kind::STATS_REPLY, None, stats),
        }
    }
}

fn short(frame: &RawFrame<'_>) -> FrameError {
    FrameError::Short {
        kind: frame.kind,
        len: frame.payload.len(),
    }
}

fn u64_field(kind: u8, payload: &[u8]) -> Result<(u64, &[u8]), FrameError> {
    let (field, rest) = payload.split_first_chunk().ok_or(FrameError::Short {
        kind,
        len: payload.len(),
    })?;
    Ok((u64::from_le_bytes(*field), rest))
}

fn json<T: DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|source| FrameError::Json { kind, source })
}

fn write_u64(out: &mut Vec<u8>, kind: u8, value: u64) -> Result<(), FrameError> {
    let mark = begin(out, kind);
    out.extend_from_slice(&value.to_le_bytes());
    finish(out, mark)
}

fn write_json<T: Serialize>(
    out: &mut Vec<u8>,
    kind: u8,
    call: Option<u64>,
    value: &T,
) -> Result<(), FrameError> {
    let mark = begin(out, kind);
    if let Some(call) = call {
        out.extend_from_slice(&call.to_le_bytes());
    }
    if let Err(source) = serde_json::to_writer(&mut *out, value) {
        out.truncate(mark);
        return Err(FrameError::Json { kind, source });
    }
    finish(out, mark)
}
