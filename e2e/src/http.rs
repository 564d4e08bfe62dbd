//! HTTP as a program of the cluster speaks it: one request, one connection, no TLS.

use std::fmt::Write as _;

use anyhow::{Context as _, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, as far as it is text.
    pub body: String,
}

/// The body of a page that answers 200.
pub(crate) async fn get(url: &str) -> anyhow::Result<String> {
    let answer = request("GET", url, &[], b"").await?;
    ensure!(
        answer.status == 200,
        "{url}: {} {}",
        answer.status,
        answer.body
    );
    Ok(answer.body)
}

/// Sends a request and reads the answer until the server closes.
///
/// # Errors
/// When nobody answers with HTTP.
pub async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<Answer> {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .with_context(|| format!("{url:?} is no address with a path"))?;
    let mut stream = TcpStream::connect(host)
        .await
        .with_context(|| format!("connecting to {host}"))?;
    let mut head = format!(
        "{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        // Writing to a String cannot fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> anyhow::Result<Answer> {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        bail!("no HTTP answer: {text:?}");
    };
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Ok(Answer {
        status: status.with_context(|| format!("no HTTP status: {head:?}"))?,
        body: if chunked {
            unchunk(body)
        } else {
            body.to_owned()
        },
    })
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        let Some(chunk) = rest.get(..size).filter(|_| size > 0) else {
            break;
        };
        whole.push_str(chunk);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_a_length_and_in_chunks_are_read() {
        let plain = parse(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno").unwrap();
        assert_eq!((plain.status, plain.body.as_str()), (404, "no"));
        let chunks =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        assert_eq!(parse(chunks).unwrap().body, "abcd");
        assert!(parse(b"SSH-2.0").is_err());
    }
}
