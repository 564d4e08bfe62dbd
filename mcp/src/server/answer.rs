//! Writes a successful response, member by member, into one buffer.

use bytes::Bytes;
use serde::Serialize;

use crate::era::Era;
use crate::id::RequestId;
use crate::model::Implementation;
use crate::names::meta_key;

/// A response in the making.
pub(super) struct Answer<'s> {
    out: Vec<u8>,
    modern_tail: &'s str,
    empty: bool,
}

impl<'s> Answer<'s> {
    pub(super) fn new(id: &RequestId, modern_tail: &'s str, room: usize) -> Self {
        let mut out = Vec::with_capacity(64 + id.raw().len() + room);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.raw().as_bytes());
        out.extend_from_slice(br#","result":{"#);
        Self {
            out,
            modern_tail,
            empty: true,
        }
    }

    /// A member whose JSON `write` appends.
    pub(super) fn member(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.comma();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        write(&mut self.out);
    }

    /// A member of any type that serde can write.
    pub(super) fn json<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.member(name, |out| put_json(out, value));
    }

    /// Members that are JSON text already, commas between them.
    pub(super) fn raw_members(&mut self, members: &str) {
        self.comma();
        self.out.extend_from_slice(members.as_bytes());
    }

    /// The bytes; a modern result says its type and who the server is.
    pub(super) fn finish(mut self, era: Era) -> Bytes {
        if era.is_modern() {
            let tail = self.modern_tail;
            self.raw_members(tail);
        }
        self.out.extend_from_slice(b"}}");
        Bytes::from(self.out)
    }

    fn comma(&mut self) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
    }
}

/// Appends JSON.
pub(super) fn put_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("our types have string keys and a Vec takes any bytes");
}

/// JSON of who the server is.
pub(super) fn info_json(info: &Implementation) -> String {
    serde_json::to_string(info).expect("strings can be written as JSON")
}

/// The members that end every modern result.
pub(super) fn modern_tail(info: &str) -> String {
    format!(
        r#""resultType":"complete","_meta":{{"{}":{info}}}"#,
        meta_key::SERVER_INFO
    )
}
