//! The order in which a modern request is judged, and which methods exist in which era.

use crate::envelope::Request;
use crate::era::{Connection, Era};
use crate::error::McpError;
use crate::names::{meta_key, method};
use crate::version::Version;

/// Judges everything that comes before the parameters of the method:
///
/// 1. shape of `_meta` (`-32602`; types were judged by the reader),
/// 2. header copies against the body (`-32020`),
/// 3. protocol version (`-32022`),
/// 4. client capabilities that the method needs (`-32021`; none of ours needs any),
/// 5. whether the method exists (`-32601`).
///
/// [`Server::step`](crate::Server::step) begins with it; a proxy that hands requests on calls it alone.
pub fn climb(request: &Request<'_>, connection: &Connection) -> Result<Era, McpError> {
    let meta = request.params.meta();
    let era = connection.era(&request.method, meta)?;
    if let (Era::Modern, Some(version)) = (era, &meta.protocol_version) {
        if meta.client_capabilities.is_none() {
            let message = format!("_meta lacks `{}`", meta_key::CLIENT_CAPABILITIES);
            return Err(McpError::invalid_params(message));
        }
        if let Some(headers) = connection.headers() {
            headers.check(request)?;
        }
        if !Version::parse(version).is_some_and(Version::is_modern) {
            return Err(McpError::unsupported_version(version));
        }
    }
    if !exists(&request.method, era, connection) {
        return Err(McpError::method_not_found(&request.method));
    }
    Ok(era)
}

fn exists(name: &str, era: Era, connection: &Connection) -> bool {
    match name {
        method::TOOLS_LIST
        | method::TOOLS_CALL
        | method::RESOURCES_LIST
        | method::TEMPLATES_LIST
        | method::RESOURCES_READ
        | method::PROMPTS_LIST
        | method::PROMPTS_GET
        | method::COMPLETE => true,
        method::INITIALIZE | method::PING | method::SET_LEVEL => !era.is_modern(),
        method::DISCOVER => era.is_modern(),
        method::LISTEN => era.is_modern() && connection.streams(),
        _ => false,
    }
}
