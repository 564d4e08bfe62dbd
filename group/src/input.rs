//! `input` → `inputSchema`, and the check of a call's arguments on their raw JSON.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

/// The parameters of a tool or prompt: the JSON Schema to list, and a compiled check.
#[derive(Clone)]
pub struct InputSchema {
    json: Box<RawValue>,
    params: Vec<Param>,
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Whether a call must give it: true unless it has a default.
    pub required: bool,
    /// The default as JSON text.
    pub default: Option<String>,
    /// The values of a string enum, for completion.
    pub values: Vec<String>,
    /// `x-mcp-header`: the header that carries the parameter over HTTP.
    pub header: Option<String>,
    /// The schema as listed (one member of `properties`).
    pub schema: Box<RawValue>,
}

/// Arguments that passed.
#[derive(Debug)]
pub struct Checked<'a> {
    /// The JSON object to hand on: the caller's bytes, or rewritten ones where `5.0` became `5` or
    /// a default was filled in.
    pub json: Cow<'a, [u8]>,
    /// False when no string can hold a secret reference.
    pub may_hold_reference: bool,
}

/// One thing wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgFault {
    /// The argument, when one is to blame (`rows[3].name` for a nested place).
    pub argument: Option<String>,
    /// What is wrong, in words that name the argument. Never quotes a value.
    pub message: String,
}

/// What is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgFaults {
    /// `arguments` is no JSON object: `-32602` in both eras.
    NotAnObject,
    /// The JSON itself is bad (lone surrogate, number out of range, too deep).
    Malformed(String),
    /// Argument failures: `-32602` (legacy) or `isError` (modern). At most eight.
    Faults(Vec<ArgFault>),
}

impl fmt::Display for ArgFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f;
        todo!()
    }
}

impl InputSchema {
    /// The JSON Schema to list as `inputSchema`.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// The parameters in the order of the descriptor.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Checks the arguments of a call. Absent and `null` count as `{}`.
    pub fn check<'a>(&self, arguments: Option<&'a [u8]>) -> Result<Checked<'a>, ArgFaults> {
        let _ = arguments;
        todo!()
    }
}

impl fmt::Debug for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json.get())
    }
}
