//! How a request to a group ended, told by its answer.

use http::StatusCode;
use http_body::Body as _;
use ramen_mcp::Era;
use tonic::Code;

use super::NO_ERA;
use crate::answer::{Answer, Refusal};

/// How a request ended. What cannot be seen in the status travels with the answer, as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a result.
    Ok,
    /// With a result that is an error of the tool.
    ToolError,
    /// With a JSON-RPC error that the worker or the upstream gave.
    Error,
    /// It was no good request.
    Invalid,
    /// The gate turned it away.
    Refused,
    /// No worker took it.
    Unavailable,
    /// Its time was over.
    Deadline,
    /// The worker was full.
    Exhausted,
    /// The connection broke, or a process of the worker; whether it ran is not known.
    Lost,
    /// The worker refuses the gateway, or answered what is no answer.
    BadWorker,
    /// Its answer comes as events.
    Stream,
    /// A subscription was opened.
    Listening,
    /// The caller went away.
    Cancelled,
}

impl Outcome {
    pub(crate) const ALL: [Self; 13] = [
        Self::Ok,
        Self::ToolError,
        Self::Error,
        Self::Invalid,
        Self::Refused,
        Self::Unavailable,
        Self::Deadline,
        Self::Exhausted,
        Self::Lost,
        Self::BadWorker,
        Self::Stream,
        Self::Listening,
        Self::Cancelled,
    ];

    /// In one word.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Deadline => "deadline",
            Self::Exhausted => "exhausted",
            Self::Lost => "lost",
            Self::BadWorker => "bad_worker",
            Self::Stream => "stream",
            Self::Listening => "listening",
            Self::Cancelled => "cancelled",
        }
    }

    /// Of a call that failed on the way to its worker or back.
    pub(crate) fn of_status(code: Code, lost: bool) -> Self {
        match code {
            Code::Unauthenticated | Code::PermissionDenied => Self::BadWorker,
            _ if lost => Self::Lost,
            Code::Unavailable => Self::Unavailable,
            Code::DeadlineExceeded => Self::Deadline,
            Code::ResourceExhausted => Self::Exhausted,
            _ => Self::Error,
        }
    }

    /// Lets an answer say it.
    pub(crate) fn mark(self, mut answer: Answer) -> Answer {
        answer.extensions_mut().insert(self);
        answer
    }

    /// What an answer says.
    pub(crate) fn of(answer: &Answer) -> Self {
        let extensions = answer.extensions();
        if let Some(outcome) = extensions.get::<Self>() {
            return *outcome;
        }
        if extensions.get::<Refusal>().is_some() {
            return Self::Refused;
        }
        match (answer.status(), answer.body()) {
            (StatusCode::BAD_GATEWAY, _) => Self::BadWorker,
            (status, _) if status.is_server_error() => Self::Unavailable,
            (status, _) if status.is_client_error() => Self::Invalid,
            // Nobody knows how long it gets.
            (_, body) if body.size_hint().exact().is_none() => Self::Stream,
            _ => Self::Ok,
        }
    }
}

/// The era of the request, when it came so far as to say it.
pub(super) fn era_of(answer: &Answer) -> &'static str {
    match answer.extensions().get::<Era>() {
        Some(Era::Legacy(_)) => "legacy",
        Some(Era::Modern) => "modern",
        None => NO_ERA,
    }
}
