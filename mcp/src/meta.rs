//! `params._meta`: what a request says about itself.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::envelope::{members, text};
use crate::error::McpError;
use crate::id::{ProgressToken, RequestId};
use crate::names::meta_key;

/// What `_meta` of a request says. Empty when there is none.
#[derive(Clone, Debug, Default)]
pub struct RequestMeta<'a> {
    /// The revision it is written in; present on modern requests only.
    pub protocol_version: Option<Cow<'a, str>>,
    /// JSON object of what the client can do.
    pub client_capabilities: Option<&'a str>,
    /// JSON object of who the client is.
    pub client_info: Option<&'a str>,
    /// From which level on the client wants log messages.
    pub log_level: Option<LogLevel>,
    /// The client wants progress, marked with this.
    pub progress: Option<ProgressToken>,
    /// W3C trace context.
    pub trace: Option<Box<TraceContext>>,
}

/// W3C trace context, as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`.
    pub traceparent: Option<String>,
    /// `tracestate`.
    pub tracestate: Option<String>,
    /// `baggage`.
    pub baggage: Option<String>,
}

const NAMES: [&str; 8] = [
    meta_key::PROTOCOL_VERSION,
    meta_key::CLIENT_CAPABILITIES,
    meta_key::CLIENT_INFO,
    meta_key::LOG_LEVEL,
    meta_key::PROGRESS_TOKEN,
    meta_key::TRACEPARENT,
    meta_key::TRACESTATE,
    meta_key::BAGGAGE,
];
const VERSION: usize = 0;
const CAPABILITIES: usize = 1;
const INFO: usize = 2;
const LEVEL: usize = 3;
const TOKEN: usize = 4;
const PARENT: usize = 5;
const STATE: usize = 6;
const BAGGAGE: usize = 7;

impl<'a> RequestMeta<'a> {
    /// Step 1 of the ladder, the part that needs no era: `_meta` is an object, its known members have
    /// their types.
    pub(crate) fn read(body: &'a Bytes, json: Option<&'a str>) -> Result<Self, McpError> {
        let Some(json) = json else {
            return Ok(Self::default());
        };
        if !json.starts_with('{') {
            return Err(McpError::invalid_params("_meta must be an object"));
        }
        let found = members(json, &NAMES).map_err(|_| McpError::parse("_meta is not JSON"))?;
        if let Some(index) = found.repeated() {
            let message = format!("_meta has `{}` twice", NAMES[index]);
            return Err(McpError::invalid_request(message));
        }
        let string = |index: usize| match found.get(index) {
            None => Ok(None),
            Some(token) => text(token)
                .map(Some)
                .ok_or_else(|| wrong(index, "a string")),
        };
        let object = |index: usize| match found.get(index) {
            Some(token) if !token.starts_with('{') => Err(wrong(index, "an object")),
            other => Ok(other),
        };
        let log_level = match string(LEVEL)? {
            None => None,
            Some(name) => Some(LogLevel::parse(&name).ok_or_else(|| wrong(LEVEL, "a log level"))?),
        };
        let progress = match found.get(TOKEN) {
            None => None,
            Some(token) => Some(
                RequestId::from_token(body.slice_ref(token.as_bytes()))
                    .ok_or_else(|| wrong(TOKEN, "a string or an integer"))?,
            ),
        };
        // Trace context is a hint: a malformed one is left out, it fails nothing.
        let hint = |index: usize| found.get(index).and_then(text).map(Cow::into_owned);
        let trace = TraceContext {
            traceparent: hint(PARENT),
            tracestate: hint(STATE),
            baggage: hint(BAGGAGE),
        };
        Ok(Self {
            protocol_version: string(VERSION)?,
            client_capabilities: object(CAPABILITIES)?,
            client_info: object(INFO)?,
            log_level,
            progress,
            trace: trace.traceparent.is_some().then(|| Box::new(trace)),
        })
    }

    /// Whether the request belongs to the modern era.
    pub fn is_modern(&self) -> bool {
        self.protocol_version.is_some()
    }

    /// Whether answering can mean more than one message, so that a unary call would lose some:
    /// progress or, in the modern era, log messages were asked for.
    pub fn wants_notifications(&self) -> bool {
        self.progress.is_some() || self.log_level.is_some()
    }
}

fn wrong(index: usize, kind: &str) -> McpError {
    McpError::invalid_params(format!("_meta `{}` must be {kind}", NAMES[index]))
}

/// Severity of a log message, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// Ordinary.
    Info,
    /// Ordinary, but worth a look.
    Notice,
    /// May become an error.
    Warning,
    /// Something failed.
    Error,
    /// A part is down.
    Critical,
    /// Act now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    /// All, least first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
