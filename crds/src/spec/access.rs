//! `access`.

use ramen_group::access::{ClaimText, RuleText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may use what, at the gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessSpec {
    /// The rules. Who is signed in may use what any rule about them allows; everything else is not
    /// there for them. Keys are held to the rules as soon as one names keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub rules: Vec<AccessRule>,
}

/// Whom it is about, and what those may use. `subjects`, `groups` and `claims` are all asked for where
/// they are given; the entries of one of them are a choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = crate::rules::access)]
pub struct AccessRule {
    /// Only tokens of this issuer; without it those of each that the gateway trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub issuer: Option<String>,
    /// Subjects of tokens; `*` is everybody who is signed in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    pub subjects: Vec<String>,
    /// Groups that the token names, one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    pub groups: Vec<String>,
    /// Claims that the token makes, all of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = crate::rules::by_name)]
    pub claims: Vec<ClaimSpec>,
    /// Names of keys: the entries of the keys Secret; `*` is every key. Not together with the above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 253)))]
    pub keys: Vec<String>,
    /// Tools that may be listed and called; `*` stands for any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    pub tools: Vec<String>,
    /// URIs of resources that may be listed and read; `*` stands for any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    pub resources: Vec<String>,
    /// Prompts that may be listed and filled in; `*` stands for any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 512)))]
    pub prompts: Vec<String>,
}

/// A claim of a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpec {
    /// Its name, or a path with dots: `realm_access.roles`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Values, one of which it has; of a list, one entry.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 512)))]
    pub values: Vec<String>,
}

impl From<&AccessRule> for RuleText {
    fn from(rule: &AccessRule) -> Self {
        let AccessRule {
            issuer,
            subjects,
            groups,
            claims,
            keys,
            tools,
            resources,
            prompts,
        } = rule.clone();
        let claims = claims.into_iter().map(|claim| ClaimText {
            name: claim.name,
            values: claim.values,
        });
        Self {
            issuer,
            subjects,
            groups,
            claims: claims.collect(),
            keys,
            tools,
            resources,
            prompts,
        }
    }
}
