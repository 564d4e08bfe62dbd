//! The frames between the worker's front and its Python hosts.
//!
//! Owns the byte layout and the JSON shapes of the control frames, for both directions; knows
//! nothing of sockets, threads or Python. A frame is
//! `u32 LE length of what follows | u8 kind | payload`, at most [`MAX_FRAME`] bytes after the
//! length. Control frames carry JSON, the hot path (`CALL`, `RESULT`) raw bytes.
//!
//! ```
//! use ramen_frame::{Decoder, ToHost};
//!
//! let mut bytes = Vec::new();
//! ToHost::Call { call: 7, package: 2, arguments: br#"{"var1":1}"# }.encode(&mut bytes)?;
//! let mut decoder = Decoder::new();
//! decoder.push(&bytes);
//! let frame = decoder.next_frame()?.expect("one whole frame was pushed");
//! assert!(matches!(ToHost::parse(frame)?, ToHost::Call { call: 7, package: 2, .. }));
//! # Ok::<(), ramen_frame::FrameError>(())
//! ```

mod codec;
mod failure;
mod message;

pub use codec::{Decoder, FrameError, HEADER_LEN, Header, MAX_FRAME, RawFrame, begin, finish};
pub use failure::{error_parts, error_place};
pub use message::{
    FromHost, Importing, Load, LoadPackage, Loaded, LoadedPackage, Log, PackageKind, Progress,
    Stats, Status, ToHost, kind,
};

#[cfg(test)]
mod tests;
