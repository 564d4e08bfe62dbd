//! The objects of MCP as serde types: what lists name and results hold.

mod content;
mod json;
mod prompt;
mod resource;
mod tool;

use serde::{Deserialize, Serialize};

pub use content::{Annotations, ContentBlock, ResourceContents, ResourceLink, Role};
pub use json::Json;
pub use prompt::{Prompt, PromptArgument, PromptMessage};
pub use resource::{Resource, ResourceTemplate};
pub use tool::{CallToolResult, Tool, ToolAnnotations};

/// Who a server or a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// Name for programs.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Pictures of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
}

/// A picture that a client may show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Icon {
    /// `https:` or `data:` only.
    pub src: String,
    /// MIME type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Such as `48x48` or `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// `light` or `dark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
}
