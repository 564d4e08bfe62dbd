//! The HTTP/1.1 side of the load generator: one connection, one request at a time, as little work as possible, so that
//! the peers' figures are not those of a client.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The bytes of a POST of a legacy client that reads JSON and events.
pub(crate) fn request(
    host: &str,
    path: &str,
    key: Option<&str>,
    session: Option<&str>,
    body: &[u8],
) -> Vec<u8> {
    let line = |name: &str, value: Option<&str>| {
        value.map_or_else(String::new, |value| format!("{name}{value}\r\n"))
    };
    let key = line("authorization: Bearer ", key);
    let session = line("mcp-session-id: ", session);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\n{key}{session}content-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

impl Connection {
    pub(crate) async fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(16 * 1024),
        })
    }

    /// Sends a request and gives back the answer's body.
    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ));
            }
            if let Some((start, length)) = head(&self.buffer)?
                && self.buffer.len() >= start + length
            {
                return Ok(&self.buffer[start..start + length]);
            }
        }
    }
}

/// Where the body starts and how long it is, once the head is complete.
fn head(buffer: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&buffer[..end]).map_err(|_| bad("the head is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(bad(status));
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| bad("no content-length"))?;
    Ok(Some((end + 4, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_the_place_of_the_body() {
        assert_eq!(
            head(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42").unwrap(),
            Some((38, 2))
        );
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-").unwrap(), None);
        assert!(head(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
