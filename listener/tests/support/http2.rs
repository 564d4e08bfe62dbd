//! HTTP/2 by hand: frames as no library writes them. For the tests of whatever is behind a port.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that no table remembers.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x10];
    for text in [name, value] {
        number(&mut bytes, text.len());
        bytes.extend(text.bytes());
    }
    bytes
}

/// A length in seven bits and more.
pub(crate) fn number(bytes: &mut Vec<u8>, value: usize) {
    if value < 127 {
        bytes.push(u8::try_from(value).unwrap());
        return;
    }
    bytes.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
}

pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = fields.iter().map(|(name, value)| field(name, value));
    fields.collect::<Vec<_>>().concat()
}

/// A connection.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    kept: Vec<u8>,
}

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With an answer; the first byte of its headers says which.
    Answer(u8),
    /// Its stream was reset, with this code.
    Reset(u32),
    /// The connection ended.
    Closed,
}

/// The first byte of an answer's headers: `:status: 200` and `:status: 400` of the static table.
pub(crate) const OK: End = End::Answer(0x88);
pub(crate) const BAD_REQUEST: End = End::Answer(0x8c);

impl Raw {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let mut raw = Self {
            stream,
            kept: Vec::new(),
        };
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(frame(SETTINGS, 0, 0, &[]));
        assert!(raw.send(&hello).await);
        raw
    }

    /// Whether the bytes could be sent.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(found) = self.cut() {
                return Some(found);
            }
            match self.stream.read_buf(&mut self.kept).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn cut(&mut self) -> Option<Frame> {
        let head = self.kept.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let (kind, flags) = (head[3], head[4]);
        let payload = self.kept.get(9..9 + length)?.to_vec();
        self.kept.drain(..9 + length);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }

    /// How the request on this stream ends.
    pub(crate) async fn end_of(&mut self, stream: u32) -> End {
        while let Some(got) = self.next().await {
            match got.kind {
                SETTINGS if got.flags & ACK == 0 => {
                    self.send(&frame(SETTINGS, ACK, 0, &[])).await;
                }
                HEADERS if got.stream == stream => return End::Answer(got.payload[0]),
                RST_STREAM if got.stream == stream => {
                    let code = got.payload[..4].try_into().unwrap();
                    return End::Reset(u32::from_be_bytes(code));
                }
                _ => {}
            }
        }
        End::Closed
    }

    /// Reads to the end; the code that the server gave for it, when it gave one.
    pub(crate) async fn goodbye(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                code = Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}
