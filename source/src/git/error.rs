//! Why git could not do it: one variant for each cause. No text holds a user name or a secret.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use ramen_group::{Finding, Reason};

use crate::tree::TreeError;

/// Why a repository could not be resolved, fetched or walked. Many may have asked the same question.
#[derive(Debug, Clone, thiserror::Error)]
pub enum GitError {
    /// The address cannot be used.
    #[error("the repository address cannot be used: {message}")]
    Url {
        /// What is wrong with it.
        message: String,
    },
    /// The address, or what its host name leads to, is not allowed here.
    #[error("{url}: {message}")]
    Forbidden {
        /// The address.
        url: String,
        /// Which rule.
        message: String,
    },
    /// The ref fields make no sense.
    #[error("the wanted ref cannot be used: {message}")]
    Wanted {
        /// What is wrong.
        message: String,
    },
    /// The files with credentials cannot be used.
    #[error("credentials: {message}")]
    Credentials {
        /// Which file, and what is wrong with it.
        message: String,
    },
    /// The server refused us.
    #[error("{url}: the server refused access: {message}")]
    AuthFailed {
        /// The address.
        url: String,
        /// What the server said, and what to check.
        message: String,
    },
    /// Another ssh host key than the known one.
    #[error(
        "{host}: the host key {fingerprint} ({kind}) is not one that known_hosts holds for this host; \
         compare it with the server's published fingerprint before you change known_hosts"
    )]
    HostKeyMismatch {
        /// The host as `known_hosts` names it.
        host: String,
        /// `SHA256:…` as ssh prints it.
        fingerprint: String,
        /// The key's type.
        kind: String,
    },
    /// A host that is not in `known_hosts`.
    #[error(
        "{host}: known_hosts has no key for this host; the server showed {fingerprint} ({kind})"
    )]
    HostKeyUnknown {
        /// The host as `known_hosts` names it.
        host: String,
        /// `SHA256:…` as ssh prints it.
        fingerprint: String,
        /// The key's type.
        kind: String,
    },
    /// A key that `known_hosts` marks as revoked.
    #[error("{host}: the host key {fingerprint} ({kind}) is marked @revoked in known_hosts")]
    HostKeyRevoked {
        /// The host as `known_hosts` names it.
        host: String,
        /// `SHA256:…` as ssh prints it.
        fingerprint: String,
        /// The key's type.
        kind: String,
    },
    /// TLS failed.
    #[error("{url}: TLS: {message}")]
    Tls {
        /// The address.
        url: String,
        /// What is wrong with the certificate or the connection.
        message: String,
    },
    /// No connection, or one that broke off.
    #[error("{url}: {message}")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        message: String,
    },
    /// The server says there is no such repository.
    #[error("{url}: the server has no such repository (or shows it to nobody without access)")]
    NotFound {
        /// The address.
        url: String,
    },
    /// An address that is a path where nothing is.
    #[error("there is no folder {}", path.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
    },
    /// An address that is a folder of something else.
    #[error("the folder {} is no git repository", path.display())]
    NoRepository {
        /// The path.
        path: PathBuf,
    },
    /// What answers is no git server.
    #[error("{url}: {message}")]
    NotGit {
        /// The address.
        url: String,
        /// What came instead.
        message: String,
    },
    /// A redirect that is not followed.
    #[error("{url}: the server redirects to {to}, which is not followed: {message}")]
    Redirect {
        /// The address.
        url: String,
        /// Scheme, host and port of the target.
        to: String,
        /// Which rule.
        message: String,
    },
    /// No such branch, tag, version or commit.
    #[error("{what}")]
    RefNotFound {
        /// What was looked for, in words.
        what: String,
    },
    /// Over the deadline, or silent for too long.
    #[error("{url}: {what} within {} s", after.as_secs_f32())]
    Timeout {
        /// The address.
        url: String,
        /// `not done`, `no answer`.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
    /// Over a limit.
    #[error("{url}: the server sends more than {limit} {unit}")]
    TooLarge {
        /// The address.
        url: String,
        /// The limit.
        limit: u64,
        /// Its unit.
        unit: &'static str,
    },
    /// Nobody waits for the result.
    #[error("the fetch was stopped")]
    Stopped,
    /// `mcp/` cannot load.
    #[error(transparent)]
    Tree(TreeError),
    /// The scratch folder cannot be used.
    #[error("cannot use {path} for a fetch")]
    Disk {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Anything else that libgit2 reports.
    #[error("{url}: git: {message}")]
    Library {
        /// The address.
        url: String,
        /// The library's words.
        message: String,
    },
}

impl GitError {
    /// How reports and statuses name this.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Url { .. }
            | Self::Forbidden { .. }
            | Self::Wanted { .. }
            | Self::NoFolder { .. }
            | Self::NoRepository { .. } => Reason::SourceInvalid,
            Self::Credentials { .. } | Self::AuthFailed { .. } => Reason::AuthenticationFailed,
            Self::HostKeyMismatch { .. }
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyRevoked { .. } => Reason::HostKeyMismatch,
            Self::Tls { .. } => Reason::CertificateRefused,
            Self::Unreachable { .. }
            | Self::NotFound { .. }
            | Self::NotGit { .. }
            | Self::Redirect { .. }
            | Self::Library { .. }
            | Self::Stopped => Reason::SourceUnreachable,
            Self::RefNotFound { .. } => Reason::RefNotFound,
            Self::Timeout { .. } => Reason::FetchTimeout,
            Self::TooLarge { .. } => Reason::FetchTooLarge,
            Self::Tree(error) => error.reason(),
            Self::Disk { source, .. } if crate::layer::disk_is_full(source) => Reason::DiskFull,
            Self::Disk { .. } => Reason::Internal,
        }
    }

    /// The same as an entry of the errors list.
    pub fn finding(&self) -> Finding {
        match self {
            Self::Tree(error) => error.finding(),
            Self::Disk { source, .. } => Finding::group(self.reason(), format!("{self}: {source}")),
            other => Finding::group(other.reason(), other.to_string()),
        }
    }

    /// Whether trying again without a change may help. The others wait for a change of the spec,
    /// of the credentials or of the repository.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::Disk { .. }
                | Self::Library { .. }
                | Self::Stopped
        )
    }
}
