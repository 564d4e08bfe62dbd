//! What came out of a call, before it becomes a response.

/// The outcome of user code, as the host reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The callable returned a string.
    Text(&'a str),
    /// The callable returned something else: the JSON text of it.
    Json(&'a [u8]),
    /// The callable built content: a JSON array of blocks.
    Content(&'a [u8]),
    /// The callable returned bytes.
    Blob(&'a [u8]),
    /// The callable failed: `Type: message`, redacted.
    Error(&'a str),
}
