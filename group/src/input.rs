//! `input` → `inputSchema`, and the check of a call's arguments on their raw JSON.

mod builder;

use std::fmt;

use serde_json::value::RawValue;

use self::builder::{Builder, is_whole_schema, unwrap_it};
use crate::json::{Kind, Node, Reader};
use crate::schema::{Check, Compiler, Edit, Mode, Place, Problem, Schema};

/// Parameters of one package.
pub(crate) const MAX_PARAMS: usize = 128;

/// The parameters of a tool or prompt: the JSON Schema to list, and a compiled check.
#[derive(Clone)]
pub struct InputSchema {
    json: Box<RawValue>,
    params: Vec<Param>,
    root: Schema,
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

/// One thing wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgFault {
    /// The argument (`rows[3].name` for a nested place); absent for the arguments as a whole.
    pub argument: Option<String>,
    /// What is wrong with it: `is missing`, `must be a number`. Never quotes a value.
    pub message: String,
}

impl fmt::Display for ArgFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "argument `{argument}` {}", self.message),
            None => write!(f, "arguments {}", self.message),
        }
    }
}

/// What is wrong with the arguments of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgFaults {
    /// `arguments` is no JSON object: `-32602` in both eras.
    NotAnObject,
    /// The JSON itself is bad (lone surrogate, number out of range, too deep).
    Malformed(&'static str),
    /// Argument failures: `-32602` (legacy) or `isError` (modern). From one to eight.
    Faults(Vec<ArgFault>),
}

impl fmt::Display for ArgFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("arguments must be an object"),
            Self::Malformed(message) => write!(f, "arguments are not good JSON: {message}"),
            Self::Faults(faults) => {
                for (n, fault) in faults.iter().enumerate() {
                    if n > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{fault}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ArgFaults {}

impl InputSchema {
    /// Compiles `input`; absent means no parameters. Problems go to `problems`.
    pub(crate) fn compile(node: Option<&Node<'_>>, problems: &mut Vec<Problem>) -> Self {
        let mut compiler = Compiler::new(Mode::Input, None);
        let mut built = Builder::default();
        if let Some(node) = node {
            match node.members() {
                Some(_) if is_whole_schema(node) => compiler.error(node.start, unwrap_it(node)),
                Some(members) if members.len() <= MAX_PARAMS => {
                    for member in members {
                        built.param(&mut compiler, member);
                    }
                }
                Some(_) => compiler.error(
                    node.start,
                    format!("`input` has more than {MAX_PARAMS} parameters"),
                ),
                None => compiler.error(
                    node.start,
                    format!(
                        "`input` must be an object of parameters, not {}",
                        node.kind()
                    ),
                ),
            }
        }
        problems.append(&mut compiler.problems);
        built.finish()
    }

    /// The JSON Schema to list as `inputSchema`.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// The parameters in the order of the descriptor.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The parameter with this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// Checks the text of an arguments object. `Ok(None)`: pass it on as it is. `Ok(Some(text))`:
    /// pass this on instead (`5.0` became `5`, defaults are filled in).
    pub fn check(&self, arguments: &str) -> Result<Option<String>, ArgFaults> {
        let mut reader = Reader::new(arguments);
        match reader.peek() {
            Ok(Kind::Object) => {}
            Ok(_) => return Err(ArgFaults::NotAnObject),
            Err(fault) => return Err(ArgFaults::Malformed(fault.message)),
        }
        let mut check = Check::new(&[], arguments.len());
        let syntax = check
            .value(&self.root, &mut reader, &Place::Root)
            .and_then(|()| reader.finish());
        if let Err(fault) = syntax {
            return Err(ArgFaults::Malformed(fault.message));
        }
        if !check.faults.is_empty() {
            let faults = check.faults.into_iter().map(|fault| ArgFault {
                argument: Some(fault.place).filter(|place| !place.is_empty()),
                message: fault.message,
            });
            return Err(ArgFaults::Faults(faults.collect()));
        }
        if check.edits.is_empty() {
            return Ok(None);
        }
        Ok(Some(apply(arguments, check.edits)))
    }
}

/// Applies edits, which never overlap but may be there twice (two branches, one value).
fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort();
    edits.dedup();
    let mut out = String::with_capacity(text.len() + 64);
    let mut from = 0;
    for edit in edits {
        out.push_str(&text[from..edit.from]);
        out.push_str(&edit.with);
        from = edit.to;
    }
    out.push_str(&text[from..]);
    out
}

impl fmt::Debug for InputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json.get())
    }
}

impl Default for InputSchema {
    fn default() -> Self {
        Builder::default().finish()
    }
}

#[cfg(test)]
mod tests;
