//! `upstreams`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Another MCP server, offered beside the group's own tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::upstream)]
pub struct UpstreamSpec {
    /// Its name, and what the names of its tools and prompts begin with (`<name>_<tool>`): a small letter, then small
    /// letters, digits and `-`, at most 32. The group's own names with that beginning are hidden.
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// Its Streamable HTTP endpoint, `https://…` or `http://…`. Credentials never stand in it; they come in `headers`.
    /// Addresses that are not public are refused unless the gateway is told to allow them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// Headers that are sent with each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = crate::rules::by_name)]
    pub headers: Vec<UpstreamValue>,
    /// A program instead of a `url`, spoken to over its stdin and stdout. `ramen up` starts it; a gateway only when it is
    /// told to allow commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub command: Option<String>,
    /// The program's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
    /// Variables of the program. It gets these and the harmless rest (`PATH`, `HOME`, …), nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = crate::rules::by_name)]
    pub env: Vec<UpstreamValue>,
    /// How long one request may take: 1 second to 10 minutes, `60s` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub timeout: Option<String>,
    /// Which of its tools are offered, by the names that it gives them; `*` at the end stands for any rest. All when
    /// empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 128)))]
    pub allowed_tools: Vec<String>,
}

impl UpstreamSpec {
    /// The Secrets that values come from, as written.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretKeyRef> {
        let values = self.headers.iter().chain(&self.env);
        values.filter_map(|value| value.secret_ref.as_ref())
    }
}

/// A header or a variable: with a `value`, or with one from a Secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::rules::upstream_value)]
pub struct UpstreamValue {
    /// Its name.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Its value. No secrets: use `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// Where its value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
}

/// One key of a Secret in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// What stands before the value, such as `Bearer ` in an `Authorization` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub prefix: Option<String>,
}
