//! Lines of a bounded length; of one that is longer, at least the id.

use std::io;

use bytes::Bytes;
use ramen_mcp::RequestId;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Begins like a message.
    Message(Bytes),
    /// Only white space.
    Blank,
    /// Something else.
    Noise,
    /// Longer than it may be; the id that it answers, when it has one.
    TooLong(Option<RequestId>),
}

/// The lines of a stream.
pub(crate) struct Lines<R> {
    input: R,
    limit: usize,
    unended: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self {
            input,
            limit,
            unended: false,
        }
    }

    /// The same for a stream whose last line counts without a line feed, too: what a client says before it closes.
    pub(crate) fn with_unended(self) -> Self {
        Self {
            unended: true,
            ..self
        }
    }

    /// The next line; `None` at the end of the stream. A last line without a line feed is what a server wrote that died
    /// in the middle of it, so it is none.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut search: Option<IdSearch> = None;
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                let last = self.unended && (search.is_some() || !line.is_empty());
                return Ok(last.then(|| whole(search, line)));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            match &mut search {
                Some(search) => search.feed(part),
                None if line.len() + part.len() > self.limit => {
                    let mut begun = IdSearch::default();
                    begun.feed(&line);
                    begun.feed(part);
                    line = Vec::new();
                    search = Some(begun);
                }
                None => line.extend_from_slice(part),
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(whole(search, line)));
            }
        }
    }
}

fn whole(search: Option<IdSearch>, line: Vec<u8>) -> Line {
    match search {
        Some(search) => Line::TooLong(search.id()),
        None => kind(line),
    }
}

fn kind(mut line: Vec<u8>) -> Line {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    match line.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Line::Blank,
        Some(b'{' | b'[') => Line::Message(Bytes::from(line)),
        Some(_) => Line::Noise,
    }
}

/// Looks for the `id` of the outermost object in bytes that are not kept.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a small machine that reads byte by byte"
)]
struct IdSearch {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last string at depth 1, as far as it is short, and whether it is a name (a colon followed).
    text: Vec<u8>,
    after_id: bool,
    id: Vec<u8>,
    found: bool,
}

/// Longest id that is looked for.
const MAX_ID: usize = 512;

impl IdSearch {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        if self.after_id && !self.in_string && (byte == b',' || byte == b'}') {
            self.after_id = false;
            self.found = true;
        }
        if self.after_id && self.depth == 1 && self.id.len() < MAX_ID {
            self.id.push(byte);
        }
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return;
                }
                _ => {}
            }
            if self.depth == 1 && self.text.len() < 8 {
                self.text.push(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.text.clear();
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 && self.text == b"id" && !self.found => {
                self.after_id = true;
                self.id.clear();
            }
            _ => {}
        }
    }

    fn id(self) -> Option<RequestId> {
        if !self.found {
            return None;
        }
        RequestId::from_token(Bytes::copy_from_slice(self.id.trim_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], limit: usize) -> Lines<tokio::io::BufReader<&[u8]>> {
        // A capacity of one byte splits the stream everywhere.
        Lines::new(tokio::io::BufReader::with_capacity(1, bytes), limit)
    }

    async fn all(bytes: &[u8], limit: usize) -> Vec<Line> {
        read(lines(bytes, limit)).await
    }

    async fn read(mut lines: Lines<tokio::io::BufReader<&[u8]>>) -> Vec<Line> {
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(line);
        }
        out
    }

    fn message(text: &'static str) -> Line {
        Line::Message(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_of_any_ending_are_read_and_what_is_no_message_is_told_apart() {
        let got = all(
            b"\n \r\n{\"a\":1}\r\nlistening on 1\n\xff\xfe\n{\"b\":2}\n{\"cut",
            64,
        )
        .await;
        assert_eq!(
            got,
            [
                Line::Blank,
                Line::Blank,
                message("{\"a\":1}"),
                Line::Noise,
                Line::Noise,
                message("{\"b\":2}"),
            ]
        );
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_gives_up_its_id_wherever_it_stands() {
        let id = |id| Line::TooLong(Some(RequestId::number(id)));
        let long = "x".repeat(40);
        for (line, want) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id": 12 ,"result":"{long}"}}"#),
                id(12),
            ),
            (
                format!(r#"{{"result":{{"id":1,"a":["id:",2,"{long}"]}},"id":34}}"#),
                id(34),
            ),
            (format!(r#"{{"a":"\"id\":1,{long}","id":56}}"#), id(56)),
            (
                format!(r#"{{"result":{{"id":1,"b":"{long}"}}}}"#),
                Line::TooLong(None),
            ),
            (
                format!(r#"{{"id":null,"b":"{long}"}}"#),
                Line::TooLong(None),
            ),
            (long.clone(), Line::TooLong(None)),
        ] {
            let stream = format!("{line}\n{{\"next\":1}}\n");
            let got = all(stream.as_bytes(), 20).await;
            assert_eq!(got, [want, message("{\"next\":1}")], "{line}");
        }
    }

    #[tokio::test]
    async fn a_last_line_without_a_line_feed_counts_where_it_is_wanted() {
        for (stream, want) in [
            (
                "{\"a\":1}\n{\"b\":2}",
                vec![message("{\"a\":1}"), message("{\"b\":2}")],
            ),
            ("{\"a\":1}\n", vec![message("{\"a\":1}")]),
            (" ", vec![Line::Blank]),
            ("", Vec::new()),
            (
                "{\"id\":7,\"a\":\"0123456789\"}",
                vec![Line::TooLong(Some(RequestId::number(7)))],
            ),
        ] {
            let got = read(lines(stream.as_bytes(), 20).with_unended()).await;
            assert_eq!(got, want, "{stream}");
        }
    }

    #[tokio::test]
    async fn a_line_at_the_limit_passes() {
        assert_eq!(
            all(b"{\"a\":\"bcdefghijk\"}\n", 19).await,
            [message("{\"a\":\"bcdefghijk\"}")]
        );
    }
}
