//! What can go wrong in a run, each with a word for status, events and metrics.

use crate::reasons;

/// A run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server refused, or could not be reached.
    #[error("cannot {verb} {object}: {}", api(.source))]
    Api {
        /// `apply`, `read`, `delete`.
        verb: &'static str,
        /// `Deployment team-a/calc-default`.
        object: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// An object of that name belongs to somebody else.
    #[error("{object} exists and is not this group's: rename the group, or remove the object")]
    Foreign {
        /// `Secret team-a/calc-mcp-keys`.
        object: String,
    },
    /// What the operator remembers of the group cannot be read.
    #[error("the ConfigMap {name} cannot be read: {message}; remove it to start afresh")]
    Memory {
        /// The `ConfigMap`.
        name: String,
        /// Why.
        message: String,
    },
    /// An object that cannot be written as JSON, or no random numbers: never seen.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// The reason in conditions and events.
    pub(crate) fn category(&self) -> &'static str {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status)
                    if status.code == 403 && status.message.contains("quota") =>
                {
                    reasons::QUOTA_EXCEEDED
                }
                kube::Error::Api(status) if status.code == 403 => reasons::FORBIDDEN,
                kube::Error::Api(status) if status.code == 422 => reasons::REFUSED,
                kube::Error::Api(_) => reasons::API_ERROR,
                _ => reasons::API_UNREACHABLE,
            },
            Self::Foreign { .. } => reasons::FOREIGN_OBJECT,
            Self::Memory { .. } => reasons::MEMORY_UNREADABLE,
            Self::Internal(_) => reasons::INTERNAL,
        }
    }

    /// The namespace is going away: no error, nothing more is to be done.
    pub(crate) fn is_terminating(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status)
            if status.code == 403 && status.message.contains("because it is being terminated")))
    }
}

/// The server's own words; a transport error with its causes.
fn api(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("{} ({})", status.message, status.code);
    }
    ramen_redact::chain(error)
}
