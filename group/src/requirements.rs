//! `mcp/requirements.txt`: checked line by line, never resolved here.

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// The text with a BOM removed.
    pub text: String,
    /// Whether any line asks for something (not only comments and blanks).
    pub wants_anything: bool,
    /// Files that `-r` and `-c` name, from `mcp/`, including nested ones.
    pub includes: Vec<String>,
}
