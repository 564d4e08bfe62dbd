//! How hosts and calls end.

use std::fmt;
use std::time::Duration;

use ramen_frame::FrameError;

/// How a host ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Death {
    /// `exit(code)`.
    Exited(i32),
    /// Ended by this signal, not by us.
    Signalled(i32),
    /// It broke the channel, in this way, and was ended for it.
    Channel(String),
    /// We ended it.
    Ended(EndCause),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signalled(signal) => write!(f, "signal {signal}"),
            Self::Channel(why) => write!(f, "its channel: {why}"),
            Self::Ended(cause) => write!(f, "{cause}"),
        }
    }
}

/// How a host broke its channel. One that closes it, as each does when it ends, has not broken it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    /// The system does not let us read it.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// What came is no frame of a host.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Why we ended a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// A call did not end after its deadline or its caller's leaving.
    Overdue,
    /// It grew over its own memory limit.
    Memory,
    /// All hosts together held more memory than they may, and it held the most.
    Budget {
        /// Bytes that it held, with the processes that it had started.
        held: u64,
        /// Bytes that all may hold together.
        budget: u64,
    },
    /// It had answered as many calls as one host may.
    Recycled,
    /// Its revision is served no more, or the worker stops.
    Retired,
    /// Its packages did not load in time.
    Load,
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overdue => "ended because a call did not return",
            Self::Memory => "ended over its memory limit",
            Self::Budget { held, budget } => {
                return write!(
                    f,
                    "ended for its memory: it held {} MiB, and all processes of the group together may hold {} MiB",
                    held >> 20,
                    budget >> 20
                );
            }
            Self::Recycled => "recycled",
            Self::Retired => "retired",
            Self::Load => "ended because a load took too long",
        })
    }
}

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The host died while the call ran in it.
    #[error("the host process died while the call ran ({0})")]
    Crashed(Death),
    /// The host was ended for another call's sake.
    #[error("the host process was restarted ({0})")]
    Restarted(EndCause),
    /// The host had died before; the call was not sent.
    #[error("the host process is not running ({0})")]
    Gone(Death),
    /// The arguments do not fit into a frame; the call was not sent.
    #[error("arguments of {0} bytes are too large for a host")]
    TooLarge(usize),
    /// The host does not read what it is sent; the call was not sent.
    #[error("the host process does not take calls")]
    Busy,
    /// No host is up, and none is likely to come up soon; the call was not sent.
    #[error("no host process is up")]
    NoHost,
    /// The call was given up, perhaps while it ran.
    #[error("the call was given up")]
    Lost,
}

/// What can go wrong with a host as a whole.
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
    /// A package's import took longer than `LoadLimits::package`; the host was killed.
    #[error("importing package {id} took longer than {limit:?}")]
    ImportTimeout {
        /// The package.
        id: u32,
        /// The limit.
        limit: Duration,
    },
    /// The host did not begin to load, or the whole load took too long; it was killed.
    #[error("the load took longer than {limit:?}")]
    LoadTimeout {
        /// The limit.
        limit: Duration,
    },
    /// The host ended; `package` was being imported, if one was.
    #[error("the host process ended ({death})")]
    Died {
        /// How.
        death: Death,
        /// The package that was being imported.
        package: Option<u32>,
    },
    /// A frame could not be written.
    #[error("cannot write a frame")]
    Frame(#[source] FrameError),
}
