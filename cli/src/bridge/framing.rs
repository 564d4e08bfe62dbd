//! Messages in a byte stream: one a line, or behind a `Content-Length:` header; each is answered in its own kind.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The largest message, in bytes without its line end or header.
pub(super) const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// Enough for any header block; more is no header.
const MAX_HEADER: usize = 8 * 1024;
const LENGTH: &str = "content-length:";

/// How a message is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Framing {
    /// One message a line.
    #[default]
    Line,
    /// `Content-Length: n`, a blank line, `n` bytes.
    Header,
}

impl Framing {
    /// The bytes that carry `body`, which holds no line break.
    pub(super) fn wrap(self, body: &[u8]) -> Vec<u8> {
        match self {
            Self::Line => {
                let mut out = Vec::with_capacity(body.len() + 1);
                out.extend_from_slice(body);
                out.push(b'\n');
                out
            }
            Self::Header => {
                let mut out = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
                out.extend_from_slice(body);
                out
            }
        }
    }
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// A message of at most [`MAX_MESSAGE`] bytes.
    Message(Vec<u8>),
    /// A message that was longer; its bytes were dropped.
    TooLong,
    /// A `Content-Length` header that cannot be read; the stream goes on at the next line.
    BadHeader,
}

/// Reads the next message and its framing; `None` at the end of the stream. Blank lines are skipped.
pub(super) async fn next<R: AsyncBufRead + Unpin>(
    input: &mut R,
) -> io::Result<Option<(Framing, Inbound)>> {
    loop {
        let Some(line) = read_line(input, MAX_MESSAGE).await? else {
            return Ok(None);
        };
        let Some(mut line) = line else {
            return Ok(Some((Framing::Line, Inbound::TooLong)));
        };
        trim_end(&mut line);
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Some(length) = header_value(&line) else {
            return Ok(Some((Framing::Line, Inbound::Message(line))));
        };
        return headed(input, length)
            .await
            .map(|inbound| inbound.map(|i| (Framing::Header, i)));
    }
}

/// Reads the rest of a header block and its body.
async fn headed<R: AsyncBufRead + Unpin>(
    input: &mut R,
    length: Result<u64, ()>,
) -> io::Result<Option<Inbound>> {
    let Ok(length) = length else {
        return Ok(Some(Inbound::BadHeader));
    };
    loop {
        match read_line(input, MAX_HEADER).await? {
            None => return Ok(None),
            Some(None) => return Ok(Some(Inbound::BadHeader)),
            Some(Some(mut line)) => {
                trim_end(&mut line);
                if line.is_empty() {
                    break;
                }
            }
        }
    }
    if length > MAX_MESSAGE as u64 {
        tokio::io::copy(&mut input.take(length), &mut tokio::io::sink()).await?;
        return Ok(Some(Inbound::TooLong));
    }
    let mut body = vec![0; usize::try_from(length).expect("at most MAX_MESSAGE")];
    match input.read_exact(&mut body).await {
        Ok(_) => Ok(Some(Inbound::Message(body))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The length of a `Content-Length` line; `Err` when it is one but its number cannot be read.
fn header_value(line: &[u8]) -> Option<Result<u64, ()>> {
    let name = line.get(..LENGTH.len())?;
    if !name.eq_ignore_ascii_case(LENGTH.as_bytes()) {
        return None;
    }
    let value = std::str::from_utf8(&line[LENGTH.len()..]).map(str::trim);
    Some(value.map_err(drop).and_then(|v| v.parse().map_err(drop)))
}

/// Reads to the next line feed. `None`: end of stream; `Some(None)`: the line was longer than `cap` and was dropped.
async fn read_line<R: AsyncBufRead + Unpin>(
    input: &mut R,
    cap: usize,
) -> io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    let mut dropping = false;
    let mut seen = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (seen, dropping) {
                (false, _) => None,
                (true, true) => Some(None),
                (true, false) => Some(Some(line)),
            });
        }
        seen = true;
        let end = chunk.iter().position(|&b| b == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        if !dropping {
            line.extend_from_slice(part);
            // One byte more may be the carriage return of the line end.
            dropping = line.len() > cap + 1 || (line.len() > cap && line.last() != Some(&b'\r'));
            if dropping {
                line = Vec::new();
            }
        }
        let used = end.map_or(chunk.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(Some((!dropping).then_some(line)));
        }
    }
}

fn trim_end(line: &mut Vec<u8>) {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Vec<(Framing, Inbound)> {
        // A capacity of one byte splits the stream everywhere.
        let mut input = tokio::io::BufReader::with_capacity(1, bytes);
        let mut out = Vec::new();
        while let Some(item) = next(&mut input).await.unwrap() {
            out.push(item);
        }
        out
    }

    fn message(text: &str) -> Inbound {
        Inbound::Message(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_of_any_ending_are_read_and_blank_ones_skipped() {
        let got = all(b"\n\r\n   \t\n{\"a\":1}\r\n{\"b\":2}\n{\"c\":3}").await;
        let want = ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"].map(|t| (Framing::Line, message(t)));
        assert_eq!(got, want);
    }

    #[tokio::test]
    async fn headers_and_lines_may_follow_each_other() {
        let got =
            all(b"Content-Length: 8\r\nContent-Type: x\r\n\r\n{\"a\":\n1}\n{\"b\":2}\n").await;
        assert_eq!(
            got,
            [
                (Framing::Header, message("{\"a\":\n1}")),
                (Framing::Line, message("{\"b\":2}"))
            ]
        );
    }

    #[tokio::test]
    async fn a_bad_length_is_reported_and_the_stream_goes_on() {
        let got = all(b"content-length: many\n{\"b\":2}\n").await;
        assert_eq!(
            got,
            [
                (Framing::Header, Inbound::BadHeader),
                (Framing::Line, message("{\"b\":2}"))
            ]
        );
    }

    #[tokio::test]
    async fn a_message_at_the_cap_passes_and_one_byte_more_is_dropped() {
        let at = "x".repeat(MAX_MESSAGE);
        let stream = format!(
            "{at}\r\n{at}y\n{at}yz\n{{}}\nContent-Length: {}\n\n{at}y{{}}\n",
            MAX_MESSAGE + 1
        );
        let mut input = tokio::io::BufReader::new(stream.as_bytes());
        let mut sizes = Vec::new();
        while let Some((_, item)) = next(&mut input).await.unwrap() {
            sizes.push(match item {
                Inbound::Message(m) => m.len(),
                _ => 0,
            });
        }
        assert_eq!(sizes, [MAX_MESSAGE, 0, 0, 2, 0, 2]);
    }

    #[test]
    fn answers_are_framed_in_kind() {
        assert_eq!(Framing::Line.wrap(b"{}"), b"{}\n");
        assert_eq!(Framing::Header.wrap(b"{}"), b"Content-Length: 2\r\n\r\n{}");
    }
}
