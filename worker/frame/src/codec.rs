//! Cutting a byte stream into frames, and the bounds that keep a bad peer harmless.

use thiserror::Error;

/// Largest count of bytes after the length field: kind and payload together.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

/// Bytes before the payload: the length field and the kind.
pub const HEADER_LEN: usize = 5;

/// Why bytes are not a frame. After one of these the stream has no meaning any more.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The length field says zero: there is always a kind.
    #[error("frame of length 0")]
    Empty,
    /// The length field (or the payload to encode) is over [`MAX_FRAME`].
    #[error("frame of {0} bytes is over the limit of {MAX_FRAME}")]
    TooLong(usize),
    /// The kind is none that this direction knows.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// A `RESULT` carries a status that is not known.
    #[error("unknown result status {0}")]
    UnknownStatus(u8),
    /// The payload ends before its fixed fields do.
    #[error("frame kind {kind}: payload of {len} bytes is too short")]
    Short {
        /// Kind of the frame.
        kind: u8,
        /// Bytes that were there.
        len: usize,
    },
    /// The payload of a control frame is not the JSON that it must be.
    #[error("frame kind {kind}: bad JSON payload")]
    Json {
        /// Kind of the frame.
        kind: u8,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
}

/// The first [`HEADER_LEN`] bytes of a frame, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Kind byte.
    pub kind: u8,
    /// Bytes of payload that follow the header.
    pub payload: usize,
}

impl Header {
    /// Reads a header. The payload length is bounded by [`MAX_FRAME`].
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let [length @ .., kind] = bytes;
        let len = u32::from_le_bytes(length) as usize;
        match len {
            0 => Err(FrameError::Empty),
            n if n > MAX_FRAME => Err(FrameError::TooLong(n)),
            n => Ok(Self {
                kind,
                payload: n - 1,
            }),
        }
    }
}

/// One whole frame, its payload not looked at yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// Kind byte.
    pub kind: u8,
    /// Everything after the kind.
    pub payload: &'a [u8],
}

/// Starts a frame of `kind` at the end of `out`; hand the returned mark to [`finish`] after the
/// payload has been appended. For writers that build a payload in place.
pub fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let mark = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    mark
}

/// Writes the length of the frame that [`begin`] started. A frame over [`MAX_FRAME`] is cut off
/// `out` again and refused.
pub fn finish(out: &mut Vec<u8>, mark: usize) -> Result<(), FrameError> {
    let len = out.len().saturating_sub(mark + 4);
    match u32::try_from(len) {
        Ok(field) if (1..=MAX_FRAME).contains(&len) => {
            if let Some(slot) = out.get_mut(mark..mark + 4) {
                slot.copy_from_slice(&field.to_le_bytes());
            }
            Ok(())
        }
        _ => {
            out.truncate(mark);
            Err(if len == 0 {
                FrameError::Empty
            } else {
                FrameError::TooLong(len)
            })
        }
    }
}

/// Collects bytes as they arrive and gives back whole frames. Does no I/O.
///
/// Memory is bounded by what is pushed: a length field alone reserves nothing.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer to append to, for readers that read in place; append only.
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        self.compact();
        &mut self.buffer
    }

    /// Bytes that are buffered and not yet handed out.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// How many more bytes the frame at the front needs; 0 when a whole one is there.
    pub fn missing(&self) -> Result<usize, FrameError> {
        Ok(match self.header()? {
            None => HEADER_LEN - self.buffered(),
            Some(header) => (HEADER_LEN + header.payload).saturating_sub(self.buffered()),
        })
    }

    /// The next whole frame, `None` when more bytes are needed first.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame<'_>>, FrameError> {
        let Some(header) = self.header()? else {
            return Ok(None);
        };
        let from = self.start + HEADER_LEN;
        let to = from + header.payload;
        if self.buffer.len() < to {
            return Ok(None);
        }
        self.start = to;
        Ok(self.buffer.get(from..to).map(|payload| RawFrame {
            kind: header.kind,
            payload,
        }))
    }

    fn header(&self) -> Result<Option<Header>, FrameError> {
        match self
            .buffer
            .get(self.start..)
            .and_then(|rest| rest.first_chunk())
        {
            None => Ok(None),
            Some(bytes) => Header::parse(*bytes).map(Some),
        }
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
        }
        self.start = 0;
    }
}
