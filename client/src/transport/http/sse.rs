//! Server-sent events out of bytes.

use std::time::Duration;

use bytes::Bytes;

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its kind; `message` when the stream does not say.
    pub(super) kind: Option<String>,
    /// Its data.
    pub(super) data: Bytes,
}

/// What became too large.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Takes the pieces of a stream as they come.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    kind: Option<String>,
    after_cr: bool,
    begun: bool,
    limit: usize,
    /// The last event id, for resuming.
    pub(super) last_id: Option<String>,
    /// How long the server wants us to wait before we come back.
    pub(super) retry: Option<Duration>,
}

/// The longest wait that a server may ask for.
const MAX_RETRY: Duration = Duration::from_mins(1);
/// Longest event id that is kept.
const MAX_ID: usize = 1024;

impl Parser {
    /// A parser whose lines and events hold at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// The same stream, opened again: what was half read is gone, what is for resuming stays.
    pub(super) fn reopened(&mut self) {
        *self = Self {
            limit: self.limit,
            last_id: self.last_id.take(),
            retry: self.retry,
            ..Self::default()
        };
    }

    /// Takes a piece and gives the events that are whole now.
    pub(super) fn feed(&mut self, mut piece: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        while !piece.is_empty() {
            if std::mem::take(&mut self.after_cr) && piece[0] == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let end = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &piece[..end.unwrap_or(piece.len())];
            if self.line.len() + part.len() > self.limit.saturating_add(64) {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else {
                break;
            };
            self.after_cr = piece[end] == b'\r';
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.take(&line)?);
        }
        Ok(events)
    }

    fn take(&mut self, line: &[u8]) -> Result<Option<Event>, TooLarge> {
        let line = if self.begun {
            line
        } else {
            self.begun = true;
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        };
        if line.is_empty() {
            let kind = self.kind.take();
            let data = std::mem::take(&mut self.data);
            return Ok(std::mem::take(&mut self.has_data).then(|| Event {
                kind,
                data: Bytes::from(data),
            }));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(0) => return Ok(None),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if self.data.len() + value.len() > self.limit {
                    return Err(TooLarge);
                }
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.kind = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" if value.len() <= MAX_ID => {
                // It goes into a header when the stream is resumed.
                let id = std::str::from_utf8(value).ok();
                if let Some(id) = id.filter(|id| http::HeaderValue::from_str(id).is_ok()) {
                    self.last_id = Some(id.to_owned());
                }
            }
            b"retry" => {
                let millis = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
                if let Some(millis) = millis {
                    self.retry = Some(Duration::from_millis(millis).min(MAX_RETRY));
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &[u8], step: usize) -> (Vec<(Option<String>, String)>, Parser) {
        let mut parser = Parser::new(1000);
        let mut events = Vec::new();
        for piece in stream.chunks(step) {
            for event in parser.feed(piece).unwrap() {
                events.push((event.kind, String::from_utf8(event.data.to_vec()).unwrap()));
            }
        }
        (events, parser)
    }

    #[test]
    fn events_are_read_however_the_stream_is_cut_and_lines_end() {
        let stream = "\u{feff}: hello\r\nid: 7\r\nretry: 250\r\ndata:\r\n\r\nevent: message\ndata: {\"a\":\ndata: 1}\n\n\
                      data: ü\r\rid\nevent: x\n\nnonsense\ndata: last";
        for step in [1, 2, 3, 7, 1000] {
            let (events, parser) = all(stream.as_bytes(), step);
            let message = Some("message".to_owned());
            assert_eq!(
                events,
                [
                    (None, String::new()),
                    (message, "{\"a\":\n1}".to_owned()),
                    (None, "ü".to_owned()),
                ],
                "{step}"
            );
            assert_eq!(parser.retry, Some(Duration::from_millis(250)));
            assert_eq!(parser.last_id.as_deref(), Some(""));
        }
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let mut parser = Parser::new(10);
        assert_eq!(parser.feed(&[b'x'; 200]), Err(TooLarge));
        let mut parser = Parser::new(10);
        assert_eq!(
            parser.feed(b"data: 123456\ndata: 1234567\n\n"),
            Err(TooLarge)
        );
        let mut parser = Parser::new(10);
        assert_eq!(parser.feed(b"data: 1234567890\n\n").unwrap().len(), 1);
    }

    #[test]
    fn a_server_cannot_make_us_wait_for_ever() {
        let (_, parser) = all(b"retry: 99999999999\nretry: soon\n", 5);
        assert_eq!(parser.retry, Some(MAX_RETRY));
    }
}
