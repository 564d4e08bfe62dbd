//! The headers of a POST that repeat fields of its body.
//!
//! Those that every request has are judged here; `Mcp-Param-*` goes to the worker, which knows the
//! schema that asks for them. Those of an upstream's tool are held against the schema that it listed.

use http::{HeaderMap, HeaderValue};
use ramen_mcp::{HeaderCopies, McpError, ParamCopies};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::names::{METHOD_HEADER, NAME_HEADER, PARAM_PREFIX, PROTOCOL_VERSION_HEADER};

/// Copies of arguments in one request.
const MAX_PARAMS: usize = 32;

/// Reads the copies. One that is there twice, or that is no plain text, is a mismatch.
pub(crate) fn read(headers: &HeaderMap) -> Result<HeaderCopies, McpError> {
    Ok(HeaderCopies {
        protocol_version: one(headers, PROTOCOL_VERSION_HEADER)?,
        method: one(headers, METHOD_HEADER)?,
        name: one(headers, NAME_HEADER)?,
    })
}

fn one(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, McpError> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(McpError::header_mismatch(format!("{name} is there twice")));
    }
    let text =
        plain(line).ok_or_else(|| McpError::header_mismatch(format!("{name} is no plain text")))?;
    Ok(Some(text.to_owned()))
}

fn plain(line: &HeaderValue) -> Option<&str> {
    line.to_str()
        .ok()
        .map(|text| text.trim_matches([' ', '\t']))
}

/// Those of arguments.
pub(crate) fn params(headers: &HeaderMap) -> ParamCopies {
    let copies = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(PARAM_PREFIX)?;
        Some((name.to_owned(), plain(value)?.to_owned()))
    });
    ParamCopies(copies.collect())
}

/// What the worker has to see of a modern request to judge its `Mcp-Param-*`.
pub(crate) fn carried(
    headers: &HeaderMap,
    version: &str,
) -> Result<Vec<(AsciiMetadataKey, AsciiMetadataValue)>, McpError> {
    let broken = |name: &str| McpError::header_mismatch(format!("{name} is no plain text"));
    let version = version
        .parse()
        .map_err(|_| broken(PROTOCOL_VERSION_HEADER))?;
    let mut carried = vec![(
        AsciiMetadataKey::from_static(PROTOCOL_VERSION_HEADER),
        version,
    )];
    for name in headers
        .keys()
        .filter(|name| name.as_str().starts_with(PARAM_PREFIX))
    {
        // Metadata has bytes under names in `-bin`. No tool of a worker has such a copy, and others are left alone.
        let Ok(key) = AsciiMetadataKey::from_bytes(name.as_str().as_bytes()) else {
            continue;
        };
        let mut lines = headers.get_all(name).iter();
        let text = lines.next().and_then(plain);
        if lines.next().is_some() {
            return Err(McpError::header_mismatch(format!("{name} is there twice")));
        }
        match text.and_then(|text| text.parse().ok()) {
            Some(value) if carried.len() <= MAX_PARAMS => carried.push((key, value)),
            Some(_) => return Err(McpError::header_mismatch("too many Mcp-Param headers")),
            None => return Err(broken(name.as_str())),
        }
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_copy_that_is_there_twice_or_no_plain_text_is_a_mismatch() {
        let twice = headers(&[("mcp-method", b"tools/list"), ("mcp-method", b"tools/list")]);
        assert_eq!(read(&twice).unwrap_err().code, -32020);
        assert_eq!(
            read(&headers(&[("mcp-name", "gr\u{f6}\u{df}e".as_bytes())]))
                .unwrap_err()
                .code,
            -32020
        );
        let twice = headers(&[("mcp-param-a", b"1"), ("mcp-param-a", b"1")]);
        assert_eq!(carried(&twice, "2026-07-28").unwrap_err().code, -32020);
    }

    #[test]
    fn white_space_around_a_copy_does_not_count() {
        let copies = read(&headers(&[("mcp-method", b" tools/list\t")])).unwrap();
        assert_eq!(copies.method.as_deref(), Some("tools/list"));
    }

    #[test]
    fn copies_of_arguments_go_to_the_worker() {
        let sent = headers(&[
            ("mcp-param-region", b"eu"),
            ("mcp-param-trace-bin", b"AAA="),
            ("x-other", b"1"),
        ]);
        let carried = carried(&sent, "2026-07-28").unwrap();
        let carried: Vec<_> = carried
            .iter()
            .map(|(k, v)| (k.as_str(), v.to_str().unwrap()))
            .collect();
        assert_eq!(
            carried,
            [
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-param-region", "eu")
            ]
        );
    }
}
