//! An operation as data: what it is called, who may, what goes in and out, and what it does.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::check::Context;
use super::error::OpError;

/// What an operation does.
pub type Invoke =
    Arc<dyn Fn(Context, Value) -> BoxFuture<'static, Result<Value, OpError>> + Send + Sync>;

/// Makes an [`Invoke`] of an async function.
pub fn invoke<F>(run: impl Fn(Context, Value) -> F + Send + Sync + 'static) -> Invoke
where
    F: Future<Output = Result<Value, OpError>> + Send + 'static,
{
    Arc::new(move |context, input| Box::pin(run(context, input)))
}

/// One operation.
#[derive(Clone)]
pub struct Descriptor {
    /// Its name: `groups.deploy`.
    pub id: String,
    /// What it does, for people and models.
    pub summary: String,
    /// What a caller must be granted.
    pub access: Access,
    /// JSON Schema of the input, an object.
    pub input: Value,
    /// JSON Schema of the result: an object, or exactly `{"type":"null"}` for none.
    pub result: Value,
    /// What callers should know.
    pub flags: Flags,
    /// What it does. Nothing: a wrong configuration.
    pub invoke: Option<Invoke>,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a caller must be granted: `groups:read`, a resource and a verb.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access(String);

impl Access {
    /// Any text; whether it is an access is judged when the descriptor is used.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is done to the resource.
    pub fn verb(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, verb)| verb)
    }

    /// Whether it is a resource and a verb, each in lower-case letters.
    pub fn is_valid(&self) -> bool {
        let word =
            |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
        self.0
            .split_once(':')
            .is_some_and(|(resource, verb)| word(resource) && word(verb))
    }
}

/// What callers should know about an operation before they call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one hint of MCP, or one check"
)]
pub struct Flags {
    /// It changes nothing.
    pub read_only: bool,
    /// It may take something away.
    pub destructive: bool,
    /// Twice is once.
    pub idempotent: bool,
    /// An agent has to name the session in which it acts (`Ramen-Agent-Session`), for the audit log.
    pub agent_session: bool,
}

impl Flags {
    /// Whether the flags fit together.
    pub fn check(self) -> Result<(), &'static str> {
        match self {
            Self {
                read_only: true,
                destructive: true,
                ..
            } => Err("what is read-only cannot be destructive"),
            Self {
                read_only: true,
                idempotent: false,
                ..
            } => Err("what is read-only is idempotent"),
            Self {
                read_only: true,
                agent_session: true,
                ..
            } => Err("what is read-only needs no agent session"),
            _ => Ok(()),
        }
    }

    /// Of what only looks.
    pub const READS: Self = Self {
        read_only: true,
        destructive: false,
        idempotent: true,
        agent_session: false,
    };
}

/// The tool that an operation is served as: `bookmarks.create` is `bookmarks_create`.
pub fn tool_name(id: &str) -> String {
    id.replace('.', "_")
}

/// `^[a-z][a-z0-9_]{0,63}$`.
pub(super) fn is_tool_name(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(rest)
}

/// Whether a schema says that a value is an object.
pub(super) fn is_object_schema(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

/// Whether a schema is exactly `{"type":"null"}`.
pub(super) fn is_null_schema(schema: &Value) -> bool {
    *schema == serde_json::json!({ "type": "null" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_a_resource_and_a_verb() {
        for good in ["groups:read", "a:b"] {
            assert!(Access::new(good).is_valid(), "{good}");
        }
        for bad in [
            "",
            "groups",
            ":read",
            "groups:",
            "Groups:read",
            "groups:read:all",
            "groups: read",
        ] {
            assert!(!Access::new(bad).is_valid(), "{bad}");
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_found() {
        assert_eq!(Flags::READS.check(), Ok(()));
        assert_eq!(Flags::default().check(), Ok(()));
        assert!(
            Flags {
                destructive: true,
                ..Flags::READS
            }
            .check()
            .is_err()
        );
        assert!(
            Flags {
                idempotent: false,
                ..Flags::READS
            }
            .check()
            .is_err()
        );
        assert!(
            Flags {
                agent_session: true,
                ..Flags::READS
            }
            .check()
            .is_err()
        );
    }
}
