//! Which era a request belongs to, and what a connection remembers for the legacy one.

use crate::error::McpError;
use crate::headers::{HeaderCopies, ParamCopies};
use crate::meta::{LogLevel, RequestMeta};
use crate::names::method;
use crate::version::{NEWEST_LEGACY, Version};

/// The two ways to speak MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// With an `initialize` handshake.
    Legacy(Version),
    /// Each request carries its own metadata.
    Modern,
}

impl Era {
    /// Whether it is the modern one.
    pub fn is_modern(self) -> bool {
        matches!(self, Self::Modern)
    }
}

/// What a transport is able to do and what a legacy client said on it before.
///
/// Modern requests read nothing from it but whether it streams.
#[derive(Clone, Debug)]
pub struct Connection {
    streams: bool,
    assumed: Option<Version>,
    handshake: Option<Version>,
    log_level: LogLevel,
    headers: Option<HeaderCopies>,
    params: Option<ParamCopies>,
}

impl Connection {
    /// One message in, one out (`Mcp/Call`). Requests without metadata are legacy ones of the newest
    /// revision with a handshake.
    pub fn unary() -> Self {
        Self::with(false, Some(NEWEST_LEGACY))
    }

    /// Messages both ways (`Mcp/Session`). Judged like [`Connection::unary`], but notifications can
    /// travel, so list changes are advertised and `subscriptions/listen` works.
    pub fn session() -> Self {
        Self::with(true, Some(NEWEST_LEGACY))
    }

    /// A stdio process: a request without metadata needs a handshake before it.
    pub fn stdio() -> Self {
        Self::with(true, None)
    }

    /// Stateless HTTP. A legacy request has the version that its header names, 2025-03-26 without one;
    /// a modern one is held against its headers.
    pub fn http(headers: HeaderCopies) -> Self {
        let assumed = match headers.protocol_version.as_deref() {
            None => Some(Version::V2025_03_26),
            Some(name) => Version::parse(name).filter(|version| !version.is_modern()),
        };
        Self {
            headers: Some(headers),
            ..Self::with(false, assumed)
        }
    }

    /// The same, but notifications can travel to the client: the answer may be a stream of events.
    #[must_use]
    pub fn streaming(self) -> Self {
        Self {
            streams: true,
            ..self
        }
    }

    fn with(streams: bool, assumed: Option<Version>) -> Self {
        Self {
            streams,
            assumed,
            handshake: None,
            log_level: LogLevel::Info,
            headers: None,
            params: None,
        }
    }

    /// Whether notifications can travel to the client.
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// The revision of the handshake, when there was one: such a client gets `list_changed`
    /// notifications without asking.
    pub fn handshake(&self) -> Option<Version> {
        self.handshake
    }

    /// From which level on a legacy client wants log messages.
    pub fn log_level(&self) -> LogLevel {
        self.log_level
    }

    /// Remembers a handshake.
    pub fn shook_hands(&mut self, version: Version) {
        self.handshake = Some(version);
    }

    /// The same, for a modern request that came over HTTP: copies of its arguments are held against
    /// them.
    #[must_use]
    pub fn with_params(self, params: ParamCopies) -> Self {
        Self {
            params: Some(params),
            ..self
        }
    }

    /// The copies of arguments that a modern request must agree with.
    pub(crate) fn params(&self) -> Option<&ParamCopies> {
        self.params.as_ref()
    }

    /// The headers that a modern request must agree with.
    pub(crate) fn headers(&self) -> Option<&HeaderCopies> {
        self.headers.as_ref()
    }

    pub(crate) fn set_log_level(&mut self, level: LogLevel) {
        self.log_level = level;
    }

    /// The era of a request: by its metadata first, whatever the method; then by method and history.
    pub fn era(&self, name: &str, meta: &RequestMeta<'_>) -> Result<Era, McpError> {
        if meta.is_modern() {
            return Ok(Era::Modern);
        }
        if let Some(version) = self.handshake.or(self.assumed) {
            return Ok(Era::Legacy(version));
        }
        // A modern or unknown version in the header and none in the body is a broken modern request.
        if name == method::INITIALIZE && self.headers.is_none() {
            return Ok(Era::Legacy(NEWEST_LEGACY));
        }
        Err(McpError::invalid_params(
            "no protocol version: send `_meta` with io.modelcontextprotocol/protocolVersion, or initialize first",
        ))
    }
}
