//! How a client gets to know the server: `initialize`, `server/discover`, `logging/setLevel`.

use bytes::Bytes;

use super::Server;
use crate::envelope::{Request, text};
use crate::era::{Connection, Era};
use crate::error::McpError;
use crate::meta::LogLevel;
use crate::version::Version;

/// What the server can do. Primitives are always declared, empty or not: clients that see no
/// capability skip the list, and conformance wants an empty list rather than an error.
fn capabilities(streams: bool) -> &'static str {
    if streams {
        r#"{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true},"tools":{"listChanged":true}}"#
    } else {
        r#"{"completions":{},"logging":{},"prompts":{},"resources":{},"tools":{}}"#
    }
}

impl Server {
    pub(super) fn initialize(&self, request: &Request<'_>, connection: &mut Connection) -> Bytes {
        let asked = request.params.protocol_version().and_then(text);
        let version = Version::negotiate(asked.as_deref());
        connection.shook_hands(version);
        let mut answer = self.answer(&request.id, 512);
        answer.json("protocolVersion", version.as_str());
        answer.member("capabilities", |out| {
            out.extend_from_slice(capabilities(connection.streams()).as_bytes());
        });
        answer.json("serverInfo", self.catalog.server_info());
        if let Some(instructions) = self.catalog.instructions() {
            answer.json("instructions", instructions);
        }
        answer.finish(Era::Legacy(version))
    }

    pub(super) fn discover(&self, request: &Request<'_>, connection: &Connection) -> Bytes {
        let versions: Vec<_> = Version::modern().map(Version::as_str).collect();
        let mut answer = self.answer(&request.id, 512);
        answer.json("supportedVersions", &versions);
        answer.member("capabilities", |out| {
            out.extend_from_slice(capabilities(connection.streams()).as_bytes());
        });
        if let Some(instructions) = self.catalog.instructions() {
            answer.json("instructions", instructions);
        }
        answer.raw_members(&self.list_cache);
        answer.finish(Era::Modern)
    }

    pub(super) fn set_level(
        &self,
        request: &Request<'_>,
        era: Era,
        connection: &mut Connection,
    ) -> Result<Bytes, McpError> {
        let level = request.params.level().and_then(text);
        let level = level
            .and_then(|name| LogLevel::parse(&name))
            .ok_or_else(|| McpError::invalid_params("`level` must be a log level"))?;
        connection.set_log_level(level);
        Ok(self.answer(&request.id, 0).finish(era))
    }
}
