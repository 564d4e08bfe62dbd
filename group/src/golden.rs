//! `mcp/tests.yaml`: golden calls that gate a deploy.

use serde_json::{Map, Value};

/// The file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GoldenTests {
    /// The calls, in order.
    pub cases: Vec<GoldenCase>,
}

/// One call and what it must give.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldenCase {
    /// Shown when it fails.
    pub name: String,
    /// The tool to call.
    pub tool: String,
    /// Its arguments; may hold secret references.
    pub args: Map<String, Value>,
    /// What the result of `tools/call` must be.
    pub expect: Expect,
}

/// What a result must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// The joined text of the result's content holds this.
    TextContains(String),
    /// These fields of the result have these values; objects are matched field by field.
    Subset(Value),
    /// The whole result equals this.
    Exact(Value),
}

impl Expect {
    /// Whether the `tools/call` result `{content, structuredContent?, isError?}` is as expected;
    /// otherwise one sentence that says where it differs (bounded, not yet redacted).
    pub fn check(&self, result: &Value) -> Result<(), String> {
        let _ = result;
        todo!()
    }
}
